# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""YAML as sigs.k8s.io/yaml reads it, with the place of each value.

The kubelet and the readers of CDI specifications use that library, which converts YAML 1.1 to JSON.
Dates and values with unknown tags are strings. Only the first document counts, and only the last
value of a key that appears twice. Here, a key is its text.

Source: sigs.k8s.io/yaml v1.6.0 with go.yaml.in/yaml/v2 v2.4.4, run on the texts of the unit tests
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import Any

import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    MAX_DEPTH,
    TOO_DEEP,
    Malformed,
    Table,
    position,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.spans import Entry, Node

# The C parser if PyYAML has it: a CDI specification of eight GPUs has a thousand lines.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# The maximum of values that aliases repeat. Nested aliases grow exponentially.
_MAX_REPEATED = 100_000

_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TO_DASH = re.compile(r"(?:\s|#[^\n]*|[&!]\S*)*-")
_PREFIX = "tag:yaml.org,2002:"
_TYPES = {f"{_PREFIX}{name}" for name in ("null", "bool", "int", "float")}
_MERGE = "<<"

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{
        word: value
        for value, words in ((True, "y yes on true"), (False, "n no off false"))
        for name in words.split()
        for word in (name, name.capitalize(), name.upper())
    },
}
_OCTAL = re.compile(r"[-+]?0o?[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?", re.ASCII)
_NO_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve(plain: str) -> Any:
    """Return the value of a scalar without quotes."""
    if plain in _WORDS:
        return _WORDS[plain]
    if plain[0] not in "+-.0123456789" or not plain.isascii():
        return plain
    digits = plain.replace("_", "")
    with contextlib.suppress(ValueError):
        number = int(digits, 8 if _OCTAL.fullmatch(digits) else 0)
        if -(2**63) <= number < 2**64:
            return number
    if _FLOAT.fullmatch(digits) and math.isfinite(float(digits)):
        return float(digits)
    return plain


def _at(mark: Any, otherwise: int = 0) -> int:
    index: int = mark.index if mark else otherwise
    return index


class _Open:
    """A collection whose end is not read yet."""

    def __init__(self, event: yaml.CollectionStartEvent, values: int) -> None:
        self.is_table = isinstance(event, yaml.MappingStartEvent)
        self.block = not event.flow_style
        self.anchor: str | None = event.anchor
        # For a collection in brackets, the position of the bracket.
        self.start = _at(event.start_mark) if self.block else _at(event.end_mark) - 1
        self.after = self.start  # the earliest start of the next item
        self.values_before = values
        self.key: tuple[str, int, int] | None = None  # of the coming value, with its place
        self.merges = False  # the coming value is a table to merge
        self.fixed = False
        self.entries: list[Entry] = []
        self.keys: set[str] = set()
        self.table: Table = {}

    @property
    def needs_key(self) -> bool:
        return self.is_table and self.key is None and not self.merges


class Reader:
    """Turns the parser's events into nodes.

    PyYAML's composer is recursive: in C, a very deeply nested text crashes the process. Its block
    collections end where the next value starts, after the comments in between. Ours end with their
    last value.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.root: Node | None = None
        self.obstacle: Malformed | None = None
        self.stack: list[_Open] = []
        self.anchors: dict[str, tuple[Node, int]] = {}  # with the number of values in it
        self.values = 0  # including those that aliases repeat
        self.repeated = 0

    def read(self) -> tuple[Node, Malformed | None]:
        """Return the document, and why it must not be edited. Raises Malformed."""
        if found := _UNPRINTABLE.search(self.text):
            raise self._malformed(f"character U+{ord(found[0]):04X} is not allowed", found.start())
        try:
            for event in yaml.parse(self.text, Loader=_LOADER):
                if self.root and isinstance(event, yaml.DocumentStartEvent):
                    problem = "a second document starts here; programs read only the first one"
                    self._hinder(problem, _at(event.start_mark))
                    break
                self._take(event)
        except yaml.MarkedYAMLError as error:
            at = _at(error.problem_mark, len(self.text))
            raise self._malformed(error.problem or "not YAML", at) from error
        root = self.root or Node(0, 0, None)
        if root.value is None:
            end = len(self.text)
            root = Node(*((root.start, root.end) if root.start < root.end else (end, end)), {})
        return root, self.obstacle

    def _malformed(self, problem: str, index: int) -> Malformed:
        return Malformed(problem, *position(self.text, index))

    def _hinder(self, problem: str, index: int) -> None:
        self.obstacle = self.obstacle or self._malformed(problem, index)

    def _take(self, event: yaml.Event) -> None:
        match event:
            case yaml.AliasEvent():
                self._add(self._alias(event))
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.CollectionStartEvent():
                if self.stack and self.stack[-1].needs_key:
                    raise self._malformed("a key that is not a scalar", _at(event.start_mark))
                if len(self.stack) == MAX_DEPTH:
                    raise self._malformed(TOO_DEEP, _at(event.start_mark))
                self.stack.append(_Open(event, self.values))
            case yaml.CollectionEndEvent():
                self._close(self.stack.pop(), _at(event.end_mark))

    def _alias(self, event: yaml.AliasEvent) -> Node:
        start, end = _at(event.start_mark), _at(event.end_mark)
        if any(one.anchor == event.anchor for one in self.stack):
            raise self._malformed("an alias refers to a value that contains it", start)
        if event.anchor not in self.anchors:
            raise self._malformed(f"alias {event.anchor!r} refers to no earlier anchor", start)
        node, values = self.anchors[event.anchor]
        self.values += values
        self.repeated += values
        if self.repeated > _MAX_REPEATED:
            raise self._malformed(f"aliases repeat more than {_MAX_REPEATED} values", start)
        return Node(start, end, node.value, fixed=True)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        start = _at(event.start_mark)
        end = start + len(self.text[start : _at(event.end_mark)].rstrip())
        value: Any = event.value
        if event.implicit[0] or event.tag in _TYPES:
            if _NO_JSON.fullmatch(value):
                raise self._malformed(f"{value} is not a number in JSON", start)
            value = resolve(value)
        node = Node(start, end, value)
        if event.anchor:
            self.anchors[event.anchor] = (node, 1)
        if not (self.stack and self.stack[-1].needs_key):
            self.values += 1
            self._add(node)
        elif event.implicit[0] and value == _MERGE:
            self.stack[-1].merges = self.stack[-1].fixed = True
        else:
            self.stack[-1].key = (event.value, start, end)

    def _add(self, node: Node) -> None:
        """Add a complete value to the open collection."""
        if not self.stack:
            self.root = node
            return
        holder = self.stack[-1]
        if not holder.is_table:
            start = node.start
            if holder.block:
                dash = _TO_DASH.match(self.text, holder.after)
                start = dash.end() - 1 if dash else start
            holder.entries.append(Entry(len(holder.entries), start, start, node))
            holder.after = node.end
        elif holder.merges:
            holder.merges = False
            for one in reversed(node.value if isinstance(node.value, list) else [node.value]):
                if not isinstance(one, dict):
                    raise self._malformed(f"{_MERGE} needs a table or a list of tables", node.start)
                holder.table.update(one)
        elif holder.key is None:
            raise self._malformed("a key that is not a scalar", node.start)
        else:
            key, start, end = holder.key
            if key in holder.keys:
                self._hinder(f"key {json.dumps(key)} appears twice", start)
            holder.keys.add(key)
            holder.key = None
            holder.table[key] = node.value
            holder.entries.append(Entry(key, start, end, node))

    def _close(self, one: _Open, end: int) -> None:
        self.values += 1
        entries = tuple(one.entries)
        if one.block:
            end = entries[-1].node.end if entries else one.start
        value = one.table if one.is_table else [entry.node.value for entry in entries]
        node = Node(one.start, end, value, entries, one.block, one.fixed)
        if one.anchor:
            self.anchors[one.anchor] = (node, self.values - one.values_before)
        self._add(node)
