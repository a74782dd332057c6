# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find what an error line can mean, the most probable cause first.

A line is read in several ways, and the surer way comes first: by the kinds of lines in
docs/symptoms.txt; by the readers of verify and the texts of the index; by the kinds that are a last
resort; by short texts such as `404`; and by its words.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import unescape
from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE
from metal_gpu.explanations import readers
from metal_gpu.explanations.index import Document, Row, Section, is_telling, pattern, plain
from metal_gpu.explanations.symptoms import CONSEQUENCE, GENERAL, TELLING, Symptom, plain_quotes

READ, TEXT, SHORT_TEXT, WORDS = "read", "text", "short text", "words"

_LONGEST = 10_000  # characters of a line
_CODE = re.compile(r"\b[A-Z][A-Z0-9_]{4,}\b")
_WORD = re.compile(r"[a-z0-9][a-z0-9./_-]*[a-z0-9]|[a-z0-9]")
_DOCUMENT = re.compile(r"(?<![\w/])docs/(?=[\w-]+\.(?:md|yml))")
_OF_PROGRAM = re.compile(r"^(?:\[|\S*\d\d:\d\d|(?:\w*nvidia\w*|NVRM|kernel|systemd)\S*: )")
_EMPTY = frozenset(
    """a an the and or of in on at to for from with is are was be has have it its this that there
    not as by i my me get gets we you what why when where how does do any after""".split()  # noqa: SIM905
)
_SAME = {"cannot": "no"}
_ENOUGH = 0.6  # share of the words of a question that a row must have
_ENOUGH_OF_ROW = 0.4  # share of the words of a symptom that a question must have
_AT_LEAST = 2  # words
_MOST_ROWS = 2  # that only words suggest
_MOST_TEXTS = 2  # of such a row, that tell whether it is this one


class Candidate(NamedTuple):
    """One thing that a line can mean."""

    code: str | None  # of a finding; None: no finding is about it
    title: str
    severity: str  # empty without a code
    cause: str
    condition: str  # when it is this one
    remedy: str
    reference: str  # where the documentation has more; empty if nowhere
    matched: str  # what it was recognised by
    certainty: str  # READ, TEXT, SHORT_TEXT or WORDS
    is_cause: bool = True  # False: another line of the same log can tell more


class _Text(NamedTuple):
    text: str
    literal: str  # what any line has that matches, in small letters
    pattern: re.Pattern[str]
    certainty: str
    row: Row


class Explainer:
    """Explains lines with one document and the symptoms."""

    def __init__(self, document: Document, symptoms: tuple[Symptom, ...]) -> None:
        self._document = document
        self._symptoms = symptoms
        self._texts = [
            _Text(
                text,
                max(re.split(r"…|\s+", text), key=len).lower(),
                pattern(text),
                TEXT if is_telling(text) else SHORT_TEXT,
                row,
            )
            for row in document.rows
            for text in row.texts
        ]
        self._texts.sort(key=lambda one: (one.certainty != TEXT, -len(one.text)))
        self._words = [
            (row, _words(_all_words(row)), _words(plain(row.symptom))) for row in document.rows
        ]

    def explain(self, line: str, *, strict: bool = False) -> list[Candidate]:
        """Return what a line can mean; nothing if nobody knows it.

        `strict` leaves out what only short texts or words suggest, as for the lines of a whole log.
        """
        line = plain_quotes(unescape(line[:_LONGEST]))
        lowered = line.lower()
        seen = [one for one in self._symptoms if one.matches(line, lowered)]
        kinds = [one for one in seen if one.kind == TELLING]
        kinds = kinds or [one for one in seen if one.kind == CONSEQUENCE]
        found = [*self._coded(line), *self._of_symptoms(kinds)]
        if not kinds:
            found += [*self._read(line), *self._matching(line, {TEXT})]
        if not found:
            found += self._of_symptoms([one for one in seen if one.kind == GENERAL][:1])
        if not strict:
            found += self._matching(line, {SHORT_TEXT})
            found += [] if found or _OF_PROGRAM.match(line) else self._worded(line)
        return list(_once(found))

    def of_code(self, code: str) -> Candidate | None:
        """Return the finding with this code; None if there is none."""
        if code not in CATALOGUE:
            return None
        section = Section(code, code, f"{self._document.path}#{code.lower()}", "")
        return self._of_section(section, code, READ)

    def _coded(self, line: str) -> Iterator[Candidate]:
        for code in _CODE.findall(line):
            found = self.of_code(code)
            if found is not None:
                yield found

    def _of_symptoms(self, symptoms: Iterable[Symptom]) -> Iterator[Candidate]:
        for symptom in symptoms:
            for answer in symptom.answers:
                found = self.of_code(answer.code) if answer.code else None
                yield (found or _of_title(symptom.title))._replace(
                    condition=answer.condition,
                    cause=answer.cause or (found.cause if found else ""),
                    remedy=answer.remedy or (found.remedy if found else ""),
                    matched=symptom.title,
                    certainty=TEXT,
                    is_cause=symptom.kind == TELLING,
                )

    def _read(self, line: str) -> Iterator[Candidate]:
        for reading in readers.read(line):
            known = self.of_code(reading.code) if reading.code else None
            yield (known or _of_title(reading.title))._replace(
                cause=reading.cause,
                remedy=reading.remedy or (known.remedy if known else ""),
                matched=reading.title,
            )

    def _matching(self, line: str, certainties: set[str]) -> Iterator[Candidate]:
        lowered = line.lower()
        for text in self._texts:
            if text.certainty in certainties and text.literal in lowered:
                match = text.pattern.search(line)
                if match:
                    for section in text.row.sections:
                        yield self._of_section(section, match[0], text.certainty)

    def _worded(self, line: str) -> Iterator[Candidate]:
        asked = _words(line)
        scores = [
            (len(asked & words) / len(asked), len(asked & own) / len(own), row)
            for row, words, own in self._words
            if len(asked & words) >= _AT_LEAST and len(asked & own) >= _ENOUGH_OF_ROW * len(own)
        ]
        best = max((share for share, _own, _row in scores), default=0.0)
        if best >= _ENOUGH:
            equal = [(own, row) for share, own, row in scores if share == best]
            equal.sort(key=lambda one: -one[0])  # of the same share, the order of the page
            for _own, row in equal[:_MOST_ROWS]:
                matched = f"{row.place}: {plain(row.symptom)}"
                for section in row.sections:
                    found = self._of_section(section, matched, WORDS)
                    yield found._replace(condition=_condition(row, section, asked))

    def _placed(self, text: str) -> str:
        """Return a text with the places of the documents that are installed."""
        return _DOCUMENT.sub(f"{self._document.path.rpartition('/')[0]}/", text)

    def _of_section(self, section: Section, matched: str, certainty: str) -> Candidate:
        code = section.code
        return Candidate(
            code,
            section.title,
            CATALOGUE[code].severity if code else "",
            self._placed(self._document.causes.get(code or "", "")),
            section.condition,
            self._placed(CATALOGUE[code].general) if code else f"read {section.reference}",
            section.reference,
            matched,
            certainty,
        )


def _of_title(title: str) -> Candidate:
    """Return what no finding is about."""
    return Candidate(None, title, "", "", "", "", "", title, READ)


def near_codes(word: str) -> list[str]:
    """Return the codes that look like a word."""
    return difflib.get_close_matches(word.upper().replace("-", "_"), CATALOGUE, n=3)


def _condition(row: Row, section: Section, asked: frozenset[str]) -> str:
    """Return when it is this section. The words can be a part of what other programs print."""
    if asked & _words(" ".join(row.texts)) <= _words(f"{row.place} {_beside_texts(row)}"):
        return section.condition
    near = sorted(row.texts, key=lambda text: -len(_words(text) & asked))[:_MOST_TEXTS]
    texts = " or ".join(map('"{}"'.format, near))
    return ", and ".join(filter(None, [f"you mean a line with {texts}", section.condition]))


def _beside_texts(row: Row) -> str:
    """Return what a symptom has beside the texts of other programs, or in words of its own."""
    symptom = plain(row.symptom)
    for text in sorted(row.texts, key=len, reverse=True):
        symptom = symptom.replace(text, " ")
    return symptom


def _all_words(row: Row) -> str:
    conditions = (f"{section.title} {section.condition}" for section in row.sections)
    return " ".join([row.place, plain(row.symptom), *conditions])


def _words(text: str) -> frozenset[str]:
    found: Iterable[str] = _WORD.findall(text.lower())
    return frozenset(_stem(_SAME.get(word, word)) for word in found if word not in _EMPTY)


def _stem(word: str) -> str:
    """Return a word without the ending of a plural or a verb."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _once(found: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yield each finding once: what a reader knows, with the condition of the index."""
    merged: dict[tuple[str, ...], Candidate] = {}
    for one in found:
        key = (one.code,) if one.code else (one.title, one.condition)
        known = merged.get(key)
        if known is None:
            merged[key] = one
        elif not known.condition:
            merged[key] = known._replace(condition=one.condition)
    yield from merged.values()
