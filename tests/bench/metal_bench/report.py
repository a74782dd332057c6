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

`make bench` writes this file, in one run on one machine. Most figures are counts, or ratios to a
real alternative of the same run, because seconds differ between machines. Some are seconds, and
their goals are limits. Repeated measurements are medians.
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


def render(sections: Sequence[Section], machine: Mapping[str, str]) -> str:
    """Return the whole document. `machine` has the machine and the versions."""
    parts = [HEAD, table(("", ""), tuple(machine.items())), _summary(sections)]
    return "\n".join([*parts, *map(section, sections)])


def section(part: Section) -> str:
    """Return one part of the document."""
    commands = "\n".join(part.commands)
    blocks = [
        f"## {part.title}\n",
        f"{part.text}\n",
        table(part.columns, part.rows),
        *([f"{part.remarks}\n"] if part.remarks else []),
        f"```shell\n{commands}\n```\n",
    ]
    return "\n".join(blocks)


def _summary(sections: Sequence[Section]) -> str:
    rows = [
        (
            goal.figure,
            number(goal.measured, goal.unit),
            number(goal.limit, goal.unit),
            "met" if goal.met else "**missed**",
        )
        for part in sections
        for goal in part.goals
    ]
    return table(("figure", "measured", "goal", ""), tuple(rows))


def number(value: float, unit: str = "") -> str:
    """Return a figure for readers."""
    text = str(value) if isinstance(value, int) else f"{value:.2f}"
    return f"{text} {unit}".rstrip()


def table(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
