# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The measurements as the text of docs/benchmarks.md. No function here does I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

HEAD = """\
<!--
SPDX-FileCopyrightText: metal.gpu contributors
SPDX-License-Identifier: GPL-3.0-or-later
-->

# Benchmarks

`make bench` writes this file. Most figures are counts, or ratios to a real alternative of the same
run, because seconds differ between machines. Some are seconds, and their goals are limits. Repeated
measurements are medians. Each part was measured as a whole, in one run.
"""


class Goal(NamedTuple):
    """A figure that has a goal: at most `limit`."""

    figure: str
    measured: float
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.measured <= self.limit


class Section(NamedTuple):
    """One part of the report."""

    title: str
    goals: tuple[Goal, ...]
    text: str  # what was measured, and how to read the table
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    commands: tuple[str, ...]
    remarks: str = ""  # conclusions from the table


class Measured(NamedTuple):
    """A part, with the machine and the versions that measured it."""

    machine: Mapping[str, str]
    section: Section


def render(parts: Sequence[Measured], missing: Sequence[str] = ()) -> str:
    """Return the whole document. `missing` has the parts that nobody has measured."""
    runs: list[Mapping[str, str]] = []
    for part in parts:
        if part.machine not in runs:
            runs.append(part.machine)
    sections = [section(part.section, _run(runs, part)) for part in parts]
    absent = [f"Not measured yet: {', '.join(missing)}.\n"] if missing else []
    return "\n".join([HEAD, _runs(runs), _summary(runs, parts), *absent, *sections])


def _run(runs: Sequence[Mapping[str, str]], part: Measured) -> str:
    return f"run {runs.index(part.machine) + 1}"


def _runs(runs: Sequence[Mapping[str, str]]) -> str:
    names = dict.fromkeys(name for run in runs for name in run)
    rows = tuple((name, *(run.get(name, "") for run in runs)) for name in names)
    return table(("", *(f"run {number}" for number in range(1, len(runs) + 1))), rows)


def section(part: Section, run: str) -> str:
    """Return one part of the document."""
    commands = "\n".join(part.commands)
    blocks = [
        f"## {part.title}\n",
        f"{part.text}\n",
        table(part.columns, part.rows),
        *([f"{part.remarks}\n"] if part.remarks else []),
        f"```shell\n{commands}\n```\n",
        f"Measured in {run}.\n",
    ]
    return "\n".join(blocks)


def _summary(runs: Sequence[Mapping[str, str]], parts: Sequence[Measured]) -> str:
    rows = [
        (
            goal.figure,
            number(goal.measured, goal.unit),
            number(goal.limit, goal.unit),
            "met" if goal.met else "**missed**",
            _run(runs, part),
        )
        for part in parts
        for goal in part.section.goals
    ]
    return table(("figure", "measured", "goal", "", "of"), tuple(rows))


def number(value: float, unit: str = "") -> str:
    """Return a figure for readers."""
    text = str(value) if isinstance(value, int) else f"{value:.2f}"
    return f"{text} {unit}".rstrip()


def table(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
