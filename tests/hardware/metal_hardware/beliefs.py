# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Beliefs about the outside, and what a machine shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Belief:
    """One row of the table; `holds` is None if the machine cannot show it."""

    area: str
    belief: str
    seen: str
    holds: bool | None


@dataclass
class Beliefs:
    """The table, which grows while the machine is asked."""

    rows: list[Belief] = field(default_factory=list)

    def equal(self, area: str, belief: str, expected: object, seen: object) -> None:
        """Add a row that holds if both are equal; the machine did not say what None is."""
        holds = None if expected is None and seen is None else expected == seen
        shown = f"{seen}" if holds else f"{seen}, and our side has {expected}"
        self.rows.append(Belief(area, belief, shown, holds))

    def add(self, area: str, belief: str, seen: object, *, holds: bool | None) -> None:
        self.rows.append(Belief(area, belief, f"{seen}", holds))

    @contextmanager
    def asking(self, area: str, belief: str) -> Iterator[None]:
        """Turn an error of a question into a row that does not hold: the others are still asked."""
        try:
            yield
        except Exception as error:
            self.add(area, belief, f"{type(error).__name__}: {error}"[:500], holds=False)

    def table(self) -> str:
        """Return the rows as text, those that do not hold first within their area."""
        words = {True: "yes", False: "NO", None: "-"}
        lines = []
        for area in dict.fromkeys(row.area for row in self.rows):
            lines.append(f"\n{area}")
            rows = [row for row in self.rows if row.area == area]
            lines += [
                f"  {words[row.holds]:<4}{row.belief}: {row.seen}"
                for row in sorted(rows, key=lambda row: row.holds is not False)
            ]
        held, broken = (sum(row.holds is value for row in self.rows) for value in (True, False))
        unknown = len(self.rows) - held - broken
        return "\n".join(
            [*lines, "", f"beliefs: {held} hold, {broken} do not, {unknown} not shown"]
        )
