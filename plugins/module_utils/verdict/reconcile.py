# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Compare all layers of a node's GPUs and return the verdict.

Every layer can be wrong while the others are right. The driver can lose a GPU that is on the PCI
bus. A dead kubelet leaves an outdated capacity. Pods can get other GPUs than the node has. So a
node is ok only if every queried layer answered and shows every GPU. A queried layer without an
answer is a finding. The caller reports which layers were not queried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import LIST
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding, is_sound
from ansible_collections.metal.gpu.plugins.module_utils.read.cuda_images import choose
from ansible_collections.metal.gpu.plugins.module_utils.verdict.cluster import (
    CLUSTER,
    SMOKE,
    is_mute,
    judge_answers,
    machine_ids,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.compute import proven
from ansible_collections.metal.gpu.plugins.module_utils.verdict.device_files import (
    judge_device_files,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.fabric import (
    judge_fabric,
    judge_unknown,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.hardware import (
    judge_cuda,
    judge_hardware,
    named_gpus,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.health import (
    judge_faults,
    judge_machine,
    judge_notices,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.kernel_log import (
    judge_kernel_log,
    logged_actions,
    without_ignored,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.layers import (
    as_rows,
    look,
    offered,
    split_gpus,
    trace,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.losses import explain_losses
from ansible_collections.metal.gpu.plugins.module_utils.verdict.names import judge_names
from ansible_collections.metal.gpu.plugins.module_utils.verdict.services import (
    judge_plans,
    judge_services,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.silence import silent_programs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import (
        ClusterRow,
        Layers,
        PlanResult,
        Question,
        SmokeRow,
        Verdict,
    )

LAYERS = ("declared", "pci", "nvml", "capacity", "allocatable", "smoke")

# The findings about the hardware that a stopped run can have caused.
_OF_A_STOPPED_RUN = ("NVML_UNAVAILABLE", "KERNEL_LOG_UNREADABLE")
# The only finding of the cluster that is not outdated when kubelet or engine is stopped.
_IN_SPITE_OF_STOPPED = ("NODE_IS_ANOTHER", "NODE_NOT_IN_CLUSTER")
# Findings that follow from a cluster without an answer.
_OF_SILENCE = ("CLUSTER_UNKNOWN", "SMOKE_MISSING")


def question(
    host: str,
    node: Node,
    declared: int | None,
    known: Iterable[Mapping[str, str]] = (),
    by_hand: Mapping[str, int] | None = None,
) -> Question:
    """Return what to query the cluster for: name of the node, expected GPUs, `awaited`, `smoke`.

    `by_hand` is what the admin expects of the node instead, by resource. `split` is how many of the
    GPUs are in MIG mode.

    `awaited` is whether to wait for the expected capacity. If the PCI bus or the driver misses a
    GPU, or the device plugin has withdrawn one after an Xid, waiting is useless. `smoke` is whether
    to run a smoke pod, with `image` at the level "compute". Without kubelet or engine no pod
    starts, and without an answer of the driver none succeeds. Neither applies to a node that the
    run left out because of the findings `known`.
    """
    can_run_pods = is_sound(known) and not list(judge_services(host, node))
    return {
        "node": node["kubelet"]["node_name"],
        "expected": len(node["pci"]) if declared is None else declared,
        "by_hand": dict(by_hand or {}),
        "split": split_gpus(node),
        "awaited": can_run_pods and is_sound(_judge_gpus(host, without_ignored(node), declared)),
        "smoke": can_run_pods and not is_mute(node),
        "machine": machine_ids(node),
        "image": choose(_driver_version(node), (gpu["device"] for gpu in node["pci"])),
    }


def reconcile(
    host: str,
    node: Node | None,
    declared: int | None,
    cluster: ClusterRow | None,
    smoke: SmokeRow | None,
    known: Iterable[Mapping[str, str]] = (),
    *,
    unanswered: Iterable[Mapping[str, str]] = (),
    asked: Collection[str] = (CLUSTER, SMOKE),
    plans: Mapping[str, PlanResult] | None = None,
) -> Verdict:
    """Return the verdict on a node: machine, layers, findings, and whether it is ok, or busy.

    `node` is the observation of metal.gpu.node_info. `cluster` and `smoke` are the node's rows from
    metal.gpu.gpu_capacity and metal.gpu.gpu_smoke_pod. None means no answer. That is a finding for
    each layer in `asked`, unless the findings `unanswered` explain it.
    `known` are the findings for which there is no observation, or for which the run left the node
    out. Their consequences show in the layers, and are no further findings.
    `plans` are the plans for this node, by component. Their steps are drift.
    """
    stated, silence = list(known), list(unanswered)
    findings: list[Mapping[str, str]] = [*stated]
    if node is None:
        if is_sound(stated):
            findings.append(finding("NODE_NOT_OBSERVED", host, error="the observation is missing"))
    elif is_sound(stated):
        stopped = list(judge_services(host, node))
        of_gpus = _judge_gpus(host, node, declared)
        findings += [
            # The daemon of MPS sets this mode itself.
            one
            for one in of_gpus
            if not (one["code"] == "COMPUTE_EXCLUSIVE" and _is_mps(cluster))
        ]
        findings += judge_cuda(host, node)
        findings += judge_device_files(host, node)
        fabric = list(judge_fabric(host, node))
        findings += fabric or judge_unknown(host, node, smoke)
        findings += judge_names(host, node, is_whole=is_sound(of_gpus))
        findings += stopped
        findings += [finding(code, host, **evidence) for code, evidence in silent_programs(node)]
        answers = judge_answers(host, node, declared, cluster, smoke, asked, [*findings])
        findings += judge_plans(host, node, plans or {}, [*stopped, *fabric])
        findings += [
            one
            for one in answers
            if (not stopped or one["code"] in _IN_SPITE_OF_STOPPED)
            and not (silence and one["code"] in _OF_SILENCE)
        ]
    else:
        gpus = _judge_gpus(host, node, declared)
        findings += [one for one in gpus if one["code"] not in _OF_A_STOPPED_RUN]
    findings += silence
    distinct = {(one["code"], one["message"]): dict(one) for one in findings}
    seen = look(node, declared, cluster, smoke)
    traced = trace(node, seen, smoke)
    is_ok = is_sound(findings)
    # A node that the run left out has its reason, and no other.
    is_explained = is_ok or not is_sound(stated)
    return {
        "host": host,
        "machine": _machine(node),
        "layers": _layers(node, declared, cluster, smoke),
        "seen": as_rows(seen),
        "gpus": traced,
        "lost": [] if is_explained else explain_losses(traced, seen, distinct.values()),
        "findings": list(distinct.values()),
        "ok": is_ok,
        "busy": smoke is not None and smoke["state"] == "busy",
        "level": None if smoke is None else smoke.get("level", LIST),
    }


def _judge_gpus(host: str, node: Node, declared: int | None) -> list[dict[str, str]]:
    """Judge what the bus, the driver, the GPUs and the kernel log show. Each GPU is named once."""
    hardware = list(judge_hardware(host, node, declared))
    named = named_gpus(node)
    unhealthy = dict(judge_faults(host, node, named))
    found = [*hardware, *unhealthy.values()]
    named |= set(unhealthy)
    found += judge_machine(host, node, named)
    found += judge_kernel_log(host, node, named, is_needed=not is_sound(found))
    logged = {gpu["address"] for gpu in node["pci"] if logged_actions(node, gpu["address"])}
    return [*found, *judge_notices(host, node, named | logged)]


def _is_mps(cluster: ClusterRow | None) -> bool:
    wanted = None if cluster is None else cluster.get("wanted")
    return bool(wanted and wanted["mps"])


def _driver_version(node: Node) -> str | None:
    """Return the version of the driver. Without any row, nvidia-smi does not say it."""
    return node["nvml"]["driver_version"] or node["driver"]["module_version"]


def _machine(node: Node | None) -> dict[str, str | None]:
    """Return the models of a node's GPUs and the version of its driver, for the reader."""
    if node is None:
        return {"gpu": None, "driver": None}
    names = (gpu["name"] for gpu in node["nvml"]["devices"])
    models = dict.fromkeys(name.removeprefix("NVIDIA ") for name in names if name)
    return {
        "gpu": ", ".join(models) or None,
        "driver": _driver_version(node),
    }


def _layers(
    node: Node | None,
    declared: int | None,
    cluster: ClusterRow | None,
    smoke: SmokeRow | None,
) -> Layers:
    """Return the number of GPUs on each layer; None if it was not queried or did not answer."""
    layers: Layers = dict.fromkeys(LAYERS)
    layers["declared"] = declared
    if node is not None:
        layers["pci"] = len(node["pci"])
        layers["nvml"] = sum(gpu["error"] is None for gpu in node["nvml"]["devices"])
    if cluster is not None:
        layers |= offered(cluster)
    if smoke is not None:
        busy = smoke["state"] == "busy"
        layers["smoke"] = "busy" if busy else f"{len(proven(smoke))}/{smoke['gpus']}"
    return layers
