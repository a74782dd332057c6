# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""YAML: read with positions, edited in place.

PyYAML's composer tells where each value is, and only that text is replaced, so comments,
quotes, alignment and long lines stay as they are. Round-tripping libraries write the whole
document anew: they tie the comment above a key to the key before it, and lose it with that key.

PyYAML reads YAML 1.1, as Kubernetes' own readers do ("on" is true). New strings are
quoted unless every version of YAML reads them as strings.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import yaml

from . import document_spans as spans
from .document_model import Drop, Insert, Malformed, Path, Put, Step, Table, Take, position
from .document_spans import Entry, Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PLAIN = re.compile(r"(?![yn]$)[A-Za-z/][\w./-]*", re.ASCII | re.IGNORECASE)
_ALIAS = re.compile(r"\*[^\s,\]}]+")
_STR = "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"


def parse(text: str) -> Table:
    """Return the document; a text without any value is an empty one. Raises Malformed."""
    root = _parse(text)
    if not isinstance(root.value, dict):
        raise Malformed("the document is not a mapping", *position(text, root.start))
    return root.value


def edit(text: str, steps: Iterable[Step]) -> str:
    """Carry out the steps on the text."""
    if text and not text.endswith("\n"):
        text += "\n"
    editor = _Editor(text)
    for step in steps:
        editor.carry_out(step)
    return editor.text


class _Editor:
    """A text with the places of its values, which move with every step."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root = _parse(text)
        self.writer = _Writer(text, self.root)

    def carry_out(self, step: Step) -> None:
        self.text = self._edited(step)
        self.root = _parse(self.text)

    def _edited(self, step: Step) -> str:
        match step:
            case Put(path, value):
                return self._put(spans.find(self.root, path[:-1]), path, value)
            case Drop(path):
                return self._cut(spans.find(self.root, path[:-1]), path[:-1], path[-1])
            case Insert(path, index, value):
                return self._insert(spans.find(self.root, path), index, value)
            case Take(path, index):
                return self._cut(spans.find(self.root, path), path, index)

    def _put(self, table: Node, path: Path, value: Any) -> str:
        text, key = self.text, path[-1]
        if not table.entries:
            # Write a table that was empty as a block, so over the `{}` that stands for it.
            if path[1:]:
                return self._edited(Put(path[:-1], {key: value}))
            block = self.writer.table({key: value}, 0)
            if table.start == table.end:  # nothing yet but comments
                return f"{text}{block}\n"
            return spans.splice(text, table.start, table.end, block)
        found = spans.entry(table, key)
        if not table.block:
            if found:
                return spans.splice(text, found.node.start, found.node.end, flow(value))
            return spans.add(text, table, len(table.entries), flow({key: value})[1:-1])
        column = len(spans.line_indent(text, table.entries[0].start))
        if found is None:
            at = text.index("\n", table.end)
            return spans.splice(text, at, at, "\n" + self.writer.table({key: value}, column))
        old = found.node
        is_block = old.block or old.start == old.end or text[old.start] in "|>"
        if is_block or (value and isinstance(value, dict | list)):
            new = ":" + self.writer.value(value, column)
            return spans.splice(text, found.key_end, old.end, new)
        return spans.splice(text, old.start, old.end, flow(value))

    def _insert(self, items: Node, index: int, value: Any) -> str:
        text = self.text
        if not items.entries:
            return spans.splice(text, items.start + 1, items.end - 1, flow(value))
        if not items.block:
            return spans.add(text, items, index, flow(value))
        if index < len(items.entries):
            at = _line_start(text, items.entries[index].start)
        else:
            at = text.index("\n", items.end) + 1
        indent = spans.line_indent(text, items.entries[0].start)
        return spans.splice(text, at, at, f"{indent}- {flow(value)}\n")

    def _cut(self, node: Node, path: Path, key: str | int) -> str:
        text = self.text
        if not node.block:
            return spans.cut(text, node, key)
        if len(node.entries) > 1:
            entry = node.entries[spans.index_of(node, key)]
            end = text.index("\n", entry.node.end) + 1
            return spans.splice(text, _line_start(text, entry.start), end, "")
        empty: Any = {} if isinstance(node.value, dict) else []
        if path:
            return self._edited(Put(path, empty))
        return spans.splice(text, node.start, node.end, flow(empty))


class _Writer:
    """Writes new blocks with the indentation that the document has already."""

    def __init__(self, text: str, root: Node) -> None:
        self.unit = next(_indents(text, root, dict), 2)
        self.list_indent = next(_indents(text, root, list), 0)

    def table(self, table: Table, column: int) -> str:
        """Write the keys of a table, each beginning at `column`; no newline at the end."""
        return "\n".join(
            f"{' ' * column}{flow(key)}:{self.value(value, column)}" for key, value in table.items()
        )

    def value(self, value: Any, column: int) -> str:
        """Write what follows the colon of a key at `column`."""
        if not value or not isinstance(value, dict | list):
            return f" {flow(value)}"
        if isinstance(value, dict):
            return f"\n{self.table(value, column + self.unit)}"
        dash = column + self.list_indent
        return "".join(f"\n{' ' * dash}- {self._item(item, dash + 2)}" for item in value)

    def _item(self, item: Any, column: int) -> str:
        return self.table(item, column).lstrip() if item and isinstance(item, dict) else flow(item)


def flow(value: Any) -> str:
    """Write a value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and _tag_of(value) == _STR:
        return value
    style = '"' if isinstance(value, str) else None
    text: str = yaml.safe_dump(value, default_style=style, width=math.inf, allow_unicode=True)
    return text.removesuffix("...\n").rstrip("\n")


def _tag_of(plain: str) -> str:
    resolver: Any = yaml.SafeLoader("")
    tag: str = resolver.resolve(yaml.ScalarNode, plain, (True, False))
    return tag


def _indents(text: str, node: Node, kind: type) -> Iterator[int]:
    """Yield how far block collections of a kind are indented below their keys."""
    for entry in node.entries:
        inner = entry.node
        is_below = node.block and inner.block and isinstance(entry.key, str)
        if is_below and isinstance(inner.value, kind):
            key, first = entry.start, inner.entries[0].start
            yield len(spans.line_indent(text, first)) - len(spans.line_indent(text, key))
        yield from _indents(text, inner, kind)


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _parse(text: str) -> Node:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None or (root.tag == _NULL and not root.value):
            return Node(len(text), len(text), {})
        return _Places(text).node(root)
    except yaml.reader.ReaderError as error:
        raise Malformed(error.reason, *position(text, error.position)) from error
    except yaml.composer.ComposerError as error:
        problem = error.problem
        if error.context and "single document" in error.context:
            problem = "a second document begins here, and only files of one are edited"
        raise _malformed(problem, error.problem_mark) from error
    except yaml.MarkedYAMLError as error:
        raise _malformed(error.problem, error.problem_mark) from error


def _malformed(problem: str | None, mark: yaml.Mark | None) -> Malformed:
    line, column = (mark.line, mark.column) if mark else (0, 0)
    return Malformed(problem or "not YAML", line + 1, column + 1)


class _Places:
    """Turns PyYAML's nodes into ours. Its block collections end where the next thing begins,
    behind the comments in between; ours end with their last value."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.done: dict[int, Node] = {}
        self.seen: set[int] = set()
        self.loader = yaml.SafeLoader("")

    def node(self, node: yaml.Node, after: int = 0) -> Node:
        """Return the node, whose text begins behind `after` unless it is an alias."""
        if id(node) in self.seen:
            return self._alias(node, after)
        self.seen.add(id(node))
        start, end = node.start_mark.index, node.end_mark.index
        value: Any
        if isinstance(node, yaml.MappingNode):
            entries = tuple(self._keys(node))
            value = {entry.key: entry.node.value for entry in entries}
        elif isinstance(node, yaml.SequenceNode):
            entries = tuple(self._items(node, start))
            value = [entry.node.value for entry in entries]
        else:
            entries, value = (), self._scalar(node)
            end = start + len(self.text[start:end].rstrip())
        block = isinstance(node, yaml.CollectionNode) and not node.flow_style
        if block:
            end = entries[-1].node.end
        self.done[id(node)] = Node(start, end, value, entries, block)
        return self.done[id(node)]

    def _alias(self, node: yaml.Node, after: int) -> Node:
        if id(node) not in self.done:
            raise _malformed("an alias refers to what it is part of", node.start_mark)
        match = _ALIAS.search(self.text, after)
        start, end = match.span() if match else (after, after)
        return Node(start, end, self.done[id(node)].value)  # no entries: edit the original

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self.loader.construct_object(node, deep=True)
        except ValueError as error:  # such as a date in a thirteenth month
            raise _malformed(str(error), node.start_mark) from error

    def _keys(self, node: yaml.MappingNode) -> Iterator[Entry]:
        keys = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _malformed("a key that is not a scalar", key.start_mark)
            if key.value in keys:
                raise _malformed(f'key "{key.value}" is there twice', key.start_mark)
            keys.add(key.value)
            key_end = key.end_mark.index
            place = self.node(value, key_end)
            yield Entry(key.value, key.start_mark.index, key_end, place)

    def _items(self, node: yaml.SequenceNode, after: int) -> Iterator[Entry]:
        for index, item in enumerate(node.value):
            place = self.node(item, after)
            start = place.start
            if not node.flow_style:
                start = self.text.rfind("-", after, start)
            yield Entry(index, start, start, place)
            after = place.end
