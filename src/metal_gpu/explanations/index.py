# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse docs/troubleshooting.md: its index by symptom, and the sections about findings.

The document is the only source: people read it, and `metal-gpu explain` searches it. A row of the
index has texts of other programs in backticks, or a symptom in words, and the sections for it, the
most probable one first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_INDEX = "Find it by what you see"
_HEADING = re.compile(r"^(?P<marks>##+) (?P<title>.+)$")
_LINK = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<target>[^)]+)\)")
_QUOTED = re.compile(r"`([^`]+)`")
_NUMBER = re.compile(r"^(?P<word>error|Xid) (?P<number>\d+)$")
_SEVERITY = re.compile(r"^\*[^*]+\*\s*")
# A part of a row that starts with texts of other programs; what follows is where they stand.
_TEXTS = re.compile(r"^(?:(?:an?|the|with) )?(?P<texts>`[^`]+`(?:(?: or| and) `[^`]+`)*)")
_BETWEEN = re.compile(r", (?=(?:[^`]*`[^`]*`)*[^`]*$)")  # a comma that is in no text
_SENTENCE = re.compile(r"(?<=[.!?]) ")
_OF_MESSAGE = re.compile(r"\b(?:[Tt]he|this) (?:message|notice)\b|^How to change it\.$")
_GAP = "…"
_SHORT, _LONG = 12, 16  # characters of a text


class Section(NamedTuple):
    """A section that a row refers to."""

    code: str | None  # of a finding; None: another page
    title: str
    reference: str  # where to read it, from the root of the project
    condition: str  # when it is this one; empty if it is the only one


class Row(NamedTuple):
    """A row of the index."""

    place: str  # the heading above, such as "nvidia-smi"
    symptom: str  # as the document has it
    texts: tuple[str, ...]  # of other programs, each of which is the symptom; none: words are
    sections: tuple[Section, ...]


class Document(NamedTuple):
    """What the page has for a program."""

    path: str
    rows: tuple[Row, ...]
    causes: dict[str, str]  # by code


def parse(text: str, path: str) -> Document:
    """Parse the page. `path` is where it is."""
    rows: list[Row] = []
    causes: dict[str, str] = {}
    chapter = title = ""
    for heading, body in _parts(text):
        if heading.startswith("### "):
            title = heading[4:]
        else:
            chapter, title = heading[3:], ""
        if chapter == _INDEX and title:
            rows += _rows(title, body, path)
        elif re.fullmatch(r"[A-Z][A-Z0-9_]+", title):
            causes[title] = _cause(body)
    return Document(path, tuple(rows), causes)


def plain(text: str) -> str:
    """Return text without links, so that a terminal can show it."""
    text = _LINK.sub(lambda link: link["title"], text).replace("`` ", "").replace(" ``", "")
    return text.replace("`", "").replace("\\|", "|")


def pattern(text: str) -> re.Pattern[str]:
    """Return what matches a text of another program, in which … stands for any part of a line."""
    if match := _NUMBER.match(text):
        return re.compile(rf"(?i)\b{match['word']}\D{{0,3}}{match['number']}\b")
    parts = (re.sub(r"(\\?\s)+", r"\\s+", re.escape(part.strip())) for part in text.split(_GAP))
    whole = r".*?".join(part for part in parts if part)
    if is_telling(text):
        return re.compile(whole, re.IGNORECASE if len(text) >= _LONG else 0)
    return re.compile(rf"(?<![\w-]){whole}(?![\w-])")


def is_telling(text: str) -> bool:
    """Tell whether a text is long enough to mean something wherever it stands."""
    return " " in text.strip() or len(text) >= _SHORT


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield each heading with the text below it. Code blocks have no headings."""
    heading, is_code = "## ", False
    lines: list[str] = []
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        if not is_code and _HEADING.match(line):
            yield heading, "\n".join(lines)
            heading, lines = line, []
        else:
            lines.append(line)
    yield heading, "\n".join(lines)


def _rows(place: str, body: str, path: str) -> Iterator[Row]:
    for line in body.splitlines():
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
        if not line.startswith("| ") or len(cells) != 2 or cells[1].strip() in ("section", "---"):
            continue
        symptom = cells[0].strip()
        yield Row(place, symptom, tuple(_texts(symptom)), tuple(_sections(cells[1].strip(), path)))


def _texts(symptom: str) -> Iterator[str]:
    for part in _BETWEEN.split(symptom):
        if _NUMBER.match(part):
            yield part
        elif match := _TEXTS.match(part):
            texts = [text.replace("\\|", "|") for text in _QUOTED.findall(match["texts"])]
            is_alone = match.end() == len(part) or len(texts) > 1
            yield from (text for text in texts if is_alone or is_telling(text))


def _sections(cell: str, path: str) -> Iterator[Section]:
    for part in re.split(r"; (?=\[)", cell):
        link = _LINK.match(part)
        if link is None:
            raise ValueError(f"{path}: the row starts with no link to a section: {cell}")
        is_code = link["target"] == f"#{link['title'].lower()}"
        folder = path.rpartition("/")[0]
        reference = f"{path}{link['target']}" if is_code else f"{folder}/{link['target']}"
        condition = part[link.end() :].removeprefix(":").strip()
        code = link["title"] if is_code else None
        yield Section(code, link["title"], reference, plain(condition))


def _cause(body: str) -> str:
    """Return the first paragraph of a section, as it is true without the message of a finding.

    What a list has after a colon belongs to it. A sentence that ends with any other colon does not.
    """
    paragraph, _blank, rest = body.strip().partition("\n\n")
    sentences = _SENTENCE.split(" ".join(plain(_SEVERITY.sub("", paragraph)).split()))
    kept = [one for one in sentences if not _OF_MESSAGE.search(one)]
    if kept and kept[-1].endswith(":"):
        block = rest.partition("\n\n")[0]
        items = [_SENTENCE.split(one)[0].rstrip(".,") for one in _items(block)]
        if items:
            kept[-1] = f"{kept[-1]} {'; '.join(items)}."
        else:
            kept = kept[:-1] or [f"{kept[-1][:-1]}."]
    return " ".join(kept)


def _items(block: str) -> list[str]:
    """Return the items of a list."""
    return [" ".join(plain(one).split()) for one in re.split(r"^[-*] ", block, flags=re.M)[1:]]
