# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON: read with positions, edited in place.

The standard library judges and decodes; `_scan` then walks the text, which is valid by then,
for the places of its values. New text takes the indentation and the separators of the old.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from . import document_spans as spans
from .document_model import Drop, Insert, Malformed, Put, Step, Table, position
from .document_spans import Entry, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_DEFAULT_UNIT = "  "


def parse(text: str) -> Table:
    """Return the document; an empty text is an empty one. Raises Malformed."""
    root = _parse(text)
    if not isinstance(root.value, dict):
        raise Malformed("the document is not an object", *position(text, root.start))
    return root.value


def edit(text: str, steps: Iterable[Step]) -> str:
    """Carry out the steps on the text."""
    if not text.strip():
        text = "{}\n"
    style = _Style(text, _parse(text))
    for step in steps:
        text = _edit(text, _parse(text), step, style)
    return text


class _Style:
    """How the document is laid out, taken from its outermost object."""

    def __init__(self, text: str, root: Node) -> None:
        self.on_one_line = spans.is_inline(text, root)
        self.unit = _DEFAULT_UNIT
        self.comma, self.colon = ", ", ": "
        self.ascii = text.isascii()  # then the author may have escaped the rest on purpose
        if root.entries:
            first = root.entries[0]
            if not self.on_one_line:
                indent = spans.line_indent(text, first.start)
                self.unit = indent.removeprefix(spans.line_indent(text, root.start))
            if text[first.node.start - 1] == ":":
                self.comma, self.colon = ",", ":"

    def write(self, value: Any, indent: str | None) -> str:
        """Write a value whose line begins with `indent`, or on one line where it is None."""
        if indent is None:
            unit, separators = None, (self.comma, self.colon)
        else:
            unit, separators = self.unit, (",", self.colon)
        text = json.dumps(value, indent=unit, separators=separators, ensure_ascii=self.ascii)
        return text if indent is None else text.replace("\n", "\n" + indent)


def _edit(text: str, root: Node, step: Step, style: _Style) -> str:
    key: str | int
    if isinstance(step, Put | Drop):
        node, key = spans.find(root, step.path[:-1]), step.path[-1]
    else:
        node, key = spans.find(root, step.path), step.place
    if not isinstance(step, Put | Insert):
        return spans.cut(text, node, key)

    outer = spans.line_indent(text, node.start)
    on_one_line = spans.is_inline(text, node) or style.on_one_line
    if node.entries and not on_one_line:
        indent = spans.line_indent(text, node.entries[0].start)
    else:
        indent = outer + style.unit
    value = style.write(step.value, None if on_one_line else indent)
    if isinstance(step, Put):
        if found := spans.entry(node, key):
            return spans.splice(text, found.node.start, found.node.end, value)
        value = style.write(key, None) + style.colon + value
    if node.entries:
        index = step.place if isinstance(step, Insert) else len(node.entries)
        return spans.add(text, node, index, value, style.comma)
    if not on_one_line:
        value = f"\n{indent}{value}\n{outer}"
    return spans.splice(text, node.start + 1, node.end - 1, value)


def _parse(text: str) -> Node:
    if not text.strip():
        return Node(0, len(text), {})
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Malformed(error.msg, error.lineno, error.colno) from error
    except _Constant as error:
        at = text.index(str(error))
        raise Malformed(f"{error} is not JSON", *position(text, at)) from error
    return _scan(text, _skip(text, 0))


class _Constant(ValueError):
    """NaN or an infinity, which Python reads and no other program does."""


def _refuse_constant(name: str) -> NoReturn:
    raise _Constant(name)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _scan(text: str, at: int) -> Node:
    """Return the value that begins at `at` in a text that is known to be JSON."""
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
            if any(entry.key == key for entry in entries):
                raise Malformed(f"key {json.dumps(key)} is there twice", *position(text, start))
            cursor = _skip(text, _skip(text, key_end) + 1)  # over the colon
        node = _scan(text, cursor)
        entries.append(Entry(key, start, key_end, node))
        cursor = _skip(text, node.end)
        if text[cursor] == ",":
            cursor = _skip(text, cursor + 1)
    value = {e.key: e.node.value for e in entries} if has_keys else [e.node.value for e in entries]
    return Node(at, cursor + 1, value, tuple(entries))
