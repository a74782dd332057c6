# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results of metal.gpu.leak_test in a scenario, and what is recorded about them.

A scenario compares what it found with the record. With RECORD_ISOLATION=1, it writes it there. That
changes the checkout, so run such a scenario alone. Then `python -m pytest tests/unit/golden
--update-golden` writes the table of docs/isolation.md.
"""

from __future__ import annotations

import json
import os
import re
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import yaml

RECORD = Path(__file__).resolve().parents[2] / "tests/recorded/isolation_results.yml"
HEADER = """\
---
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# What metal.gpu.leak_test found in the laboratory. Each scenario compares its rows with what it
# finds: see molecule/shared/leaks.py.
"""
_STATES = ("leaked", "unproven", "busy", "nothing", "refused", "by design")
_LINE = re.compile(rf"\b(gpu-\d): ((?:(?:{'|'.join(_STATES)}): [a-z_, ]+(?:; )?)+)")


# What the variable of an image gives, where it gives anything.
BY_IMAGE = {"image_variable", "second_container", "init_container", "ephemeral_container"}


class Engine(NamedTuple):
    """An engine, and what its rows are called."""

    name: str
    case: str  # as the role sets it up
    by_default: str  # with `nvidia` as the default runtime
    has_default: bool  # the role makes `nvidia` the default runtime


def engine(laboratory: Any) -> Engine:
    """Return the engine of the nodes; a scenario with these tests has one."""
    (name,) = {node["engine"] for node in laboratory.facts["nodes"].values()}
    if name == "docker":
        return Engine(name, "docker, guard", "docker", has_default=True)
    return Engine(name, name, f"{name}, default runtime nvidia", has_default=False)


def leaked(attempts: dict[str, str]) -> set[str]:
    """Return the attempts of a node that got GPUs."""
    return {name for name, state in attempts.items() if state == "leaked"}


def parse(words: str) -> dict[str, dict[str, str]]:
    """Return the result of each attempt, by node, from the output of the playbook."""
    found: dict[str, dict[str, str]] = {}
    for node, text in _LINE.findall(words):
        for part in text.split("; "):
            state, _colon, attempts = part.partition(": ")
            for attempt in attempts.split(", "):
                found.setdefault(node, {})[attempt.strip()] = state
    return found


def run(laboratory: Any, *options: str) -> tuple[Any, dict[str, dict[str, str]]]:
    """Run the playbook; return the run and its results."""
    made = laboratory.playbook("metal.gpu.leak_test", *options)
    return made, parse(made.words)


def site(laboratory: Any, *options: str, **variables: Any) -> Any:
    """Run the roles that decide about isolation; return the run."""
    made = laboratory.playbook(
        *("metal.gpu.site", "--tags=runtime,device_plugin", *options),
        *("--extra-vars", json.dumps(variables)),
    )
    assert made.returncode == 0
    return made


def nothing_leaks(laboratory: Any, case: str) -> dict[str, dict[str, str]]:
    """Assert that no container sees a GPU, except by design; return the results."""
    made, found = run(laboratory)
    assert made.returncode == 0
    check(laboratory, case, found)
    for attempts in found.values():
        assert {*attempts.values()} <= {"nothing", "refused", "by design"}
    return found


def check(laboratory: Any, case: str, found: dict[str, dict[str, str]]) -> None:
    """Compare the results of all nodes, which are alike, with what is recorded, or record them."""
    (first, *others) = found.values()
    assert all(other == first for other in others), found
    assert {*found} == {*laboratory.addresses}
    versions, name = laboratory.facts["versions"], engine(laboratory).name
    compare(case, first, f"{name} {versions[name]}", versions["kubernetes"])


def compare_nodes(
    laboratory: Any,
    found: dict[str, dict[str, str]],
    cases: dict[str, str],
    engines: dict[str, str],
) -> None:
    """Compare the results of each node with its own row, or record them.

    `cases` and `engines` are by node. The latter has with what the name and the version of the
    engine begin.
    """
    kubernetes = laboratory.facts["versions"]["kubernetes"]
    assert {*found} == {*cases}
    for node, attempts in found.items():
        version = laboratory.objects("node", node)["status"]["nodeInfo"]["containerRuntimeVersion"]
        name, _separator, version = version.partition("://")
        engine = f"{name} {version.removeprefix('v')}"
        assert engine.startswith(engines[node])
        compare(cases[node], attempts, engine, kubernetes)


def compare(case: str, attempts: dict[str, str], engine: str, kubernetes: str | None) -> None:
    """Compare the results of one node with what is recorded, or record them.

    `engine` is its name and version. `kubernetes` is None for a node without a kubelet.
    """
    rows = yaml.safe_load(RECORD.read_text())
    if os.environ.get("RECORD_ISOLATION") == "1":
        row = {
            "case": case,
            "engine": engine,
            "kubernetes": kubernetes,
            "date": date.today().isoformat(),
            "attempts": dict(sorted(attempts.items())),
        }
        rows = sorted([*(one for one in rows if one["case"] != case), row], key=lambda r: r["case"])
        RECORD.write_text(HEADER + yaml.safe_dump(rows, sort_keys=False))
    recorded = {row["case"]: row["attempts"] for row in rows}
    assert attempts == recorded.get(case), f"{case}: record it with RECORD_ISOLATION=1"
