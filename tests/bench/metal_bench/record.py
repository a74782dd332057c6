# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was measured last: tests/bench/results.yml, of which docs/benchmarks.md is made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from metal_bench.report import Goal, Measured, Section

RESULTS = Path(__file__).resolve().parent.parent / "results.yml"
_HEAD = """\
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# `make bench` writes this file: each part, and the machine that measured it.
"""


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stay readable, and lists are indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def load(path: Path = RESULTS) -> dict[str, Measured]:
    """Return the parts by their name."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return {name: Measured(one["machine"], _section(one["section"])) for name, one in found.items()}


def save(parts: Mapping[str, Measured], path: Path = RESULTS) -> None:
    """Write the parts. A run that is cut off leaves the former file."""
    found = {
        name: {"machine": dict(one.machine), "section": _plain(one.section)}
        for name, one in parts.items()
    }
    text = yaml.dump(found, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=150)
    new = path.with_suffix(".new")
    new.write_text(_HEAD + text)
    os.replace(new, path)


def _plain(section: Section) -> dict[str, Any]:
    return {
        **section._asdict(),
        "goals": [goal._asdict() for goal in section.goals],
        "columns": list(section.columns),
        "rows": [list(row) for row in section.rows],
        "commands": list(section.commands),
    }


def _section(found: Mapping[str, Any]) -> Section:
    return Section(
        **{
            **found,
            "goals": tuple(Goal(**goal) for goal in found["goals"]),
            "columns": tuple(found["columns"]),
            "rows": tuple(tuple(row) for row in found["rows"]),
            "commands": tuple(found["commands"]),
        }
    )
