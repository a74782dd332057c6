# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does the cluster have every GPU of a node, and do pods see them? No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import NO_IMAGE
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi import name_gpu

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import ClusterRow, SmokeRow
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.observed import Device
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node

# The layers that a caller may leave out.
CLUSTER, SMOKE = "cluster", "smoke"


def judge_answers(
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
        for one in cluster.get("surroundings", ()):
            yield finding(one["code"], host, **one["evidence"])
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
    elif SMOKE in asked and cluster is not None and cluster["ready"] and not is_mute(node):
        yield finding("SMOKE_MISSING", host, evidence="this node has no result")


def is_mute(node: Node) -> bool:
    """Tell whether the driver answers nobody on the node. Then pods prove nothing, or hang."""
    failure, devices = node["nvml"]["failure"], node["nvml"]["devices"]
    return failure is not None and (failure["code"] == "timeout" or not devices)


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
    devices: Sequence[Device],
    known: Collection[str],
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
        busy = [name_gpu(gpu) for gpu in devices if gpu["uuid"] not in seen]
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
