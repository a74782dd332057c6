# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Wait until nodes have the expected amount of a resource, and report them."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Optional

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    clocks,
    node_status,
    plugin_evidence,
    rivals,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.expectations import Expectations
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import (
    WATCH_S,
    only,
)
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
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.plugin_evidence import Evidence
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.sharing import Expected

    Amounts = Mapping[str, Optional[Decimal]]

# When evidence is read for the nodes that are still short, if they may be given up. A plugin that
# has just started registers its GPUs within a few seconds.
FIRST_LOOK_S = 5.0
NEXT_LOOK_S = 10.0


def run(
    client: Client,
    expected: Amounts,
    resource: str,
    wait_timeout: int,
    unawaited: Amounts,
    ready: bool = False,
    clock: Callable[[], float] = time.monotonic,
    *,
    give_up: bool = False,
    surroundings: bool = False,
    by_hand: Mapping[str, Mapping[str, int]] | None = None,
) -> dict[str, Any]:
    """Return the module's result, with "failed" if a node differs; raise KubeError.

    With `give_up`, nobody waits for a node whose cause does not end by itself. With `surroundings`,
    it is also read what is wrong about the nodes whatever their amounts are. With `by_hand`, the
    amounts are numbers of GPUs, and what nodes must have follows from how these are shared; the
    mapping has what the admin says about single nodes, by resource.

    If the API server stops answering later, the rows are its last answers, and "error" says why.
    """
    timer = Timer(wait_timeout, clock)
    amounts = {**unawaited, **expected}
    observed: dict[str, NodeStatus] = {}
    reached: dict[str, float] = {}  # after how many seconds a node was as expected
    given_up: dict[str, tuple[float, Evidence]] = {}  # after how many seconds, and why
    look_s = FIRST_LOOK_S
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
        round_s = FIRST_LOOK_S if give_up else WATCH_S
        for changed in client.follow("nodes", observed, keep, timer, query=query, round_s=round_s):
            for name in expected.keys() & changed:
                given_up.pop(name, None)
                if judge(name).state == "ok":
                    reached.setdefault(name, timer.elapsed_s())
                else:
                    reached.pop(name, None)
            if give_up and look_s <= timer.elapsed_s() < timer.limit_s:
                short = {
                    name: observed[name]
                    for name in expected
                    if name in observed and name not in reached and name not in given_up
                }
                for name, found in plugin_evidence.read(client, short, resource).items():
                    if found.is_final:
                        given_up[name] = (timer.elapsed_s(), found)
                look_s = timer.elapsed_s() + NEXT_LOOK_S
            if reached.keys() | given_up.keys() == expected.keys():
                break
    except KubeError as problem:
        if not observed:
            raise
        error = str(problem)
    differing = [name for name in expected if name not in reached]
    to_explain = {
        name: observed[name]
        for name in amounts
        if name in observed and name not in given_up and judge(name).state != "ok"
    }
    evidence = plugin_evidence.read(client, {} if error else to_explain, resource)
    around = _look_around(client, {} if error or not surroundings else observed)
    evidence |= {name: found for name, (_seconds, found) in given_up.items()}
    ended = {name: seconds for name, (seconds, _found) in given_up.items()}
    nodes: dict[str, dict[str, Any]] = {}
    for name, amount in amounts.items():
        explained = evidence.get(name)
        cause = explained.cause if explained else None
        wanted = want(name)
        nodes[name] = {
            **_describe(observed.get(name), amount, judge(name)),
            "wanted": wanted.as_row() if wanted else None,
            "seconds": round(reached.get(name, ended.get(name, timer.elapsed_s())), 1),
            "evidence": explained.texts if explained else [],
            "cause": cause.as_row() if cause else None,
            "surroundings": around.get(name, []),
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


def _look_around(
    client: Client, observed: Mapping[str, NodeStatus]
) -> dict[str, list[dict[str, Any]]]:
    """Return what is wrong about nodes whatever their amounts are. What cannot be read is none."""
    found: dict[str, list[dict[str, Any]]] = {}
    if not observed:
        return found

    def keep(item: dict[str, Any]) -> dict[str, Any] | None:
        return item if rivals.is_rival(item) else None

    def keep_lease(lease: dict[str, Any]) -> dict[str, Any] | None:
        return lease if lease["metadata"]["name"] in observed else None

    with contextlib.suppress(KubeError):
        daemonsets = list(client.snapshot("daemonsets", keep).values())
        for name, node in observed.items():
            cause = rivals.find(name, node, daemonsets)
            found.setdefault(name, []).extend([cause.as_row()] if cause else [])
    with contextlib.suppress(KubeError):
        leases = client.snapshot("leases", keep_lease, namespace="kube-node-lease")
        for name, node in observed.items():
            cause = clocks.find(node, leases.get(name), client.server_date)
            found.setdefault(name, []).extend([cause.as_row()] if cause else [])
    return found


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
