# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `metal-gpu doctor` prints about a machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE, REFUSAL
from ansible_collections.metal.gpu.plugins.module_utils.mappings import sections
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import (
    Node as Observed,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import name_clashes
from metal_gpu import gpu_names
from metal_gpu.nodes import Node, failed
from metal_gpu.terminal import exit_codes, output

_OF_INVENTORY = re.compile(
    r" in the inventory(?= with)|, then run `ansible [^`]*`|^[^;]* from the group; "
    r"|; [^;]*(?:from the group|metal_gpu_skip_refused)[^;]*"
    r"|,? (?:or|and) remove \w+ \w+ from the group"
)


class Machine(TypedDict):
    """What the machine is, for a reader."""

    system: str
    kernel: str
    gpus: list[dict[str, str]]
    driver: str
    engines: dict[str, str]
    kubelet: str
    node_name: str


class Step(TypedDict):
    """What metal.gpu.site would do."""

    role: str
    step: str
    name: str
    reason: str


class Row(TypedDict):
    """A host of the JSON document."""

    name: str
    address: str
    observed: bool
    machine: Machine | None
    steps: list[Step]
    findings: list[dict[str, str]]


def judged(node: Node) -> tuple[Node, Row]:
    """Return a node with its row; without its observation if nothing can judge it.

    What a broken machine answers can have a form that nobody expected. The others go on.
    """
    try:
        return node, row(node)
    except Exception as error:
        unjudged = failed(node.host, error)
        return unjudged, row(unjudged)


def row(node: Node) -> Row:
    """Return what is found about a host."""
    steps = [one._asdict() for one in node.plan().steps]
    return {
        "name": node.name,
        "address": node.host.address,
        "observed": node.observed is not None,
        "machine": None if node.observed is None else _machine(node.observed),
        "steps": [
            {"role": one["role"], "step": one["slug"], "name": one["name"], "reason": one["reason"]}
            for one in steps
        ],
        "findings": [dict(one) for one in node.findings],
    }


def _machine(node: Observed) -> Machine:
    names = {gpu["pci_address"]: gpu["name"] for gpu in node["nvml"]["devices"]}
    driver = node["nvml"]["driver_version"] or node["driver"]["module_version"]
    engines = {
        name: str(engine["version"] or "unknown")
        for name, engine in sections(node, "engines").items()
        if engine["installed"]
    }
    return {
        "system": node["os"]["name"] or "unknown",
        "kernel": node["kernel"]["release"] or "unknown",
        "gpus": [
            {
                "address": gpu["address"],
                "name": gpu_names.shown(gpu["device"], names.get(gpu["address"])),
            }
            for gpu in node["pci"]
        ],
        "driver": driver or "",
        "engines": engines,
        "kubelet": node["kubelet"]["version"] or "",
        "node_name": node["kubelet"]["node_name"] or "",
    }


def show(found: Row, *, quiet: bool = False, is_listed: bool = True) -> None:
    """Print a host: a line about it, what site would do, and its findings.

    Where no inventory has it, remedies leave out what only an inventory has.
    """
    urgent = [one for one in found["findings"] if one["severity"] != NOTICE]
    if quiet and not urgent:
        return
    output.print_line(f"{found['name']}: {_headline(found)}", "bold red" if urgent else "bold")
    if not quiet:
        for step in found["steps"]:
            output.print_line(f"  would: {step['name']} ({step['reason']})")
    for one in urgent if quiet else found["findings"]:
        remedy = one["remedy"] if is_listed else _OF_INVENTORY.sub("", one["remedy"])
        output.print_finding({**one, "remedy": remedy or one["remedy"]})


def _headline(found: Row) -> str:
    machine = found["machine"]
    if machine is None:
        return "not examined"
    models = Counter(gpu["name"] for gpu in machine["gpus"])
    engines = [f"{name} {version}" for name, version in machine["engines"].items()]
    parts = [
        f"{machine['system']}, kernel {machine['kernel']}",
        ", ".join(f"{number} {model}" for model, number in models.items()) or "no GPU",
        f"driver {machine['driver']}" if machine["driver"] else "no driver",
        ", ".join(engines) or "no engine",
        f"kubelet {machine['kubelet']}" if machine["kubelet"] else "no kubelet",
    ]
    return "; ".join(parts)


def clashes(names: Mapping[str, str]) -> list[dict[str, str]]:
    """Return a finding for each host that is the same Kubernetes node as another one."""
    return name_clashes(names)


def summary(codes: Sequence[int]) -> str:
    """Return the last line, from the exit codes that single hosts would have."""
    parts = [f"{codes.count(exit_codes.OK)} of {len(codes)} hosts are well"]
    silent = codes.count(exit_codes.NOT_ASKED)
    return ", ".join([*parts, f"{silent} not examined"] if silent else parts)


def next_commands(rows: Sequence[Row], options: str | None) -> str:
    """Return which commands do what the report names; empty if it names nothing to do.

    `options` lets a playbook take the same machines; None: no inventory has them.
    """
    seen = [row for row in rows if row["observed"]]
    findings = [one for row in rows for one in row["findings"]]
    stops = [one for row in seen for one in row["findings"] if one["severity"] == REFUSAL]
    parts = []
    if stops or any(row["steps"] for row in seen):
        if options is None:
            parts.append("`metal-gpu scan HOST --write inventory.yml` writes an inventory.")
        parts.append(
            f"`metal-gpu plan{options or ''}` shows in detail what would change, and "
            f"`metal-gpu site{options or ''}` changes it."
        )
    if stops:
        parts.append("Variables in a remedy belong in the inventory.")
    if any("ansible-playbook metal.gpu." in one["remedy"] for one in findings):
        parts.append("`metal-gpu NAME` runs `ansible-playbook metal.gpu.NAME`.")
    return " ".join(parts)
