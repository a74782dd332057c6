# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where each value of a document is in its text, and edits between brackets.

Shared by JSON and YAML: both find the place of a key and replace just that, so every other
byte of the text stays. Only YAML has *block* collections, which have no brackets; it edits
those itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from .document_model import NotEditable, Path, show


class Entry(NamedTuple):
    """A key with its value, or an item of a list."""

    key: str | int
    start: int  # of the key, of the item, or in a YAML block list of its dash
    key_end: int  # `start` for an item
    node: Node


@dataclass(frozen=True)
class Node:
    """A value and its place: `text[start:end]`."""

    start: int
    end: int
    value: Any  # plain data
    entries: tuple[Entry, ...] = ()
    block: bool = False


def entry(node: Node, key: str | int) -> Entry | None:
    return next((entry for entry in node.entries if entry.key == key), None)


def find(root: Node, path: Path) -> Node:
    """Return the value at a path. Raises NotEditable where it is not in the text, such as
    behind an alias."""
    for depth, key in enumerate(path, 1):
        found = entry(root, key)
        if found is None:
            raise NotEditable(f"{show(path[:depth])} is not written in its place")
        root = found.node
    return root


def index_of(node: Node, key: str | int) -> int:
    """Return how many entries are before that of a key. Raises NotEditable as `find` does."""
    for index, entry in enumerate(node.entries):
        if entry.key == key:
            return index
    raise NotEditable(f"{key} is not written in its place")


def line_indent(text: str, index: int) -> str:
    """Return the white space at the beginning of the line that `index` is in."""
    line = text[text.rfind("\n", 0, index) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def is_inline(text: str, node: Node) -> bool:
    """Say whether a collection in brackets has its first entry on the line of its bracket."""
    return bool(node.entries) and "\n" not in text[node.start : node.entries[0].start]


def splice(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


def add(text: str, node: Node, index: int, item: str, comma: str = ", ") -> str:
    """Write an item into a collection in brackets that is not empty."""
    first = node.entries[0].start
    if not is_inline(text, node):
        comma = ",\n" + line_indent(text, first)
    if index < len(node.entries):
        at = node.entries[index].start
        return splice(text, at, at, item + comma)
    at = node.entries[-1].node.end
    return splice(text, at, at, comma + item)


def cut(text: str, node: Node, key: str | int) -> str:
    """Take an entry out of a collection in brackets, with the comma that it no longer needs."""
    entries, index = node.entries, index_of(node, key)
    if len(entries) == 1:
        return splice(text, node.start + 1, node.end - 1, "")
    if index == 0:
        return splice(text, entries[0].start, entries[1].start, "")
    return splice(text, entries[index - 1].node.end, entries[index].node.end, "")
