# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read what a Node object says about one resource, and judge it.

Source: https://kubernetes.io/docs/reference/node/node-status/
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import node_drain, sharing
from ansible_collections.metal.gpu.plugins.module_utils.cluster.gpu_claims import is_gpu
from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import (
    QuantityInvalid,
    parse_quantity,
    plain,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import (
    Taint,
    parse_taints,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.sharing import Expected

_DOMAIN = "metal.gpu/"
_READY = "Ready"
_ODD = 40  # most characters of a value that is no quantity
_STATUSES = {"True": True, "False": False}
# A controller removes them a moment after the node becomes ready. Until then no pod is scheduled.
_NOT_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_UNREPORTED = {"type": _READY, "status": "Unknown", "message": "the kubelet has not reported yet"}


class NodeStatus(NamedTuple):
    """The needed fields of a Node object, which can be 50 KB of JSON."""

    capacity: Decimal | None  # None if the node does not have the resource
    allocatable: Decimal | None
    ready: bool | None  # None: unknown, for example because the kubelet stopped reporting
    troubles: Mapping[str, str]  # descriptions of unhealthy conditions, keyed by type
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    annotations: Mapping[str, str] = {}  # those that this collection sets
    # Capacity and allocatable of each resource that is GPUs or parts of them, or that was named.
    resources: Mapping[str, tuple[Decimal, Decimal]] = {}
    cordon: str = ""  # who has cordoned it, and since when

    @property
    def readiness(self) -> str:
        """Why the node is not ready; empty if it is."""
        return self.troubles.get(_READY, "")


class Judgement(NamedTuple):
    """Whether a node is as expected."""

    state: str  # "ok", "missing" or "differs"
    message: str  # what differs; empty if nothing does


def parse_node(node: Mapping[str, Any], resource: str, others: Collection[str] = ()) -> NodeStatus:
    """Reduce a Node object to the needed fields for one resource.

    `others` are resources that count as GPUs on this node, whatever their names are.
    An amount that is no quantity is none, and one of the troubles.
    """
    status = section(node, "status")
    odd: dict[str, str] = {}

    def amount(field: str, name: str) -> Decimal | None:
        value = section(status, field).get(name)
        try:
            return None if value is None else parse_quantity(value)
        except QuantityInvalid:
            odd[field] = f"its {field} of {name} is {str(value)[:_ODD]!r}, which is no quantity"
            return None

    names = [resource, *filter(is_gpu, section(status, "capacity")), *others]
    amounts = {name: (amount("capacity", name), amount("allocatable", name)) for name in names}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    conditions.setdefault(_READY, _UNREPORTED)
    ready, troubles = _STATUSES.get(conditions[_READY]["status"]), {**_troubles(conditions), **odd}
    taints = parse_taints(node)
    keys = [taint.key for taint in taints]
    left = next((key for key in _NOT_READY_TAINTS if key in keys), None)
    if ready and left:
        ready, troubles[_READY] = False, f"the node still has the taint {left}"
    return NodeStatus(
        capacity=amounts[resource][0],
        allocatable=amounts[resource][1],
        ready=ready,
        troubles=troubles,
        labels=section(node, "metadata", "labels"),
        taints=taints,
        annotations={
            key: value
            for key, value in section(node, "metadata", "annotations").items()
            if key.startswith(_DOMAIN)
        },
        # A kubelet keeps a resource that it no longer has, with 0.
        resources={
            name: (capacity or Decimal(0), allocatable or Decimal(0))
            for name, (capacity, allocatable) in amounts.items()
            if (is_gpu(name) or name in others) and (capacity or allocatable)
        },
        cordon=node_drain.describe_cordon(node),
    )


def another(node: Mapping[str, Any], machine: Mapping[str, str | None] | None) -> str:
    """Return what a Node object says about its machine if that is not this one; else empty.

    A kubelet reports the boot id of a new boot a moment after it started: the machine id stays. It
    has the same kernel, and so the same boot id, in a container as well.
    """
    info = section(node, "status", "nodeInfo")
    boot, identity = info.get("bootID"), info.get("machineID")
    if not machine or not boot or boot == machine.get("boot_id"):
        return ""
    if identity and identity == machine.get("machine_id"):
        return ""
    return f"boot id {boot}, machine id {identity or 'none'}"


def judge_expected(node: NodeStatus, expected: Expected, *, ready: bool = False) -> Judgement:
    """Compare a node whose GPUs are shared with what it must have."""
    found = {name: (int(one), int(other)) for name, (one, other) in node.resources.items()}
    if sharing.is_met(expected, found):
        is_fit = node.ready or not ready
        return Judgement("ok", "") if is_fit else Judgement("differs", "the node is not ready")
    texts = [
        f"{name} is {one}, of which {other} allocatable" for name, (one, other) in found.items()
    ]
    wish = sharing.describe(expected.resources, expected.known, expected.least)
    why = f" ({expected.source})" if expected.source else ""
    return Judgement("differs", f"expected {wish}{why}, but {'; '.join(texts) or 'there is none'}")


def judge(
    node: NodeStatus | None, expected: Decimal | None, resource: str, *, ready: bool = False
) -> Judgement:
    """Compare a node with the expected amount; None expects only that the node exists.

    With `ready`, a node with an expected amount must be ready.
    """
    if node is None:
        return Judgement("missing", "the cluster has no node of this name")
    capacity, allocatable = node.capacity or Decimal(0), node.allocatable or Decimal(0)
    if expected is None:
        return Judgement("ok", "")
    if capacity == allocatable == expected:
        is_fit = node.ready or not ready
        return Judgement("ok", "") if is_fit else Judgement("differs", "the node is not ready")
    if node.capacity is None:
        return Judgement(
            "differs",
            f"expected {plain(expected)}, but the node's capacity has no {resource}: "
            "no device plugin has registered it with the kubelet",
        )
    message = (
        f"expected {plain(expected)}, capacity is {plain(capacity)}, "
        f"allocatable is {plain(allocatable)}"
    )
    if allocatable < capacity:
        message += f": {plain(capacity - allocatable)} unhealthy"
    return Judgement("differs", message)


def _troubles(conditions: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Describe each condition that differs from a healthy node: Ready true, all others false."""
    return {
        name: f"condition {name} is {condition['status']}"
        + "".join(f": {condition[key]}" for key in ("reason", "message") if condition.get(key))
        for name, condition in conditions.items()
        if condition["status"] != ("True" if name == _READY else "False")
    }
