# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods block the removal of a node's GPUs from the cluster?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan, PlanResult, Step

DRAIN = Step("drain", "Evict the pods that hold GPUs")
RELEASE = Step("release", "Uncordon the node")

STEPS = (DRAIN, RELEASE)


class Holder(TypedDict):
    """A pod that holds GPUs."""

    name: str
    gpus: int
    stays: str  # why it cannot be evicted


class Row(TypedDict):
    """A row of metal.gpu.gpu_drain, about one node."""

    pods: list[Holder]
    cordoned: bool


def plan(row: Row, desired: Mapping[str, str]) -> PlanResult:
    """Plan the drain of a node, from its row of metal.gpu.gpu_drain. Desired: host."""
    plan = Plan[NoData](desired["host"], {})
    plan.step(DRAIN, ", ".join(pod["name"] for pod in row["pods"]))
    if plan.steps or row["cordoned"]:
        plan.step(RELEASE, "the drain cordons it")
    return plan.result()


def refuse_holders(host: str, pods: Sequence[Holder], *, drain: bool) -> list[dict[str, str]]:
    """Return the refusals for the pods that hold GPUs of a host."""
    if pods and not drain:
        holders = [f"{pod['name']} ({pod['gpus']})" for pod in pods]
        return [finding("GPUS_IN_USE", host, pods=", ".join(holders))]
    staying = [f"{pod['name']} ({pod['stays']})" for pod in pods if pod["stays"]]
    return [finding("GPU_PODS_STAY", host, pods=", ".join(staying))] if staying else []
