# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Do all the layers agree about a node's GPUs? No function does I/O.

Every layer can be wrong while the others are right: a GPU in the slot that the driver lost, a
capacity that nobody corrected since, as of a kubelet that is dead, pods that see other GPUs than
the node has. So a node is ok only where every layer that was asked has answered, and has shown
every GPU. A layer that was not asked is named as such by the caller; one without an answer is a
finding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE, finding
from ansible_collections.metal.gpu.plugins.module_utils.hardware import judge_cuda, judge_hardware
from ansible_collections.metal.gpu.plugins.module_utils.nvidia_smi import name_gpu
from ansible_collections.metal.gpu.plugins.module_utils.pod_status import NO_IMAGE
from ansible_collections.metal.gpu.plugins.module_utils.silence import silence as silence_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

LAYERS = ("declared", "pci", "nvml", "capacity", "allocatable", "smoke")
# What a caller may leave out on purpose.
CLUSTER, SMOKE = "cluster", "smoke"

_CONTAINERD_SOCKET = "/run/containerd/containerd.sock"

# What a run that was stopped is not the cause of.
_OF_HARDWARE = (
    "NO_GPU",
    "GPU_COUNT_DIFFERS",
    "NVML_COUNT_DIFFERS",
    "NVML_CONTRADICTS",
    "NVML_TROUBLE",
    "GPU_FAULTY",
)
# What the cluster says of a node without kubelet or engine is what was true before; but for this.
_IN_SPITE_OF_STOPPED = ("NODE_NOT_IN_CLUSTER",)
# What follows from a cluster without an answer.
_OF_SILENCE = ("CLUSTER_UNKNOWN", "SMOKE_MISSING")
# The component that a role brings, in the words of the documentation.
_COMPONENTS = {
    "nvidia_driver": "driver",
    "docker_ce": "docker",
    "nvidia_container_runtime": "container_toolkit",
    "kubelet_device_plugins": "kubelet",
}
# What has said already that a component does not run.
_STOPPED = {
    "kubelet": "KUBELET_STOPPED",
    "containerd": "ENGINE_STOPPED",
    "docker": "ENGINE_STOPPED",
}


def question(
    host: str,
    node: Mapping[str, Any],
    declared: int | None,
    known: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return what the cluster is to be asked about a node.

    That is its name there, the number of GPUs, whether it is worth waiting until the cluster counts
    them, and whether pods are to prove them. Where the bus or the driver miss a GPU, no waiting
    brings it back; without kubelet or engine no pod starts; a node that the run has left out proves
    nothing.
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
    node: Mapping[str, Any] | None,
    declared: int | None,
    cluster: Mapping[str, Any] | None,
    smoke: Mapping[str, Any] | None,
    known: Iterable[Mapping[str, str]] = (),
    *,
    unanswered: Iterable[Mapping[str, str]] = (),
    asked: Collection[str] = (CLUSTER, SMOKE),
    plans: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the verdict on a node: its layers, its findings, and whether it is ok.

    `node` is what metal.gpu.node_info observed, `cluster` and `smoke` are the node's rows from
    metal.gpu.gpu_capacity and metal.gpu.gpu_smoke_pod. None means that there is no answer, which
    is a finding for each layer that was `asked`, unless `unanswered` says why nobody got one.
    `known` is why there is no observation, or why the run has left the node out: what follows from
    that is shown in the layers, and is no finding of its own.
    `plans` are the plans of the roles for this node, by role: what they would do is drift.
    """
    stated, silence = list(known), list(unanswered)
    findings: list[Mapping[str, str]] = [*stated]
    if node is None:
        if _is_sound(stated):
            findings.append(finding("NODE_NOT_OBSERVED", host, error="there is no observation"))
    elif _is_sound(stated):
        stopped = list(_judge_services(host, node))
        answers = _judge_answers(host, node, declared, cluster, smoke, asked)
        findings += judge_hardware(host, node, declared)
        findings += judge_cuda(host, node)
        findings += stopped
        findings += [finding(code, host, **evidence) for code, evidence in silence_of(node)]
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
        "layers": _layers(node, declared, cluster, smoke),
        "findings": list(distinct.values()),
        "ok": _is_sound(findings),
    }


def _is_sound(findings: Iterable[Mapping[str, str]]) -> bool:
    return all(found["severity"] == NOTICE for found in findings)


def _layers(
    node: Mapping[str, Any] | None,
    declared: int | None,
    cluster: Mapping[str, Any] | None,
    smoke: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return how many GPUs there are on each layer; None where it was not asked, or is silent."""
    layers: dict[str, Any] = dict.fromkeys(LAYERS)
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


def _judge_services(host: str, node: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    kubelet = node["kubelet"]
    if kubelet["installed"] and kubelet["running"] is False:
        state = kubelet["unit_state"]
        unit = f"its unit is {state['active']} ({state['sub']}, {state['result']})"
        yield finding("KUBELET_STOPPED", host, error=kubelet["last_error"] or unit)
    for unit in _stopped_engines(node):
        yield finding("ENGINE_STOPPED", host, unit=unit)


def _stopped_engines(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the units between the kubelet and its containers that do not run.

    Other engines are no concern of the kubelet's, and neither is one that is part of a
    distribution of Kubernetes, whose socket is another.
    """
    endpoint = node["kubelet"]["endpoint"] or ""
    containerd, docker, crio = (node["engines"][name] for name in ("containerd", "docker", "crio"))
    if "cri-dockerd" in endpoint:
        services = {"docker": docker, "cri-docker": docker["cri_dockerd"]}
    elif "crio" in endpoint:
        services = {"crio": crio}
    elif endpoint.removeprefix("unix://") == (containerd["socket"] or _CONTAINERD_SOCKET):
        services = {"containerd": containerd}
    else:
        services = {}
    for unit, service in services.items():
        if service["installed"] and service["running"] is False:
            yield unit


def _judge_plans(
    host: str, plans: Mapping[str, Mapping[str, Any]], stopped: Sequence[Mapping[str, str]]
) -> Iterator[Mapping[str, str]]:
    """Yield what the roles would change, or why they refuse to. Their notices are for them."""
    codes = [one["code"] for one in stopped]
    for role, plan in plans.items():
        yield from plan["refusals"]
        component = _COMPONENTS.get(role, role)
        steps = [f"{step['name']} ({step['reason']})" for step in plan["steps"]]
        is_said = len(steps) == 1 and _STOPPED.get(component) in codes
        if steps and not is_said:
            yield finding("DRIFTED", host, component=component, reasons="; ".join(steps))


def _judge_answers(
    host: str,
    node: Mapping[str, Any],
    declared: int | None,
    cluster: Mapping[str, Any] | None,
    smoke: Mapping[str, Any] | None,
    asked: Collection[str],
) -> Iterator[dict[str, str]]:
    """Judge what the cluster and the pods have said; what was asked and is missing, is named."""
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
        # Who does not know all GPUs of the node cannot tell a strange one.
        if not node["nvml"]["complete"] or not all(gpu["uuid"] for gpu in devices):
            found = [one for one in found if one["code"] != "SMOKE_DIFFERS"]
        yield from found
        offered = expected if cluster is None else cluster["allocatable"]
        is_explained = smoke["state"] == "failed" or any(
            one["code"] != "SMOKE_POD_LEFT" for one in found
        )
        if not is_explained and len(set(smoke["uuids"])) != offered:
            evidence = f"they saw {len(set(smoke['uuids']))} of {offered} GPUs"
            yield finding("SMOKE_MISSING", host, evidence=evidence)
    elif SMOKE in asked and cluster is not None and cluster["ready"]:
        yield finding("SMOKE_MISSING", host, evidence="there is no result for this node")


_COUNTS = (
    ("capacity", "CAPACITY_DIFFERS", "the cluster counts"),
    ("allocatable", "ALLOCATABLE_DIFFERS", "the cluster can hand out"),
)


def _judge_cluster(
    host: str, name: str, cluster: Mapping[str, Any], expected: int | None
) -> Iterator[dict[str, str]]:
    if cluster["state"] == "missing":
        yield finding("NODE_NOT_IN_CLUSTER", host, node=name)
        return
    if not cluster["ready"]:
        yield finding("NODE_NOT_READY", host, node=name, error=cluster["readiness"])
    cause = cluster.get("cause")
    for layer, code, counts in _COUNTS:
        found = cluster[layer]
        if found == expected:
            continue
        if cause is None:
            said = "; ".join(cluster["evidence"])
            evidence = f"; {quote(said)}" if said else ""
            text = "none" if found is None else found
            yield finding(code, host, expected=expected, found=text, evidence=evidence)
        elif cluster["ready"] or cause["code"] != "NODE_NOT_READY":  # it is said already
            counted = f"{counts} {found or 0} of {expected} GPUs"
            yield finding(cause["code"], host, counted=counted, **cause["evidence"])
        return  # the second of them says nothing new


def _judge_smoke(
    host: str,
    smoke: Mapping[str, Any],
    devices: Sequence[Mapping[str, Any]] | None,
    known: Collection[str] = (),
) -> Iterator[dict[str, str]]:
    """Judge what became of the smoke pod. `known` are the codes of what was found before."""
    seen = smoke["uuids"]
    cause = smoke.get("cause")
    if smoke["state"] == "busy":
        yield finding("SMOKE_NOT_RUN", host, evidence=smoke["message"])
    elif smoke["state"] == "unknown":
        yield finding("SMOKE_UNKNOWN", host, error=quote(smoke["message"]))
    elif cause is not None:
        # What the cluster does not hand out, no pod can get: no news where that is known.
        if cause["code"] not in (*known, "GPUS_NOT_ALLOCATABLE") or not known:
            yield finding(cause["code"], host, **cause["evidence"])
    elif smoke["reason"] in NO_IMAGE:
        yield finding("SMOKE_IMAGE_UNAVAILABLE", host, error=quote(smoke["message"]))
    elif smoke["state"] == "failed":
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


def _news(smoke: Mapping[str, Any]) -> list[str]:
    """Return the newest event of a smoke pod, unless its message has said that."""
    news = [text for text in smoke["events"] if text.partition(": ")[2] not in smoke["message"]]
    return news[-1:]
