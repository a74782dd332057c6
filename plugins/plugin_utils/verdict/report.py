# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write findings, steps and verdicts as lines for people. No function does I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import (
    explain_error,
    no_answer,
)
from ansible_collections.metal.gpu.plugins.module_utils.findings import (
    CATALOGUE,
    DOCUMENT,
    NOTICE,
    STOP,
    finding,
)
from ansible_collections.metal.gpu.plugins.module_utils.readable import MOST, some
from ansible_collections.metal.gpu.plugins.module_utils.verdict.cluster import another
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import LAYERS
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.drain import (
    refuse_holders,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import name_clashes
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.results import cut_short
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.permissions import refuse_missing

_REMEDY = "  What to do: "
_LINE, _MORE = "\n", "\n    "  # a line of a message that is no other finding
_EXPLAINED = re.compile(
    rf"^(?P<code>[A-Z_]+) (?P<message>.*?)\n{_REMEDY}(?P<remedy>.*?) "
    rf"\((?P<reference>{DOCUMENT}#\w+)\)$",
    re.MULTILINE | re.DOTALL,
)

HEADINGS = (
    *("node", "GPU", "driver", "declared", "PCI", "NVML", "capacity", "allocatable", "smoke"),
    "verdict",
)
OK, BUSY, PLANNED = "ok", "busy", "planned"
_TEXTS = (0, 1, 2, len(HEADINGS) - 1)  # columns; the others are numbers


def explain(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the lines for findings and for steps of a plan."""
    lines = []
    for entry in entries:
        if "code" in entry:
            lines += [
                f"{entry['code']} {entry['message'].replace(_LINE, _MORE)}",
                f"{_REMEDY}{entry['remedy']} ({entry['reference']})",
            ]
        else:
            lines.append(f"{entry['name']} ({entry['reason']})".replace(_LINE, _MORE))
    return lines


def together(
    found: Iterable[Mapping[str, str]], *, but_few: bool = False
) -> list[Mapping[str, str]]:
    """Return the findings, with those that differ only in their host as one about all of them.

    Its remedy is that of the first host. `but_few` leaves findings about some hosts as they are:
    each then has a line with its code and its host.
    """
    alike: dict[tuple[str, str, str], dict[str, Mapping[str, str]]] = {}
    for one in found:
        host, text = one["host"], one["message"].removeprefix(f"{one['host']}: ")
        remedy = one["remedy"].replace(host, "")
        alike.setdefault((one["code"], text, remedy), {})[host] = one
    findings: list[Mapping[str, str]] = []
    for (code, text, _remedy), hosts in alike.items():
        if but_few and len(hosts) <= MOST:
            findings += hosts.values()
            continue
        first = next(iter(hosts.values()))
        message = f"{some(hosts)}: {text}"
        same = {name: first[name] for name in ("remedy", "reference")}
        findings.append({"code": code, "message": message, **same})
    return findings


def stopped(result: Mapping[str, Any], host: str, task: str) -> list[dict[str, str]]:
    """Return the findings for a host whose task failed, from the result of that task.

    If a role failed because of findings, its message contains them.
    """
    items = result.get("results")  # of a loop; dnf returns texts under this name
    if not isinstance(items, list) or not all(isinstance(one, Mapping) for one in items):
        items = []
    failed = [one for one in items if one.get("failed", True)]
    error = "; ".join(dict.fromkeys(_error(one) for one in failed or [result]))
    explained = [
        {
            **found.groupdict(),
            "message": found["message"].replace(_MORE, _LINE),
            "host": host,
            "severity": CATALOGUE[found["code"]].severity,
        }
        for found in _EXPLAINED.finditer(error)
        if found["code"] in CATALOGUE
    ]
    return explained or [explain_error(error, host, "RUN_STOPPED", task=task)]


def _error(result: Mapping[str, Any]) -> str:
    """Return the message of a task, with what its program printed."""
    if why := cut_short(result):
        return why
    texts = (_text(result.get(key)) for key in ("msg", "stderr", "module_stderr"))
    return ": ".join(text.strip().removeprefix("Task failed: ") for text in texts if text.strip())


def _text(value: Any) -> str:
    """Return a value as text. The fail module accepts any message, such as a list of lines."""
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    return "" if value is None else str(value)


def admission(
    reports: Mapping[str, Mapping[str, Any]],
    cluster: Mapping[str, Any],
    *,
    invalid: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    drain: bool = False,
    skip_refused: bool = False,
) -> dict[str, Any]:
    """Decide which nodes may go on, and which of these have work.

    `reports` has, for each inventory host, its refusals, its notices, its node_name (empty if
    unknown), whether the kubelet runs, and the roles that have work. `cluster` has the rows of the
    nodes from metal.gpu.gpu_capacity (in a teardown from metal.gpu.gpu_drain) or the module's
    error, the missing permissions, the refusals of the cluster, and the device plugins that stay.
    `invalid` has the refusals of variables by host and name. `drain` is whether pods may be
    evicted.

    Returns every finding once, the findings of each host that has any, the notices, and whether to
    start. A refusal of the cluster or of the inventory stops all nodes.
    """
    found = _refusals(reports, cluster, invalid or {}, drain=drain)
    # Two roles may refuse a node for the same reason.
    found = list({(one["host"], one["code"], one["message"]): one for one in found}.values())
    stopped: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        stopped.setdefault(one["host"], []).append(one)
    of_cluster = stopped.keys() - reports.keys()
    of_inventory = any(one["severity"] != STOP for one in found) and not skip_refused
    return {
        "begin": not of_cluster and not of_inventory and stopped.keys() < reports.keys(),
        "findings": found,
        "stopped": stopped,
        "notices": together(one for report in reports.values() for one in report["notices"]),
    }


def _refusals(
    reports: Mapping[str, Mapping[str, Any]],
    cluster: Mapping[str, Any],
    invalid: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    drain: bool,
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = list(cluster.get("refusals", ()))
    if cluster.get("error"):
        found.append(no_answer(cluster["error"]))
    found += refuse_missing(cluster.get("user", ""), cluster.get("missing", ()))
    for host, report in reports.items():
        wrong = [*invalid.get(host, {}).values()]
        # If a variable is invalid, its finding explains better why a plan fails.
        planned = [one for one in report["refusals"] if not wrong or one["code"] != "RUN_STOPPED"]
        found += [dict(one) for one in (*wrong, *planned)]
        row = cluster["nodes"].get(report["node_name"], {})
        # A stopped kubelet, which lacks an engine or has bad flags, may join later in the run.
        name = report["node_name"]
        other = another(
            host, name, cluster.get("rows", {}).get(name, {}), report.get("machine", {})
        )
        if other:
            found.append(other)
        elif row.get("state") == "missing" and report["kubelet_running"]:
            found.append(finding("NODE_NOT_IN_CLUSTER", host, node=report["node_name"]))
        plugin = cluster.get("staying", {}).get(report["node_name"], "")
        found += refuse_holders(host, row.get("pods", ()), drain=drain, plugin=plugin)
    named = {host: report["node_name"] for host, report in reports.items() if report["node_name"]}
    return found + name_clashes(named)


def table(verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the verdicts as aligned lines, starting with the headings."""
    rows: list[Sequence[str]] = [HEADINGS]
    for verdict in verdicts:
        numbers = [_cell(verdict["layers"][layer]) for layer in LAYERS]
        machine = [_cell(verdict["machine"][key]) for key in ("gpu", "driver")]
        rows.append([verdict["host"], *machine, *numbers, word(verdict)])
    return aligned(rows, [place for place in range(len(HEADINGS)) if place not in _TEXTS])


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int]) -> list[str]:
    """Return a table as lines. Columns of numbers are aligned at their right side."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def word(verdict: Mapping[str, Any]) -> str:
    """Return the verdict as the table has it: `ok`, `busy`, or the codes of the findings.

    In check mode, also `planned`.
    """
    if verdict["ok"]:
        return BUSY if verdict.get("busy") else OK
    if verdict.get("planned"):
        return PLANNED
    return " ".join(codes(verdict)) or "-"


def codes(verdict: Mapping[str, Any]) -> list[str]:
    """Return the codes for which a host fails. A notice is none of them."""
    failing = [one["code"] for one in verdict["findings"] if one["severity"] != NOTICE]
    return list(dict.fromkeys(failing))
