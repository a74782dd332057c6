# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Wait until nodes have the expected amount of a resource, and report them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Optional

from ansible_collections.metal.gpu.plugins.module_utils.cluster import node_status, plugin_evidence
from ansible_collections.metal.gpu.plugins.module_utils.cluster.expectations import Expectations
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import only
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from decimal import Decimal

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import (
        Judgement,
        NodeStatus,
    )
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.sharing import Expected

    Amounts = Mapping[str, Optional[Decimal]]


def run(
    client: Client,
    expected: Amounts,
    resource: str,
    wait_timeout: int,
    unawaited: Amounts,
    ready: bool = False,
    clock: Callable[[], float] = time.monotonic,
    *,
    by_hand: Mapping[str, Mapping[str, int]] | None = None,
) -> dict[str, Any]:
    """Return the module's result, with "failed" if a node differs; raise KubeError.

    With `by_hand`, the amounts are numbers of GPUs, and what nodes must have follows from how these
    are shared; the mapping has what the admin says about single nodes, by resource.
    If the API server stops answering later, the rows are its last answers, and "error" says why.
    """
    timer = Timer(wait_timeout, clock)
    amounts = {**unawaited, **expected}
    observed: dict[str, NodeStatus] = {}
    reached: dict[str, float] = {}  # after how many seconds a node was as expected
    expectations = None if by_hand is None else Expectations(client, by_hand)

    def want(name: str) -> Expected | None:
        node, amount = observed.get(name), amounts[name]
        if expectations is None or node is None or amount is None:
            return None
        return expectations.of_node(name, node, int(amount))

    def judge(name: str) -> Judgement:
        wanted = want(name)
        if wanted is not None and wanted.source:
            return node_status.judge_expected(observed[name], wanted, ready=ready)
        return node_status.judge(observed.get(name), amounts[name], resource, ready=ready)

    def keep(node: dict[str, Any]) -> NodeStatus | None:
        is_named = node["metadata"]["name"] in amounts
        return node_status.parse_node(node, resource) if is_named else None

    error = ""
    try:
        query = only("metadata.name", amounts)
        for changed in client.follow("nodes", observed, keep, timer, query=query):
            for name in expected.keys() & changed:
                if judge(name).state == "ok":
                    reached.setdefault(name, timer.elapsed_s())
                else:
                    reached.pop(name, None)
            if len(reached) == len(expected):
                break
    except KubeError as problem:
        if not observed:
            raise
        error = str(problem)
    differing = [name for name in expected if name not in reached]
    to_explain = {
        name: observed[name] for name in amounts if name in observed and judge(name).state != "ok"
    }
    evidence = plugin_evidence.read(client, {} if error else to_explain, resource)
    nodes: dict[str, dict[str, Any]] = {}
    for name, amount in amounts.items():
        explained = evidence.get(name)
        cause = explained.cause if explained else None
        wanted = want(name)
        nodes[name] = {
            **_describe(observed.get(name), amount, judge(name)),
            "wanted": wanted.as_row() if wanted else None,
            "seconds": round(reached.get(name, timer.elapsed_s()), 1),
            "evidence": explained.texts if explained else [],
            "cause": cause.as_row() if cause else None,
        }
    result: dict[str, Any] = {"changed": False, "nodes": nodes, "error": error}
    if error:
        result.update(failed=True, msg=error)
    elif differing:
        head = (
            f"{len(differing)} of {len(expected)} nodes do not have the expected {resource} "
            f"after {timer.elapsed_s():.0f} s:"
        )
        rows = [
            "; ".join([f"{name}: {nodes[name]['message']}", *nodes[name]["evidence"]])
            for name in differing
        ]
        result.update(failed=True, msg="\n".join([head, *rows]))
    return result


def _describe(
    node: NodeStatus | None, expected: Decimal | None, judgement: Judgement
) -> dict[str, Any]:
    def number(amount: Decimal | None) -> int | float | None:
        return None if amount is None else plain(amount)

    return {
        "state": judgement.state,
        "message": judgement.message,
        "capacity": number(node.capacity) if node else None,
        "allocatable": number(node.allocatable) if node else None,
        "expected": number(expected),
        "ready": node.ready if node else None,
        "readiness": node.readiness if node else "",
        "resources": {
            name: {"capacity": number(amounts[0]), "allocatable": number(amounts[1])}
            for name, amounts in (node.resources if node else {}).items()
        },
        "labels": dict(node.labels) if node else {},
        "annotations": dict(node.annotations) if node else {},
    }
