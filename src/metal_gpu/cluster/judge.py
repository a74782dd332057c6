# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge the nodes of a cluster by what it says, and by the pods.

Without an observation of the node itself, a card that the driver lost before the device plugin
started cannot be seen: only `metal-gpu verify` compares with the PCI bus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import sharing
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import NO_IMAGE
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding, is_sound
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_errors
from ansible_collections.metal.gpu.plugins.module_utils.verdict.cluster import (
    judge_cluster,
    judge_loss,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.compute import proven
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import ClusterRow, SmokeRow
from metal_gpu.cluster.look import GPU, PRODUCT, Facts, proof


class Verdict(NamedTuple):
    """The judgement of a node. None: not known."""

    node: str
    product: str
    ready: bool | None
    expected: int | None
    capacity: int | None
    allocatable: int | None
    free: int | None
    proven: int | None  # GPUs on which a pod computed, or that it listed; None without a pod
    asked: int | None  # GPUs that the pod got
    verdict: str  # ok, busy, or the codes
    resources: Mapping[str, object]  # capacity and allocatable of all that are GPUs or parts
    findings: list[dict[str, str]]

    @property
    def is_ok(self) -> bool:
        return self.verdict in ("ok", "busy")


def judge(facts: Facts, smoke: Mapping[str, SmokeRow]) -> list[Verdict]:
    """Return the verdict on each node, in the order of their names."""
    return [_judge_node(name, facts, smoke.get(name)) for name in sorted(facts.rows)]


def _judge_node(name: str, facts: Facts, smoke: SmokeRow | None) -> Verdict:
    row, expected = facts.rows[name], facts.expected.get(name)
    found = list(_findings(name, row, expected, smoke))
    free = facts.free.get(name)
    status = facts.nodes.get(name)
    is_busy = smoke is not None and smoke["state"] == "busy" and bool(smoke["holders"])
    codes = dict.fromkeys(one["code"] for one in found if not is_sound([one]))
    return Verdict(
        node=name,
        product=status.labels.get(PRODUCT, "") if status else "",
        ready=row["ready"],
        expected=expected,
        capacity=row["capacity"],
        allocatable=row["allocatable"],
        free=free.gpus if free else None,
        proven=None if smoke is None or is_busy else len(proven(smoke)),
        asked=None if smoke is None or is_busy else smoke["gpus"],
        verdict=" ".join(codes) or ("busy" if is_busy else "ok"),
        resources=row.get("resources") or {},
        findings=found,
    )


def _findings(
    name: str, row: ClusterRow, expected: int | None, smoke: SmokeRow | None
) -> Iterator[dict[str, str]]:
    if expected is None and row["state"] != "missing":
        found = list(_judge_amounts(name, row))
    else:
        found = list(judge_cluster(name, name, row, expected))
    yield from found
    for one in row.get("surroundings", ()):
        yield finding(one["code"], name, **one["evidence"])
    if smoke is not None:
        yield from _judge_smoke(name, row, expected, smoke)
        if not found and not smoke.get("shared"):
            yield from judge_loss(name, row["allocatable"], smoke)


def _judge_amounts(name: str, row: ClusterRow) -> Iterator[dict[str, str]]:
    """Judge a node of which nothing shows how many GPUs it must have.

    What its capacity has must be allocatable. A node without anything was named by the user.
    """
    found = row.get("resources") or {}
    if not row["ready"]:
        yield finding("NODE_NOT_READY", name, node=name, error=row["readiness"])
    elif not found:
        evidence = "; neither its capacity nor its labels show GPUs"
        yield finding(
            "GPU_RESOURCES_DIFFER", name, expected="GPUs", found="none", evidence=evidence
        )
    elif any(one["capacity"] != one["allocatable"] for one in found.values()):
        has = ", ".join(f"{one['allocatable']} allocatable {key}" for key, one in found.items())
        capacity = {key: one["capacity"] for key, one in found.items()}
        yield finding(
            "GPU_RESOURCES_DIFFER",
            name,
            expected=sharing.describe(capacity, {}, 0),
            found=has,
            evidence="",
        )


def _judge_smoke(
    name: str, row: ClusterRow, expected: int | None, smoke: SmokeRow
) -> Iterator[dict[str, str]]:
    cause, error = smoke.get("cause"), quote(smoke["message"])
    if smoke["state"] == "busy" and smoke["holders"]:
        yield finding("SMOKE_NOT_RUN", name, evidence=smoke["message"])
    elif smoke["state"] == "unknown":
        yield finding("SMOKE_UNKNOWN", name, error=error)
    elif cause is not None:
        evidence = {"driver": "of the node", "gpus": "not known", **cause["evidence"]}
        yield finding(cause["code"], name, **evidence)
    elif smoke["reason"] in NO_IMAGE:
        yield finding("SMOKE_IMAGE_UNAVAILABLE", name, error=error, setting="--image")
    elif smoke["state"] != "ok":
        failed = list(_of_gpus(name, smoke))
        yield from failed
        if not failed or _has_unknown_error(smoke):
            events = "; ".join([smoke["message"], *smoke["events"][-1:]])
            yield finding("SMOKE_FAILED", name, asked=smoke["gpus"], error=quote(events))
    elif smoke.get("shared"):
        yield from _judge_share(name, row, expected, smoke)
    elif smoke["holders"]:
        holders = ", ".join(smoke["holders"])
        seen = len(proven(smoke))
        yield finding("SMOKE_PARTIAL", name, seen=seen, busy="the others", holders=holders)
    if smoke.get("left_behind"):
        yield finding(
            "SMOKE_POD_LEFT",
            name,
            name=smoke["pod"],
            namespace=smoke["namespace"],
            error=quote(smoke["left_behind"]),
        )


def _judge_share(
    name: str, row: ClusterRow, expected: int | None, smoke: SmokeRow
) -> Iterator[dict[str, str]]:
    """Yield a notice about the GPUs or parts of GPUs of which the pod got none."""
    wanted, resource = row.get("wanted"), proof(row).resource
    source = wanted["source"] if wanted else "nothing shows how"
    is_whole = resource.startswith(GPU)
    amount = expected if is_whole else (row.get("resources") or {})[resource]["capacity"]
    if wanted and wanted["mps"]:
        yield finding("COMPUTE_NOT_RUN", name, source=source)
    elif amount is None or amount > 1:
        seen = ", ".join(smoke["uuids"])
        words = {"seen": seen, "others": "the others", "resource": resource, "source": source}
        yield finding("SMOKE_SHARED", name, **words)


def _has_unknown_error(smoke: SmokeRow) -> bool:
    errors = [one["error"] for one in smoke.get("results", ()) if not one["ok"]]
    return any(
        cuda_errors.WRONG_RESULT not in one and cuda_errors.recognise(one) is None for one in errors
    )


def _of_gpus(name: str, smoke: SmokeRow) -> Iterator[dict[str, str]]:
    """Yield what CUDA says about single GPUs."""
    errors: dict[str, list[str]] = {}
    for one in smoke.get("results", ()):
        if not one["ok"]:
            errors.setdefault(one["error"], []).append(one["uuid"])
    for text, uuids in errors.items():
        gpus = ", ".join(uuids)
        known = cuda_errors.recognise(text)
        if cuda_errors.WRONG_RESULT in text:
            yield finding("COMPUTE_WRONG", name, gpus=gpus, error=quote(text))
        elif known is not None and known.fault != cuda_errors.IMAGE:
            yield finding(
                "COMPUTE_FAILED",
                name,
                gpus=gpus,
                error=quote(text),
                number=f" (CUDA error {known.number})",
                cause=known.cause,
                remedy=known.remedy,
            )
        elif known is not None:
            image = smoke.get("image", "")
            yield finding("COMPUTE_IMAGE_UNFIT", name, image=image, error=quote(text))
