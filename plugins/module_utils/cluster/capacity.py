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
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
from ansible_collections.metal.gpu.plugins.module_utils.cluster.expectations import Expectations
from ansible_collections.metal.gpu.plugins.module_utils.cluster.gpu_claims import is_gpu
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
    Machines = Mapping[str, Mapping[str, Optional[str]]]

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
    split: Mapping[str, int | None] | None = None,
    machines: Machines | None = None,
) -> dict[str, Any]:
    """Return the module's result, with "failed" if a node differs; raise KubeError.

    With `give_up`, nobody waits for a node whose cause does not end by itself. With `surroundings`,
    it is also read what is wrong about the nodes whatever their amounts are. With `by_hand`, the
    amounts are numbers of GPUs, and what nodes must have follows from how these are shared; the
    mapping has what the admin says about single nodes, by resource. `split` are numbers of GPUs in
    MIG mode. A Node that is another machine than `machines` has for its name is no such node.

    If the API server stops answering later, the rows are its last answers, and "error" says why.
    """
    timer = Timer(wait_timeout, clock)
    expectations = None if by_hand is None else Expectations(client, by_hand, split, clock)
    amounts = {**unawaited, **expected}
    wait = _Wait(client, expected, amounts, resource, timer, expectations, ready=ready)
    wait.machines = machines or {}
    error = ""
    try:
        wait.follow(give_up=give_up)
    except KubeError as problem:
        if not wait.observed:
            raise
        error = str(problem)
    evidence = {} if error else wait.explain()
    around = _look_around(client, {} if error or not surroundings else wait.observed)
    evidence |= {name: found for name, (_seconds, found) in wait.given_up.items()}
    nodes = {
        name: {**wait.describe(name, evidence.get(name)), "surroundings": around.get(name, [])}
        for name in amounts
    }
    result: dict[str, Any] = {"changed": False, "nodes": nodes, "error": error}
    differing = [name for name in expected if name not in wait.reached]
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


class _Wait:
    """The nodes of one run, until they are as expected."""

    def __init__(
        self,
        client: Client,
        expected: Amounts,
        amounts: Amounts,
        resource: str,
        timer: Timer,
        expectations: Expectations | None,
        *,
        ready: bool,
    ) -> None:
        self.client = client
        self.expected = expected  # of the nodes to wait for
        self.amounts = amounts  # of all nodes
        self.resource = resource
        self.timer = timer
        self.expectations = expectations
        self.ready = ready
        self.machines: Machines = {}
        self.others: dict[str, str] = {}  # the nodes that are other machines, and which
        self.observed: dict[str, NodeStatus] = {}
        self.reached: dict[str, float] = {}  # after how many seconds a node was as expected
        # After how many seconds nobody waited for a node any longer, and why.
        self.given_up: dict[str, tuple[float, Evidence]] = {}
        # The final cause of a node, after how many seconds it was first seen, and when an event had
        # told it then.
        self.standing: dict[str, tuple[Cause | None, float, str]] = {}

    def follow(self, *, give_up: bool) -> None:
        """Follow the nodes until each is as expected or given up, or time is up."""
        next_look_s = FIRST_LOOK_S
        for changed in self.client.follow(
            "nodes",
            self.observed,
            self._keep,
            self.timer,
            query=only("metadata.name", self.amounts),
            round_s=FIRST_LOOK_S if give_up else WATCH_S,
        ):
            for name in self.expected.keys() & changed:
                self.given_up.pop(name, None)
                if self._judge(name).state == "ok":
                    self.reached.setdefault(name, self.timer.elapsed_s())
                else:
                    self.reached.pop(name, None)
            if give_up and next_look_s <= self.timer.elapsed_s() < self.timer.limit_s:
                self._give_up()
                next_look_s = self.timer.elapsed_s() + NEXT_LOOK_S
            done = self.reached.keys() | self.given_up.keys() | self.others.keys()
            if self.expected.keys() <= done:
                return

    def _give_up(self) -> None:
        done = self.reached.keys() | self.given_up.keys()
        short = {
            name: self.observed[name]
            for name in self.expected
            if name in self.observed and name not in done and not self._has_own_names(name)
        }
        for name, found in plugin_evidence.read(self.client, short, self.resource).items():
            if self._is_settled(name, found):
                self.given_up[name] = (self.timer.elapsed_s(), found)

    def _is_settled(self, name: str, found: Evidence) -> bool:
        """Tell whether a final cause has been there long enough.

        An event may be an hour old. It counts when it was observed again since the first look.
        """
        now_s = self.timer.elapsed_s()
        cause, since_s, told_at = self.standing.get(name, (None, 0.0, ""))
        if cause is None or not found.cause or cause.code != found.cause.code:
            cause, since_s, told_at = found.cause, now_s, found.told_at
        self.standing[name] = (cause if found.is_final else None, since_s, told_at)
        is_told = not found.told_at or found.told_at != told_at
        return found.is_final and is_told and now_s - since_s >= found.patience_s

    def explain(self) -> dict[str, Evidence]:
        """Return why nodes differ. What is known of those that were given up is left out."""
        differing = {
            name: self.observed[name]
            for name in self.amounts
            if name in self.observed
            and name not in self.given_up
            and self._judge(name).state != "ok"
        }
        return plugin_evidence.read(self.client, differing, self.resource)

    def describe(self, name: str, evidence: Evidence | None) -> dict[str, Any]:
        """Return the row of a node."""
        wanted = self._want(name)
        seconds, _why = self.given_up.get(name, (self.timer.elapsed_s(), None))
        cause = evidence.cause if evidence and not self._has_own_names(name) else None
        unread = []
        if wanted and wanted.unread:
            unread.append(f"cannot read how the device plugin shares GPUs: {wanted.unread}")
        return {
            **_describe(self.observed.get(name), self.amounts[name], self._judge(name)),
            "wanted": wanted.as_row() if wanted else None,
            "seconds": round(self.reached.get(name, seconds), 1),
            "evidence": [*unread, *(evidence.texts if evidence else [])],
            "cause": cause.as_row() if cause else None,
            "another": self.others.get(name, ""),
        }

    def _has_own_names(self, name: str) -> bool:
        """Tell whether a device plugin that nobody here knows registers the GPUs of a node."""
        named = self.expectations.named(name) if self.expectations else ()
        return not all(map(is_gpu, named))

    def _want(self, name: str) -> Expected | None:
        node, amount = self.observed.get(name), self.amounts[name]
        if self.expectations is None or node is None or amount is None:
            return None
        return self.expectations.of_node(name, node, int(amount))

    def _judge(self, name: str) -> Judgement:
        node, wanted = self.observed.get(name), self._want(name)
        if node is not None and wanted is not None and wanted.source:
            return node_status.judge_expected(node, wanted, ready=self.ready)
        return node_status.judge(node, self.amounts[name], self.resource, ready=self.ready)

    def _keep(self, node: dict[str, Any]) -> NodeStatus | None:
        is_named = node["metadata"]["name"] in self.amounts
        if not is_named:
            return None
        name = node["metadata"]["name"]
        self.others.pop(name, None)
        other = node_status.another(node, self.machines.get(name))
        if other:
            self.others[name] = other
            return None
        named = self.expectations.named(name) if self.expectations else ()
        return node_status.parse_node(node, self.resource, named)


def _look_around(
    client: Client, observed: Mapping[str, NodeStatus]
) -> dict[str, list[dict[str, Any]]]:
    """Return what is wrong about nodes whatever their amounts are. What cannot be read is none."""
    found = {
        name: [Cause("NODE_CORDONED", {"by": node.cordon, "node": name}).as_row()]
        for name, node in observed.items()
        if node.cordon
    }
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
