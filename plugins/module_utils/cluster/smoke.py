# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Run a CUDA program on GPUs of many nodes, in pods, and report each node."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    smoke_causes,
    smoke_cleanup,
    smoke_evidence,
    smoke_output,
    smoke_run,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import Request
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_run import Outcome
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import Template


def run(
    client: Client,
    counts: Mapping[str, int | None],
    template: Template,
    *,
    wait_for_gpus: bool,
    check_mode: bool,
    shared: Mapping[str, str] | None = None,
    renamed: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Return the module's result, with "failed" if a node failed; raise KubeError."""
    timer = Timer(template.limit_s, clock)
    swept, left = smoke_cleanup.sweep(
        client, template.namespace, check_mode=check_mode, clock=clock
    )
    desired, outcomes = choose(
        client, counts, template.resource, wait_for_gpus, timer, shared or {}, renamed or {}
    )
    unfit = [one for one in desired if not template.image_of(one.node)]
    desired = [one for one in desired if one not in unfit]
    message = "no known image of a CUDA program fits this node"
    outcomes += [
        Outcome(request, "", Verdict("failed", "", message), 0.0, cause=smoke_causes.no_image())
        for request in unfit
    ]
    if check_mode:
        outcomes += [Outcome(request, "", Verdict("planned", "", ""), 0.0) for request in desired]
    elif desired:
        smoke_cleanup.refuse_leavings(client, template.namespace)
        outcomes += smoke_run.prove(client, template, desired, timer)

    by_node = {outcome.request.node: _describe(outcome, template) for outcome in outcomes}
    nodes = {name: by_node[name] for name in counts}
    left.update({row["pod"]: row["left_behind"] for row in nodes.values() if row["left_behind"]})
    result: dict[str, Any] = {
        "changed": bool(swept),
        "nodes": nodes,
        "swept": swept,
        "left_behind": sorted(left),
    }
    failed = {name: row for name, row in nodes.items() if row["state"] in ("failed", "unknown")}
    if failed:
        rows = [f"{name}: {_explain(node)}" for name, node in failed.items()]
        head = f"{len(failed)} of {len(nodes)} nodes failed the smoke test:"
        result.update(failed=True, msg="\n".join([head, *rows]))
    return result


def choose(
    client: Client,
    counts: Mapping[str, int | None],
    resource: str,
    wait_for_gpus: bool,
    timer: Timer,
    shared: Mapping[str, str],
    renamed: Mapping[str, str],
) -> tuple[list[Request], list[Outcome]]:
    """Return the requests, and the outcomes of nodes without anything to test."""
    others = {**renamed, **shared}
    observed = smoke_evidence.read_nodes(client, counts, resource, timer, {*renamed.values()})
    offers = {name: _offered(node, others.get(name)) for name, node in observed.items()}
    free: dict[str, smoke_evidence.Free] = {}
    for one in dict.fromkeys([resource, *others.values()]):
        allocatable = {
            name: offers[name]
            for name, count in counts.items()
            if count is None and name in observed and others.get(name, resource) == one
        }
        if allocatable:
            free |= smoke_evidence.read_free_gpus(client, allocatable, one, timer)

    desired, outcomes = [], []
    for name, count in counts.items():
        shortage = "wait" if wait_for_gpus else "failed" if count else "busy"
        rest = free.get(name, smoke_evidence.NOTHING)
        offered = int(offers[name]) if name in observed else None
        gpus, wanted, is_share = count or rest.gpus, others.get(name, ""), name in shared
        if is_share:  # a plugin may refuse a second one
            gpus = min(gpus, 1)
        request = Request(
            name, gpus, shortage, rest.holders, offered, rest.claims, wanted, is_share
        )
        cause = None
        if name not in observed:
            verdict = Verdict("failed", "", "the cluster has no node of this name")
            cause = Cause("NODE_NOT_IN_CLUSTER", {"node": name})
        elif request.gpus:
            desired.append(request)
            continue
        elif offers[name] < 1:
            verdict = Verdict("failed", "", f"the node has no allocatable {wanted or resource}")
            cause = smoke_causes.no_allocatable(wanted or resource, 1, int(offers[name]))
        else:
            holders = ", ".join(rest.holders)
            amount = f"{int(offers[name])} {wanted or resource}"
            message = f"other pods claim all {amount}: {holders}"
            verdict = Verdict("busy", "", message)
        outcomes.append(Outcome(request, "", verdict, timer.elapsed_s(), cause=cause))
    return desired, outcomes


def _offered(node: NodeStatus, other: str | None) -> Decimal:
    """Return how much of its resource a node can allocate."""
    if other:
        return node.resources.get(other, (Decimal(0), Decimal(0)))[1]
    return node.allocatable or Decimal(0)


def _describe_exchange(outcome: Outcome, template: Template) -> dict[str, Any] | None:
    if template.level_of(outcome.request.node) != smoke_output.EXCHANGE:
        return None
    found = outcome.verdict.exchanged
    if found is None and outcome.request.gpus == 1 and outcome.verdict.state == "ok":
        found = smoke_output.Exchanged("nothing", "the pod has one GPU")
    row = (found or smoke_output.Exchanged("not_run"))._asdict()
    return {**row, "alone": list(row["alone"])}


def _describe(outcome: Outcome, template: Template) -> dict[str, Any]:
    verdict = outcome.verdict
    return {
        "state": verdict.state,
        "gpus": outcome.request.gpus,
        "allocatable": outcome.request.allocatable,
        "level": template.level_of(outcome.request.node),
        "uuids": list(verdict.uuids),
        "results": [one._asdict() for one in verdict.results],
        "exchange": _describe_exchange(outcome, template),
        "image": template.image_of(outcome.request.node),
        "holders": list(outcome.request.holders),
        "claims": dict(outcome.request.claims),
        "shared": outcome.request.is_share,
        "pod": outcome.pod,
        "namespace": template.namespace,
        "phase": verdict.phase,
        "message": verdict.message,
        "reason": verdict.reason,
        "cause": outcome.cause.as_row() if outcome.cause else None,
        "events": list(outcome.events),
        "notes": list(outcome.notes),
        "left_behind": outcome.left_behind,
        "seconds": round(outcome.seconds, 1),
    }


def _explain(node: Mapping[str, Any]) -> str:
    """Return message and events of a node, without events that repeat the message."""
    message: str = node["message"]
    news = [text for text in node["events"] if text.partition(": ")[2] not in message]
    left = [f"pod {node['pod']} may still exist: {node['left_behind']}"]
    return "; ".join([message, *news, *(left if node["left_behind"] else ())])
