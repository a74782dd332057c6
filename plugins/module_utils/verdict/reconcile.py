# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Compare all layers of a node's GPUs and return the verdict. No I/O.

Every layer can be wrong while the others are right. The driver can lose a GPU that is on the PCI
bus. A dead kubelet leaves an outdated capacity. Pods can get other GPUs than the node has. So a
node is ok only if every queried layer answered and shows every GPU. A queried layer without an
answer is a finding. The caller reports which layers were not queried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import NO_IMAGE
from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE, finding
from ansible_collections.metal.gpu.plugins.module_utils.read.containerd import DEFAULT_SOCKET
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet import socket_path
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi import name_gpu
from ansible_collections.metal.gpu.plugins.module_utils.read.silence import silent_programs
from ansible_collections.metal.gpu.plugins.module_utils.verdict.hardware import (
    judge_cuda,
    judge_hardware,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import (
        ClusterRow,
        Layers,
        Question,
        SmokeRow,
        Verdict,
    )
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.observed import (
        Containerd,
    )
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio.observed import Crio
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.observed import (
        CriDockerd,
        Docker,
    )
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.observed import Device
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult

LAYERS = ("declared", "pci", "nvml", "capacity", "allocatable", "smoke")
# The layers that a caller may leave out.
CLUSTER, SMOKE = "cluster", "smoke"

# Findings that a stopped run cannot have caused.
_OF_HARDWARE = (
    "NO_GPU",
    "GPU_COUNT_DIFFERS",
    "NVML_COUNT_DIFFERS",
    "NVML_CONTRADICTS",
    "NVML_TROUBLE",
    "GPU_FAULTY",
)
# The only finding of the cluster that is not outdated when kubelet or engine is stopped.
_IN_SPITE_OF_STOPPED = ("NODE_NOT_IN_CLUSTER",)
# Findings that follow from a cluster without an answer.
_OF_SILENCE = ("CLUSTER_UNKNOWN", "SMOKE_MISSING")
# The component that a role installs or configures.
_COMPONENTS = {
    "nvidia_driver": "driver",
    "docker_ce": "docker",
    "nvidia_container_runtime": "container_toolkit",
    "kubelet_device_plugins": "kubelet",
}
# The finding that already reports a stopped component.
_STOPPED = {
    "kubelet": "KUBELET_STOPPED",
    "containerd": "ENGINE_STOPPED",
    "docker": "ENGINE_STOPPED",
}


def question(
    host: str,
    node: Node,
    declared: int | None,
    known: Iterable[Mapping[str, str]] = (),
) -> Question:
    """Return what to query the cluster for: name of the node, expected GPUs, `awaited`, `smoke`.

    `awaited` is whether to wait for the expected capacity. If the PCI bus or the driver misses a
    GPU, waiting is useless. `smoke` is whether to run a smoke pod. Without kubelet or engine no pod
    starts. Neither applies to a node that the run left out because of the findings `known`.
    """
    can_run_pods = _is_sound(known) and not list(_judge_services(host, node))
    return {
        "node": node["kubelet"]["node_name"],
        "expected": len(node["pci"]) if declared is None else declared,
        "awaited": can_run_pods and not list(judge_hardware(host, node, declared)),
        "smoke": can_run_pods,
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
    """Return the verdict on a node: machine, layers, findings, and whether it is ok.

    `node` is the observation of metal.gpu.node_info. `cluster` and `smoke` are the node's rows from
    metal.gpu.gpu_capacity and metal.gpu.gpu_smoke_pod. None means no answer. That is a finding for
    each layer in `asked`, unless the findings `unanswered` explain it.
    `known` are the findings for which there is no observation, or for which the run left the node
    out. Their consequences show in the layers, and are no further findings.
    `plans` are the plans of the roles for this node, by role. Their steps are drift.
    """
    stated, silence = list(known), list(unanswered)
    findings: list[Mapping[str, str]] = [*stated]
    if node is None:
        if _is_sound(stated):
            findings.append(finding("NODE_NOT_OBSERVED", host, error="the observation is missing"))
    elif _is_sound(stated):
        stopped = list(_judge_services(host, node))
        answers = _judge_answers(host, node, declared, cluster, smoke, asked)
        findings += judge_hardware(host, node, declared)
        findings += judge_cuda(host, node)
        findings += stopped
        findings += [finding(code, host, **evidence) for code, evidence in silent_programs(node)]
        findings += _judge_plans(host, plans or {}, stopped)
        findings += [
            one
            for one in answers
            if (not stopped or one["code"] in _IN_SPITE_OF_STOPPED)
            and not (silence and one["code"] in _OF_SILENCE)
        ]
    else:
        hardware = judge_hardware(host, node, declared)
        findings += [one for one in hardware if one["code"] in _OF_HARDWARE]
    findings += silence
    distinct = {(one["code"], one["message"]): dict(one) for one in findings}
    return {
        "host": host,
        "machine": _machine(node),
        "layers": _layers(node, declared, cluster, smoke),
        "findings": list(distinct.values()),
        "ok": _is_sound(findings),
    }


def _is_sound(findings: Iterable[Mapping[str, str]]) -> bool:
    return all(found["severity"] == NOTICE for found in findings)


def _machine(node: Node | None) -> dict[str, str | None]:
    """Return the models of a node's GPUs and the version of its driver, for the reader."""
    if node is None:
        return {"gpu": None, "driver": None}
    names = (gpu["name"] for gpu in node["nvml"]["devices"])
    models = dict.fromkeys(name.removeprefix("NVIDIA ") for name in names if name)
    return {"gpu": ", ".join(models) or None, "driver": node["nvml"]["driver_version"]}


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
        layers["capacity"] = cluster["capacity"]
        layers["allocatable"] = cluster["allocatable"]
    if smoke is not None:
        busy = smoke["state"] == "busy"
        layers["smoke"] = "busy" if busy else f"{len(smoke['uuids'])}/{smoke['gpus']}"
    return layers


def _judge_services(host: str, node: Node) -> Iterator[dict[str, str]]:
    kubelet = node["kubelet"]
    if kubelet["installed"] and kubelet["running"] is False:
        state = kubelet["unit_state"]
        unit = f"its unit is {state['active']} ({state['sub']}, {state['result']})"
        yield finding("KUBELET_STOPPED", host, error=kubelet["last_error"] or unit)
    for unit in _stopped_engines(node):
        yield finding("ENGINE_STOPPED", host, unit=unit)


def _stopped_engines(node: Node) -> Iterator[str]:
    """Yield the units between the kubelet and its containers that do not run.

    The kubelet does not use other engines. The engine of a Kubernetes distribution has another
    socket, and no unit to check.
    """
    endpoint = node["kubelet"]["endpoint"] or ""
    engines = node["engines"]
    docker, socket = engines["docker"], engines["containerd"]["socket"] or DEFAULT_SOCKET
    services: dict[str, Docker | CriDockerd | Containerd | Crio] = {}
    if "cri-dockerd" in endpoint:
        services = {"docker": docker, "cri-docker": docker["cri_dockerd"]}
    elif "crio" in endpoint:
        services = {"crio": engines["crio"]}
    elif socket_path(endpoint) == socket_path(socket):
        services = {"containerd": engines["containerd"]}
    for unit, service in services.items():
        if service["installed"] and service["running"] is False:
            yield unit


def _judge_plans(
    host: str, plans: Mapping[str, PlanResult], stopped: Sequence[Mapping[str, str]]
) -> Iterator[Mapping[str, str]]:
    """Yield the drift from the plans of the roles, and their refusals, but not their notices."""
    codes = [one["code"] for one in stopped]
    for role, plan in plans.items():
        yield from plan["refusals"]
        component = _COMPONENTS.get(role, role)
        steps = [f"{step['name']} ({step['reason']})" for step in plan["steps"]]
        is_reported = len(steps) == 1 and _STOPPED.get(component) in codes
        if steps and not is_reported:
            yield finding("DRIFTED", host, component=component, reasons="; ".join(steps))


def _judge_answers(
    host: str,
    node: Node,
    declared: int | None,
    cluster: ClusterRow | None,
    smoke: SmokeRow | None,
    asked: Collection[str],
) -> Iterator[dict[str, str]]:
    """Judge the answers of the cluster and of the smoke pod; a missing answer is a finding."""
    name = node["kubelet"]["node_name"]
    expected = len(node["pci"]) if declared is None else declared
    of_cluster: list[dict[str, str]] = []
    if cluster is not None:
        of_cluster = list(_judge_cluster(host, name, cluster, expected))
        yield from of_cluster
    elif CLUSTER in asked:
        yield finding("CLUSTER_UNKNOWN", host, node=name)
    if smoke is not None:
        devices = node["nvml"]["devices"]
        found = list(_judge_smoke(host, smoke, devices, [one["code"] for one in of_cluster]))
        # Without the UUIDs of all GPUs of the node, a foreign GPU cannot be recognised.
        if not node["nvml"]["complete"] or not all(gpu["uuid"] for gpu in devices):
            found = [one for one in found if one["code"] != "SMOKE_DIFFERS"]
        if cluster is not None and not of_cluster:
            found += _judge_loss(host, cluster["allocatable"], smoke)
        yield from found
        offered = expected if cluster is None else cluster["allocatable"]
        is_explained = smoke["state"] == "failed" or any(
            one["code"] != "SMOKE_POD_LEFT" for one in found
        )
        if not is_explained and len(set(smoke["uuids"])) != offered:
            evidence = f"they saw {len(set(smoke['uuids']))} of {offered} GPUs"
            yield finding("SMOKE_MISSING", host, evidence=evidence)
    elif SMOKE in asked and cluster is not None and cluster["ready"]:
        yield finding("SMOKE_MISSING", host, evidence="this node has no result")


def _judge_cluster(
    host: str, name: str, cluster: ClusterRow, expected: int | None
) -> Iterator[dict[str, str]]:
    if cluster["state"] == "missing":
        yield finding("NODE_NOT_IN_CLUSTER", host, node=name)
        return
    if not cluster["ready"]:
        yield finding("NODE_NOT_READY", host, node=name, error=cluster["readiness"])
    cause = cluster.get("cause")
    for found, code, counts in (
        (cluster["capacity"], "CAPACITY_DIFFERS", "capacity is"),
        (cluster["allocatable"], "ALLOCATABLE_DIFFERS", "allocatable is"),
    ):
        if found == expected:
            continue
        if cause is None:
            texts = "; ".join(cluster["evidence"])
            evidence = f"; {quote(texts)}" if texts else ""
            text = "none" if found is None else found
            yield finding(code, host, expected=expected, found=text, evidence=evidence)
        elif cluster["ready"] or cause["code"] != "NODE_NOT_READY":  # else it is reported above
            counted = f"{counts} {found or 0} of {expected} GPUs"
            yield finding(cause["code"], host, counted=counted, **cause["evidence"])
        return  # the second of them has no new information


def _judge_smoke(
    host: str,
    smoke: SmokeRow,
    devices: Sequence[Device] | None,
    known: Collection[str] = (),
) -> Iterator[dict[str, str]]:
    """Judge the result of the smoke pod. `known` are the codes of earlier findings."""
    seen = smoke["uuids"]
    cause = smoke.get("cause")
    if smoke["state"] == "busy" and smoke["holders"]:
        yield finding("SMOKE_NOT_RUN", host, evidence=smoke["message"])
    elif smoke["state"] == "unknown":
        yield finding("SMOKE_UNKNOWN", host, error=quote(smoke["message"]))
    elif cause is not None:
        # An earlier finding already explains GPUs that are not allocatable.
        if cause["code"] not in (*known, "GPUS_NOT_ALLOCATABLE") or not known:
            yield finding(cause["code"], host, **cause["evidence"])
    elif smoke["reason"] in NO_IMAGE:
        yield finding("SMOKE_IMAGE_UNAVAILABLE", host, error=quote(smoke["message"]))
    elif smoke["state"] in ("failed", "busy"):
        error = quote("; ".join((smoke["message"], *_news(smoke))))
        yield finding("SMOKE_FAILED", host, asked=smoke["gpus"], error=error)
    elif smoke["holders"]:
        busy = [name_gpu(gpu) for gpu in devices or () if gpu["uuid"] not in seen]
        yield finding(
            "SMOKE_PARTIAL",
            host,
            seen=len(seen),
            busy=", ".join(busy) or "the others",
            holders=", ".join(smoke["holders"]),
        )
    if smoke.get("left_behind"):
        yield finding(
            "SMOKE_POD_LEFT",
            host,
            name=smoke["pod"],
            namespace=smoke["namespace"],
            error=quote(smoke["left_behind"]),
        )
    if devices is None:
        return
    uuids = [gpu["uuid"] for gpu in devices]
    strangers = [uuid for uuid in seen if uuid not in uuids]
    if strangers:
        yield finding("SMOKE_DIFFERS", host, uuids=", ".join(strangers))


def _judge_loss(host: str, before: int | None, smoke: SmokeRow) -> Iterator[dict[str, str]]:
    """Yield a finding if the node lost GPUs after the cluster counted them."""
    found = smoke.get("allocatable")
    if smoke["state"] not in ("ok", "busy") or before is None or found is None or found >= before:
        return
    evidence = f"; it could allocate {before} a moment before"
    yield finding("ALLOCATABLE_DIFFERS", host, expected=before, found=found, evidence=evidence)


def _news(smoke: SmokeRow) -> list[str]:
    """Return the newest event of a smoke pod that its message does not repeat."""
    news = [text for text in smoke["events"] if text.partition(": ")[2] not in smoke["message"]]
    return news[-1:]
