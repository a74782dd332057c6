# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read what a Node object says about one resource, and judge it. No I/O.

Source: https://kubernetes.io/docs/reference/node/node-status/
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.quantity import parse_quantity, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NodeStatus(NamedTuple):
    """What is kept of a Node object, which can be 50 KB of JSON."""

    capacity: Decimal | None  # None where the node does not know the resource
    allocatable: Decimal | None
    troubles: tuple[str, ...]  # conditions that are not as they should be, as text
    labels: Mapping[str, str]


class Judgement(NamedTuple):
    """Whether a node is as expected."""

    state: str  # "ok", "missing" or "differs"
    message: str  # what is missing; empty when nothing is


def parse_node(node: Mapping[str, Any], resource: str) -> NodeStatus:
    """Reduce a Node object to what matters for one resource. Raises QuantityInvalid."""
    status = node.get("status", {})

    def amount(field: str) -> Decimal | None:
        value = status.get(field, {}).get(resource)
        return None if value is None else parse_quantity(value)

    return NodeStatus(
        capacity=amount("capacity"),
        allocatable=amount("allocatable"),
        troubles=tuple(_troubles(status.get("conditions", ()))),
        labels=node["metadata"].get("labels", {}),
    )


def judge(node: NodeStatus | None, expected: Decimal | None, resource: str) -> Judgement:
    """Compare a node with the expected amount; None expects only that the node exists."""
    if node is None:
        return Judgement("missing", "the cluster has no such node")
    capacity, allocatable = node.capacity or Decimal(0), node.allocatable or Decimal(0)
    if expected is None or capacity == allocatable == expected:
        return Judgement("ok", "")
    if node.capacity is None:
        return Judgement(
            "differs",
            f"expected {plain(expected)}, but the node does not know {resource}: "
            "no device plugin has registered with its kubelet",
        )
    message = (
        f"expected {plain(expected)}, capacity is {plain(capacity)}, "
        f"allocatable is {plain(allocatable)}"
    )
    if allocatable < capacity:
        message += f": {plain(capacity - allocatable)} not healthy"
    return Judgement("differs", message)


def _troubles(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe each condition that differs from a healthy node's: Ready true, all others false."""
    return [
        f"condition {condition['type']} is {condition['status']}"
        + "".join(f": {condition[key]}" for key in ("reason", "message") if condition.get(key))
        for condition in conditions
        if condition["status"] != ("True" if condition["type"] == "Ready" else "False")
    ]
