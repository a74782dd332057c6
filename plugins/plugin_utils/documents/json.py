# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON: read as Go's encoding/json reads it, and edited in place.

dockerd reads its configuration this way. It accepts a key that appears twice, but such a key is not
editable: a table of names (`runtimes`) gets the entries of both, and any other key has the last
value. New text has the indentation and the separators of the old text.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import spans
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    MAX_DEPTH,
    TOO_DEEP,
    Malformed,
    Reading,
    Table,
    is_too_deep,
    place_of,
    position,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.spans import Entry, Node

if TYPE_CHECKING:
    from collections.abc import Callable

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_DEFAULT_UNIT = "  "
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[\[{]|[\]}]|[^\s,:\[\]{}"]+')
# Half of a surrogate pair. Go reads it as U+FFFD, which has the same length here.
_LONE_SURROGATE = re.compile(
    r"\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)"
)


def read(text: str) -> Reading:
    """Return the document; an empty text is an empty document. Raises Malformed."""
    twice: list[Any] = []

    def table(pairs: list[tuple[str, Any]]) -> Table:
        content = dict(pairs)
        if len(content) < len(pairs):
            twice.append(content)
        return content

    content = _load(text, table)
    if twice:
        return Reading(content, _find_twice(text))
    return Reading(content)


def edit(text: str, desired: Table) -> str:
    """Edit the text so that its content is `desired`."""
    if text.strip() in ("", "null"):
        text = "{}\n"
    root = _scan(_decodable(text), _skip(text, 0))
    style = _Style(text, root)
    return spans.spliced(text, spans.edit_brackets(text, root, desired, style, "", ()))


class _Style:
    """The layout of the document, taken from its outermost object."""

    def __init__(self, text: str, root: Node) -> None:
        self.on_one_line = spans.is_inline(text, root)
        self.unit = _DEFAULT_UNIT
        self.comma, self.colon = ", ", ": "
        self.ascii = text.isascii()  # the author may have escaped other characters on purpose
        if root.entries:
            first = root.entries[0]
            if not self.on_one_line:
                indent = spans.line_indent(text, first.start)
                self.unit = indent.removeprefix(spans.line_indent(text, root.start))
            if text[first.node.start - 1] == ":":
                self.comma, self.colon = ",", ":"

    def value(self, value: Any, indent: str | None) -> str:
        if indent is None:
            unit, separators = None, (self.comma, self.colon)
        else:
            unit, separators = self.unit, (",", self.colon)
        text = json.dumps(value, indent=unit, separators=separators, ensure_ascii=self.ascii)
        return text if indent is None else text.replace("\n", "\n" + indent)

    def pair(self, key: str, value: Any, indent: str | None) -> str:
        return self.value(key, None) + self.colon + self.value(value, indent)

    def indent(self, text: str, node: Node) -> str | None:
        if self.on_one_line or spans.is_inline(text, node):
            return None
        if node.entries:
            return spans.line_indent(text, node.entries[0].start)
        return spans.line_indent(text, node.start) + self.unit


def _load(text: str, table: Callable[[list[tuple[str, Any]]], Table]) -> Table:
    if not text.strip():
        return {}
    try:
        content = json.loads(
            _decodable(text),
            object_pairs_hook=table,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, error.lineno, error.colno) from error
    except _NoNumber as error:
        number = str(error)
        at = place_of(text, _TOKEN, lambda token, _depth: token == number)
        raise Malformed(f"{number} is not a JSON number", *position(text, at)) from error
    except ValueError as error:  # Python's limit of digits
        limit = sys.get_int_max_str_digits()
        at = place_of(text, _TOKEN, lambda token, _depth: len(token.lstrip("-")) > limit)
        raise Malformed("the number is too large", *position(text, at)) from error
    except RecursionError:
        content = None
    if content is None and text.strip() == "null":
        return {}
    if content is None or is_too_deep(content):
        at = place_of(text, _TOKEN, lambda _token, depth: depth > MAX_DEPTH)
        raise Malformed(TOO_DEEP, *position(text, at))
    if not isinstance(content, dict):
        raise Malformed("the document is not an object", *position(text, _skip(text, 0)))
    return content


class _NoNumber(ValueError):
    """NaN or an infinity, which only Python reads."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NoNumber(name)


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise _NoNumber(number)
    return value


def _decodable(text: str) -> str:
    """Return a text of the same length without characters that cannot be encoded."""
    if "\\u" not in text:
        return text
    return _LONE_SURROGATE.sub(lambda match: r"\ufffd" if match[1] else match[0], text)


def _find_twice(text: str) -> Malformed | None:
    """Return the error about the first key that appears twice."""
    opened: list[set[str] | None] = []
    decodable = _decodable(text)
    for match in _TOKEN.finditer(decodable):
        token = match[0]
        if token in "[{":
            opened.append(set() if token == "{" else None)
        elif token in "]}":
            opened.pop()
        elif token[0] == '"' and (keys := opened[-1]) is not None:
            if decodable[_skip(decodable, match.end())] != ":":
                continue
            key = json.loads(token)
            if key in keys:
                problem = f"key {json.dumps(key)} appears twice"
                return Malformed(problem, *position(text, match.start()))
            keys.add(key)
    return None


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _scan(text: str, at: int) -> Node:
    """Return the value that starts at `at` in a valid JSON text."""
    if text[at] not in "{[":
        value, end = _DECODER.raw_decode(text, at)
        return Node(at, end, value)
    has_keys = text[at] == "{"
    entries: list[Entry] = []
    cursor = _skip(text, at + 1)
    while text[cursor] not in "}]":
        start = key_end = cursor
        key: str | int = len(entries)
        if has_keys:
            key, key_end = _DECODER.raw_decode(text, start)
            cursor = _skip(text, _skip(text, key_end) + 1)  # over the colon
        node = _scan(text, cursor)
        entries.append(Entry(key, start, key_end, node))
        cursor = _skip(text, node.end)
        if text[cursor] == ",":
            cursor = _skip(text, cursor + 1)
    value = {e.key: e.node.value for e in entries} if has_keys else [e.node.value for e in entries]
    return Node(at, cursor + 1, value, tuple(entries))
