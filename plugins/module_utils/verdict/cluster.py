# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does the cluster have every GPU of a node, and do pods see them?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster import sharing
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import (
    NO_IMAGE,
    PREEMPTED,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_causes import image_setting
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.verdict import compute
from ansible_collections.metal.gpu.plugins.module_utils.verdict.layers import busy_gpus, offered
from ansible_collections.metal.gpu.plugins.module_utils.verdict.names import name_gpu

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import Device
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import (
        Amount,
        ClusterRow,
        SmokeRow,
    )

GPU = "nvidia.com/gpu"
_NOTHING: Amount = {"capacity": 0, "allocatable": 0}
_FEW = 3  # GPUs that a message names; of more, it has the number for each pod
# The layers that a caller may leave out.
CLUSTER, SMOKE = "cluster", "smoke"


def judge_answers(
    host: str,
    node: Node,
    declared: int | None,
    cluster: ClusterRow | None,
    smoke: SmokeRow | None,
    asked: Collection[str],
    evident: Collection[Mapping[str, str]] = (),
) -> Iterator[dict[str, str]]:
    """Judge the answers of the cluster and of the smoke pod; a missing answer is a finding.

    `evident` are the findings about the node itself.
    """
    name = node["kubelet"]["node_name"]
    # GPUs that only the inventory lacks are a finding of their own.
    expected = len(node["pci"])
    if declared is not None and declared > expected:
        expected = declared
    of_cluster: list[dict[str, str]] = []
    if cluster is not None:
        other = another(host, name, cluster, machine_ids(node))
        of_cluster = [other] if other else list(judge_cluster(host, name, cluster, expected))
        yield from of_cluster
        for one in cluster.get("surroundings", ()):
            yield finding(one["code"], host, **one["evidence"])
    elif CLUSTER in asked:
        yield finding("CLUSTER_UNKNOWN", host, node=name)
    if smoke is not None:
        devices = node["nvml"]["devices"]
        codes = [one["code"] for one in of_cluster]
        of_gpus = [*evident, *(one for one in of_cluster if one["code"] == "GPU_UNHEALTHY")]
        found = list(_judge_smoke(host, node, smoke, codes, of_gpus))
        # Without the UUIDs of all GPUs of the node, a foreign GPU cannot be recognised.
        if not node["nvml"]["complete"] or not all(gpu["uuid"] for gpu in devices):
            found = [one for one in found if one["code"] != "SMOKE_DIFFERS"]
        is_shared = bool(smoke.get("shared"))
        if cluster is not None and not of_cluster and not is_shared:
            found += judge_loss(host, cluster["allocatable"], smoke)
        if is_shared and smoke["state"] == "ok" and smoke["uuids"]:
            found += _judge_share(host, smoke, devices, cluster)
        yield from found
        amount = expected if cluster is None else offered(cluster)["allocatable"]
        if is_shared:
            amount = 1
        is_explained = smoke["state"] == "failed" or any(
            one["code"] not in ("SMOKE_POD_LEFT", "EXCHANGE_UNPROVEN") for one in found
        )
        seen = len(compute.proven(smoke))
        if not is_explained and seen != amount:
            evidence = f"they proved {seen} of {amount} GPUs"
            yield finding("SMOKE_MISSING", host, evidence=evidence)
    elif SMOKE in asked and cluster is not None and cluster["ready"] and not is_mute(node):
        yield finding("SMOKE_MISSING", host, evidence="this node has no result")


def is_mute(node: Node) -> bool:
    """Tell whether the driver answers nobody on the node. Then pods prove nothing, or hang."""
    failure, devices = node["nvml"]["failure"], node["nvml"]["devices"]
    return failure is not None and (failure["code"] == "timeout" or not devices)


def machine_ids(node: Node) -> dict[str, str | None]:
    """Return what tells a machine from others, and its boot."""
    return {"boot_id": node.get("boot_id"), "machine_id": node.get("machine_id")}


def another(
    host: str, name: str, cluster: Mapping[str, object], machine: Mapping[str, str | None]
) -> dict[str, str] | None:
    """Return the finding about a Node that is not this machine, as metal.gpu.gpu_capacity says."""
    if not cluster.get("another"):
        return None
    ours = f"boot id {machine['boot_id']}, machine id {machine['machine_id'] or 'none'}"
    return finding("NODE_IS_ANOTHER", host, node=name, found=cluster["another"], expected=ours)


def judge_cluster(
    host: str, name: str, cluster: ClusterRow, expected: int | None
) -> Iterator[dict[str, str]]:
    """Judge what the cluster says about a node with so many GPUs."""
    if cluster["state"] == "missing":
        yield finding("NODE_NOT_IN_CLUSTER", host, node=name)
        return
    if not cluster["ready"]:
        yield finding("NODE_NOT_READY", host, node=name, error=cluster["readiness"])
    cause = cluster.get("cause")
    if _has_others(cluster):
        yield from _judge_resources(host, cluster, expected)
        return
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


def _has_others(cluster: ClusterRow) -> bool:
    """Tell whether not each GPU of a node is one nvidia.com/gpu, by intention or in fact."""
    wanted = cluster.get("wanted")
    names = {name for name in cluster.get("resources") or {} if name != GPU}
    return bool(names or (wanted and wanted["source"]))


def _judge_resources(
    host: str, cluster: ClusterRow, expected: int | None
) -> Iterator[dict[str, str]]:
    """Judge a node whose GPUs are shared or split, or whose resources have other names."""
    if cluster["state"] == "ok":
        return
    wanted, found = cluster.get("wanted"), cluster.get("resources") or {}
    amounts = None if wanted is None else wanted["resources"]
    found = {
        name: one
        for name, one in found.items()
        if one["allocatable"] or name in (amounts or {GPU: 0})
    }
    if wanted and amounts is None and not cluster["ready"]:  # reported above
        return
    if wanted is None or not wanted["source"]:
        wish, source = f"{expected} {GPU}", ""
    else:
        source = f" ({wanted['source']})"
        wish = sharing.describe(amounts, wanted["known"], wanted["least"])
    if (
        not wanted
        or amounts is None
        or any(
            sharing.differs(amounts, name, one["capacity"], one["allocatable"])
            for name, one in {**dict.fromkeys(amounts, _NOTHING), **found}.items()
        )
    ):
        cause = cluster.get("cause")
        has = ", ".join(
            f"{one['capacity']} {name}"
            + (
                ""
                if one["allocatable"] == one["capacity"]
                else f" ({one['allocatable']} allocatable)"
            )
            for name, one in found.items()
        )
        if cause is not None and (cluster["ready"] or cause["code"] != "NODE_NOT_READY"):
            counted = f"the node has {has or 'no GPU'}, expected {wish}{source}"
            yield finding(cause["code"], host, counted=counted, **cause["evidence"])
        elif cause is None:
            texts = "; ".join(cluster["evidence"])
            evidence = f"; {quote(texts)}" if texts else ""
            yield finding(
                "GPU_RESOURCES_DIFFER",
                host,
                expected=wish + source,
                found=has or "none",
                evidence=evidence,
            )


def _judge_smoke(
    host: str,
    node: Node,
    smoke: SmokeRow,
    known: Collection[str],
    evident: Collection[Mapping[str, str]],
) -> Iterator[dict[str, str]]:
    """Judge the result of the smoke pod. `known` are the codes of earlier findings."""
    seen, devices = smoke["uuids"], node["nvml"]["devices"]
    held = busy_gpus(node, smoke)
    cause = smoke.get("cause")
    if smoke["state"] == "busy" and (smoke["holders"] or smoke["reason"] == PREEMPTED):
        evidence = "; ".join(filter(None, [smoke["message"], _holdings(held)]))
        yield finding("SMOKE_NOT_RUN", host, evidence=evidence)
    elif smoke["state"] == "unknown":
        yield finding("SMOKE_UNKNOWN", host, error=quote(smoke["message"]))
    elif cause is not None:
        # An earlier finding already explains GPUs that are not allocatable.
        if cause["code"] not in (*known, "GPUS_NOT_ALLOCATABLE") or not known:
            more = {**compute.image_evidence(node), **cause["evidence"]}
            yield finding(cause["code"], host, **more)
    elif smoke["reason"] in NO_IMAGE:
        setting = image_setting(smoke.get("level", "list"), "")
        error = quote(smoke["message"])
        yield finding("SMOKE_IMAGE_UNAVAILABLE", host, error=error, setting=setting)
    elif smoke["state"] == "failed" and compute.has_failures(smoke):
        yield from compute.judge_computed(host, node, smoke, evident)
        if len(set(seen)) != smoke["gpus"]:
            yield finding("SMOKE_FAILED", host, asked=smoke["gpus"], error=quote(smoke["message"]))
    elif smoke["state"] in ("failed", "busy"):
        error = quote("; ".join((smoke["message"], *_news(smoke))))
        yield finding("SMOKE_FAILED", host, asked=smoke["gpus"], error=error)
    elif smoke["holders"] and not smoke.get("shared"):
        yield finding(
            "SMOKE_PARTIAL",
            host,
            seen=len(compute.proven(smoke)),
            busy=_busy([gpu for gpu in devices if gpu["uuid"] not in seen], held),
            holders=", ".join(smoke["holders"]),
        )
    yield from compute.judge_unproven(host, node, smoke, evident)
    if smoke.get("left_behind"):
        yield finding(
            "SMOKE_POD_LEFT",
            host,
            name=smoke["pod"],
            namespace=smoke["namespace"],
            error=quote(smoke["left_behind"]),
        )
    uuids = [gpu["uuid"] for gpu in devices]
    # A part of a GPU (MIG) has a UUID of its own.
    strangers = [uuid for uuid in seen if uuid not in uuids and not uuid.startswith("MIG-")]
    if strangers:
        yield finding("SMOKE_DIFFERS", host, uuids=", ".join(strangers))


def _judge_share(
    host: str, smoke: SmokeRow, devices: Sequence[Device], cluster: ClusterRow | None
) -> Iterator[dict[str, str]]:
    """Yield a notice about the GPUs of which the pod got no share: nobody can ask for those."""
    others = [name_gpu(gpu) for gpu in devices if gpu["uuid"] not in smoke["uuids"]]
    if len(others) > _FEW:
        others = [f"{len(others)} other GPUs"]
    wanted = None if cluster is None else cluster.get("wanted")
    if wanted and wanted["mps"]:
        yield finding("COMPUTE_NOT_RUN", host, source=wanted["source"])
    elif others and wanted:
        yield finding(
            "SMOKE_SHARED",
            host,
            seen=", ".join(smoke["uuids"]),
            others=", ".join(others),
            resource=wanted["resource"],
            source=wanted["source"],
        )


def _busy(gpus: Sequence[Device], held: Mapping[str, str]) -> str:
    """Return which of these GPUs which pod holds, or the number for each pod."""
    holders = [held.get(gpu["uuid"] or "", "") for gpu in gpus]
    if len(gpus) > _FEW:
        amounts = _amounts(filter(None, holders))
        return f"{len(gpus)} others" + (f" ({amounts})" if amounts else "")
    names = [name_gpu(gpu) for gpu in gpus]
    pairs = zip(names, holders)
    return ", ".join(name + (f" ({pod})" if pod else "") for name, pod in pairs) or "the others"


def _holdings(held: Mapping[str, str]) -> str:
    """Return which pod holds which GPU, or the number for each pod."""
    if len(held) > _FEW:
        return _amounts(held.values())
    return ", ".join(f"{uuid} ({holder})" for uuid, holder in sorted(held.items()))


def _amounts(holders: Iterable[str]) -> str:
    return ", ".join(f"{holder}: {amount}" for holder, amount in sorted(Counter(holders).items()))


def judge_loss(host: str, before: int | None, smoke: SmokeRow) -> Iterator[dict[str, str]]:
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
