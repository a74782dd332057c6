# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Say findings, steps and verdicts in lines that a person reads. No function does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.reconcile import LAYERS
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_preflight import name_clashes

HEADINGS = ("node", "declared", "PCI", "NVML", "capacity", "allocatable", "smoke", "verdict")


def explain(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines for findings and for steps of a plan."""
    lines = []
    for entry in entries:
        if "code" in entry:
            lines += [
                f"{entry['code']} {entry['message']}",
                f"  What to do: {entry['remedy']} ({entry['reference']})",
            ]
        else:
            lines.append(f"{entry['name']} ({entry['reason']})")
    return lines


def refusals(
    reports: Mapping[str, Mapping[str, Any]], cluster: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return every refusal of every node once.

    `reports` has refusals, node_name (None where unknown) and whether the kubelet runs of each
    inventory host, `cluster` what metal.gpu.gpu_capacity said about the nodes. A kubelet that does
    not run, for want of an engine or because of its flags, may join once it does.
    """
    found: list[dict[str, Any]] = []
    if "nodes" not in cluster:
        found.append(finding("CLUSTER_UNUSABLE", "cluster", error=cluster.get("msg", "")))
    for host, report in reports.items():
        found += report["refusals"]
        row = cluster.get("nodes", {}).get(report["node_name"], {})
        if row.get("state") == "missing" and report["kubelet_running"]:
            found.append(finding("NODE_NOT_IN_CLUSTER", host, node=report["node_name"]))
    named = {host: report["node_name"] for host, report in reports.items() if report["node_name"]}
    found += name_clashes(named)
    # Two roles may refuse a node for one reason.
    return [one for position, one in enumerate(found) if one not in found[:position]]


def table(verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the verdicts as aligned lines, a heading first."""
    rows: list[Sequence[str]] = [HEADINGS]
    for verdict in verdicts:
        numbers = [_cell(verdict["layers"][layer]) for layer in LAYERS]
        rows.append([verdict["host"], *numbers, _word(verdict)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return [
        "  ".join(
            cell.ljust(width) if column in (0, len(HEADINGS) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def _word(verdict: Mapping[str, Any]) -> str:
    codes = dict.fromkeys(found["code"] for found in verdict["findings"])
    return "ok" if verdict["ok"] else " ".join(codes)
