# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""TOML as the standard library reads it, split into expressions with the places of values.

An expression is a table header or a key with its value. containerd 1 (go-toml 1) also accepts some
invalid texts, such as texts with control characters in comments. containerd 2 (go-toml 2) and this
module reject them.

Source: https://toml.io/en/v1.0.0; go-toml v1.9.5 and v2.4.3, run on the texts of the unit tests
"""

from __future__ import annotations

import math
import re
import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    MAX_DEPTH,
    TOO_DEEP,
    Malformed,
    Path,
    Reading,
    is_too_deep,
    place_of,
    position,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.spans import (
    Entry,
    Node,
    line_start,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Only since Python 3.14, tomllib has attributes for the place.
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_STRING = r"\"\"\"(?:\\.|[^\\])*?\"{3,5}|'''.*?'{3,5}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'"
_TOKEN = re.compile(rf"{_STRING}|#[^\n]*|[\[\]{{}}]|[^\s,=\[\]{{}}#\"']+", re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_OTHER = re.compile(r"[^,\]}#\n]*[^,\]}#\s]")  # a date can have a blank in it
_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(r"[ \t]*([A-Za-z0-9_-]+|\"(?:\\.|[^\"\\])*\"|'[^']*')[ \t]*([.=\]])")
_INTEGERS = range(-(2**63), 2**63)
# An edit asks for the same texts again: the one before it, the one after it, and one in between.
_REMEMBERED = 4


@lru_cache(maxsize=_REMEMBERED)
def read(text: str) -> Reading:
    """Return the document, which nobody may change. Raises Malformed."""
    try:
        content = tomllib.loads(text, parse_float=_finite)
    except tomllib.TOMLDecodeError as error:
        problem, lines = str(error), text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
        if place := _PLACE.search(problem):
            problem = problem[: place.start()]
            if place[1]:
                line, column = int(place[1]), int(place[2])
        raise Malformed(problem, line, column) from error
    except ValueError as error:  # also Python's limit of digits
        raise _at_token(text, "the number is too large", _is_too_large) from error
    except RecursionError:
        content = None
    if content is None or is_too_deep(content):
        limit = MAX_DEPTH - 1  # the document is a table itself
        raise _at_token(text, TOO_DEEP, lambda token, depth: depth + token.count(".") > limit)
    if any(isinstance(one, int) and one not in _INTEGERS for one in _scalars(content)):
        raise _at_token(text, "the number is too large", _is_too_large)
    return Reading(content)


class Expression(NamedTuple):
    """A header or a key with its value: `text[start:end]`, whole lines."""

    start: int
    end: int
    table: Path  # of the header above it; () at the top of the file
    path: Path  # complete; for a header, the path of its table
    value: int | None  # the place of the value; None for a header

    @property
    def is_header(self) -> bool:
        return self.value is None


@lru_cache(maxsize=_REMEMBERED)
def split(text: str) -> tuple[Expression, ...]:
    """Split a valid text that ends with a newline.

    Only finds places: `value_of` reads a value. To parse all of a long text for each step of an
    edit takes longer than everything else.
    """
    return tuple(_expressions(text))


def _expressions(text: str) -> Iterator[Expression]:
    table: Path = ()
    lengths: dict[Path, int] = {}  # of the lists of tables so far
    at = _skip(text, 0)
    while at < len(text):
        start = line_start(text, at)
        is_item = text.startswith("[[", at)
        if text[at] == "[":
            keys, end = _keys(text, at + 1 + is_item)
            table = _table_path(keys, lengths, is_item=is_item)
            path, value = table, None
        else:
            keys, end = _keys(text, at)
            path = table + keys
            value = _skip(text, end)
            end = _end(text, value)
        end = text.index("\n", end) + 1
        yield Expression(start, end, table, path, value)
        at = _skip(text, end)


def value_of(text: str, expression: Expression) -> Node | None:
    """Return the value of an expression with its places; None for a header."""
    at = expression.value
    if at is None:
        return None
    return _scan(text, at, tomllib.loads(f"x = {text[at : _end(text, at)]}")["x"])


def _end(text: str, at: int) -> int:
    """Return the end of a value that starts at `at`."""
    if text[at] not in "[{":
        match = _TEXT.match(text, at) or _OTHER.match(text, at)
        return match.end() if match else at
    depth = 0
    for match in _TOKEN.finditer(text, at):
        depth += (match[0] in ("[", "{")) - (match[0] in ("]", "}"))
        if not depth:
            return match.end()
    return len(text)


def _table_path(keys: Path, lengths: dict[Path, int], *, is_item: bool) -> Path:
    """Return the path of a header; after a list of tables, that of its last table."""
    path: Path = ()
    for index, key in enumerate(keys):
        path = (*path, key)
        if is_item and index == len(keys) - 1:
            lengths[path] = lengths.get(path, 0) + 1
        if path in lengths:
            path = (*path, lengths[path] - 1)
    return path


def _keys(text: str, at: int) -> tuple[Path, int]:
    """Return the keys of a key path, and the position after the sign that ends it."""
    keys: list[str] = []
    sign = "."
    while sign == "." and (match := _KEY.match(text, at)):
        name, sign, at = match[1], match[2], match.end()
        keys.append(_name(name))
    return tuple(keys), at


def _name(written: str) -> str:
    """Return a key without its quotes."""
    if written[0] not in "\"'":
        return written
    if written[0] == "'" or "\\" not in written:
        return written[1:-1]
    name: str = tomllib.loads(f"x = {written}")["x"]
    return name


def _scan(text: str, at: int, value: Any) -> Node:
    """Return the place of a value that starts at `at`."""
    if text[at] not in "[{":
        return Node(at, _end(text, at), value)
    entries: list[Entry] = []
    fixed = False
    cursor = _skip(text, at + 1)
    while text[cursor] not in "]}":
        start = key_end = cursor
        keys: Path = (len(entries),)
        if text[at] == "{":
            keys, key_end = _keys(text, cursor)
            cursor = _skip(text, key_end)
        fixed |= len(keys) > 1  # a key with dots
        node = _scan(text, cursor, _value_at(value, keys))
        entries.append(Entry(keys[0], start, key_end, node))
        cursor = _skip(text, node.end)
        if text[cursor] == ",":
            cursor = _skip(text, cursor + 1)
    return Node(at, cursor + 1, value, tuple(entries), fixed=fixed)


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _value_at(content: Any, path: Path) -> Any:
    for key in path:
        content = content[key]
    return content


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value) and "inf" not in number:
        raise ValueError(number)
    return value


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _scalars(inner)
    else:
        yield value


def _is_too_large(token: str, _depth: int) -> bool:
    number = token.replace("_", "")
    try:
        return int(number, 0) not in _INTEGERS
    except ValueError:
        digits = number.lstrip("+-").isdigit()  # more of them than Python reads
        try:
            return digits or ("inf" not in number and math.isinf(float(number)))
        except ValueError:
            return False


def _at_token(text: str, problem: str, is_it: Callable[[str, int], bool]) -> Malformed:
    return Malformed(problem, *position(text, place_of(text, _TOKEN, is_it)))
