# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Do all the layers agree about a node's GPUs? No function does I/O.

Every layer can be wrong while the others are right: a GPU in the slot that the driver lost, a
capacity that nobody corrected since, as of a kubelet that is dead, pods that see other GPUs than
the node has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE, finding
from ansible_collections.metal.gpu.plugins.module_utils.nvidia_smi import name_gpu
from ansible_collections.metal.gpu.plugins.module_utils.pod_status import NO_IMAGE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

LAYERS = ("declared", "pci", "nvml", "capacity", "allocatable", "smoke")


def question(
    host: str,
    node: Mapping[str, Any],
    declared: int | None,
    known: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return what the cluster is to be asked about a node.

    That is its name there, the number of GPUs, whether it is worth waiting until the cluster counts
    them, and whether pods are to prove them. Where the bus or the driver miss a GPU, no waiting
    brings it back; a node that the run has left out proves nothing.
    """
    sound = _is_sound(known)
    return {
        "node": node["kubelet"]["node_name"],
        "expected": len(node["pci"]) if declared is None else declared,
        "awaited": sound and not list(_judge_hardware(host, node, declared)),
        "smoke": sound,
    }


def reconcile(
    host: str,
    node: Mapping[str, Any] | None,
    declared: int | None,
    cluster: Mapping[str, Any] | None,
    smoke: Mapping[str, Any] | None,
    known: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return the verdict on a node: its layers, its findings, and whether it is ok.

    `node` is what metal.gpu.node_info observed, `cluster` and `smoke` are the node's rows from
    metal.gpu.gpu_capacity and metal.gpu.gpu_smoke_pod. None means that there is no answer.
    `known` is why there is none, or why the run has left the node out: what follows from that is
    shown in the layers, and is no finding of its own.
    """
    layers: dict[str, Any] = dict.fromkeys(LAYERS)
    layers["declared"] = declared
    findings: list[dict[str, str]] = []
    devices = None
    if node is not None:
        devices = node["nvml"]["devices"]
        layers["pci"] = len(node["pci"])
        layers["nvml"] = sum(device["error"] is None for device in devices)
        findings += _judge_hardware(host, node, declared)
    if cluster is not None:
        layers["capacity"] = cluster["capacity"]
        layers["allocatable"] = cluster["allocatable"]
        expected = declared if declared is not None else layers["pci"]
        name = host if node is None else node["kubelet"]["node_name"]
        findings += _judge_cluster(host, name, cluster, expected)
    if smoke is not None:
        busy = smoke["state"] == "busy"
        layers["smoke"] = "busy" if busy else f"{len(smoke['uuids'])}/{smoke['gpus']}"
        codes = {found["code"] for found in findings}
        findings += _judge_smoke(host, smoke, devices, codes)
    stated = [dict(one) for one in known]
    findings = [*stated, *findings] if _is_sound(stated) else stated
    return {"host": host, "layers": layers, "findings": findings, "ok": _is_sound(findings)}


def _is_sound(findings: Iterable[Mapping[str, str]]) -> bool:
    return all(found["severity"] == NOTICE for found in findings)


def _judge_hardware(
    host: str, node: Mapping[str, Any], declared: int | None
) -> Iterator[dict[str, str]]:
    slots = [gpu["address"] for gpu in node["pci"]]
    devices = node["nvml"]["devices"]
    failure = node["nvml"]["failure"]
    if not slots:
        yield finding("NO_GPU", host)
    elif declared is not None and declared != len(slots):
        addresses = ", ".join(slots)
        yield finding(
            "GPU_COUNT_DIFFERS", host, declared=declared, found=len(slots), addresses=addresses
        )
    if failure is not None and not devices:
        yield finding("NVML_UNAVAILABLE", host, error=failure["message"] or failure["code"])
        return
    lost = [slot for slot in slots if slot not in [gpu["pci_address"] for gpu in devices]]
    if lost:
        yield finding(
            "NVML_COUNT_DIFFERS",
            host,
            pci=len(slots),
            nvml=len(devices),
            addresses=", ".join(lost),
        )
    for gpu in devices:
        if gpu["error"] is not None:
            known = ", ".join(filter(None, (gpu["pci_address"], gpu["uuid"])))
            names = f" ({known})" if known else ""
            yield finding("GPU_FAULTY", host, index=gpu["index"], names=names, error=gpu["error"])


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
