# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict on each node of a fleet, by the same functions as the playbook metal.gpu.verify."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.verdict.cluster import CLUSTER
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import Verdict
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import name_clashes
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import fleet
from metal_gpu.cluster import capacity
from metal_gpu.nodes import Node, failed


def judge(
    nodes: Iterable[Node],
    kubeconfig: str | None,
    context: str | None,
    wait_s: int,
    *,
    order: Sequence[str],
) -> dict[str, Verdict]:
    """Return the verdicts by name of the host, in the given order."""
    hosts = {node.name: _host(node) for node in nodes}
    clashes = name_clashes(
        {
            name: host.planned["node"]["kubelet"]["node_name"]
            for name, host in hosts.items()
            if host.planned["node"] and host.planned["node"]["kubelet"]["node_name"]
        }
    )
    for one in clashes:
        host = hosts[one["host"]]
        hosts[one["host"]] = host._replace(findings=[*host.findings, one])
    questions = [asked for host in hosts.values() if (asked := fleet.ask(host))]
    named = [one for one in questions if one["node"]]
    answer = capacity.ask(named, kubeconfig, context, wait_s)
    answers = fleet.Answers(answer.rows, {}, answer.unanswered, (CLUSTER,))
    return {
        name: cast(Verdict, fleet.judge(hosts[name], answers, None, drift=True)) for name in order
    }


def _host(node: Node) -> fleet.Host:
    """Return a node as the verdicts know it, as if metal.gpu.plan had observed it.

    What a broken machine answers can have a form that nobody expected. The others go on.
    """
    try:
        plan = node.plan()
    except Exception as error:
        node = failed(node.host, error)
        plan = node.plan()
    planned = {
        "node": node.observed,
        "declared": node.stated["gpu_count"],
        "expected": node.stated["gpu_expected"],
        "refusals": list(plan.refusals),
        "plans": dict(plan.roles),
    }
    return fleet.Host(node.name, planned, [])
