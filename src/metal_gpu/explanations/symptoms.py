# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse docs/symptoms.txt: kinds of lines, what they mean, and what to do.

The head of the file has its form.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TELLING, CONSEQUENCE, GENERAL = "telling", "consequence", "general"

_HEAD = re.compile(rf"(?P<title>.+?)(?: \((?P<kind>{CONSEQUENCE}|{GENERAL})\))?")
_FOR = re.compile(r"(?P<code>[A-Z][A-Z0-9_]{4,})?(?:(?:^| )if (?P<condition>.+))?")
# A part of an answer; what a command has in backquotes does not separate.
_PART = "(?:`[^`]*`|(?!{})[^`])*"
_SPLIT = {mark: re.compile(f"({_PART.format(mark)}){mark}(.*)") for mark in (": ", r" \| ")}
_QUOTES = str.maketrans("\u2018\u2019\u201a\u00b4`\u201c\u201d\u201e", "'''''\"\"\"")


# What a piece of an expression need not have, or not as it is written.
_LOOSE = (r"\\.", r"\[[^]]*\][?*+]?|\{[^}]*\}", r"\([^()]*\)[?*+]?", r".[?*]|[.+^$' ]")
_SHORTEST = 3


class Answer(NamedTuple):
    """One thing that a line can mean."""

    code: str | None  # of a finding; None: no finding is about it
    condition: str  # what tells it from the others; empty if nothing has to
    cause: str  # empty: that of the finding
    remedy: str  # empty: that of the finding


class Pattern(NamedTuple):
    """An expression, and words of which each line that matches has one: they are found faster."""

    expression: re.Pattern[str]
    words: tuple[str, ...]


class Symptom(NamedTuple):
    """A kind of line."""

    title: str
    kind: str  # the cause of a consequence is in another line; a general one is the last resort
    patterns: tuple[Pattern, ...]
    answers: tuple[Answer, ...]

    def matches(self, line: str, lowered: str) -> bool:
        """Tell whether a line with plain quotes is of this kind."""
        return any(
            any(word in lowered for word in one.words) and one.expression.search(line)
            for one in self.patterns
        )


def parse(text: str) -> tuple[Symptom, ...]:
    """Parse the file."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("= "):
            rows[-1].append(line[2:])
        elif line and not line.startswith("#"):
            rows.append([line])
    return tuple(_symptom(*row) for row in rows)


def plain_quotes(line: str) -> str:
    return line.translate(_QUOTES)


def _symptom(head: str, *answers: str) -> Symptom:
    name, *patterns = head.split(" ~ ")
    match = _HEAD.fullmatch(name)
    if match is None or not patterns or not answers:
        raise ValueError(f"no symptom: {head}")
    compiled = tuple(map(_pattern, patterns))
    return Symptom(match["title"], match["kind"] or TELLING, compiled, tuple(map(_answer, answers)))


def _pattern(text: str) -> Pattern:
    spaced = text.replace(" ", r"\s+").replace("'", "['\"]")
    return Pattern(re.compile(spaced, re.IGNORECASE), tuple(map(_word, _alternatives(text))))


def _alternatives(text: str) -> list[str]:
    """Return the alternatives of an expression, with a tab for what a line may have or not."""
    for loose in _LOOSE:
        while text != (text := re.sub(loose, "\t", text)):
            pass
    return text.split("|")


def _word(text: str) -> str:
    """Return the longest word of an alternative; empty if all are short."""
    longest = max(text.split("\t"), key=len).lower()
    return longest if len(longest) >= _SHORTEST else ""


def _answer(text: str) -> Answer:
    head, rest = _parted(text, ": ")
    match = _FOR.fullmatch(head)
    if match is None:
        return Answer(None, "", *_parted(text, r" \| "))
    return Answer(match["code"], match["condition"] or "", *_parted(rest, r" \| "))


def _parted(text: str, mark: str) -> tuple[str, str]:
    match = _SPLIT[mark].fullmatch(text)
    return (match[1], match[2]) if match else (text, "")
