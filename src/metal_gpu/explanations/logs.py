# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Explain the lines of a log: each meaning once, with its first line.

What another line can tell better comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from metal_gpu.explanations.explain import Candidate, Explainer

_REMEMBERED = 10_000  # lines of which the meaning is kept, as logs repeat themselves


@dataclass
class Explanation:
    """What one kind of line means."""

    line: str  # the first one
    number: int  # its place in the log, from 1
    candidates: list[Candidate]
    lines: int = 1  # how many lines mean the same


@dataclass
class Explained:
    """A whole log."""

    explanations: list[Explanation] = field(default_factory=list)
    lines: int = 0
    unknown: int = 0  # lines that nobody knows


def explain_lines(explainer: Explainer, lines: Iterable[str]) -> Explained:
    """Explain lines as they come; empty ones do not count."""
    result = Explained()
    known: dict[tuple[tuple[str, str], ...], Explanation] = {}
    seen: dict[str, list[Candidate]] = {}
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line:
            continue
        result.lines += 1
        if line not in seen:
            if len(seen) >= _REMEMBERED:
                seen.clear()
            seen[line] = explainer.explain(line, strict=True)
        candidates = seen[line]
        if not candidates:
            result.unknown += 1
            continue
        meaning = tuple((one.code or one.title, one.matched) for one in candidates)
        if meaning in known:
            known[meaning].lines += 1
        else:
            known[meaning] = Explanation(line, number, candidates)
    # Stable: of the same rank, the order of the log.
    result.explanations = sorted(known.values(), key=lambda one: not one.candidates[0].is_cause)
    return result
