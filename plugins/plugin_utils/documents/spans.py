# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The place of each value of a document in its text, and edits between brackets.

All languages share this: an edit is a list of splices, and every byte outside of them stays. YAML's
*block* collections and TOML's tables with headers have no brackets. The modules of those languages
edit them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    NotEditable,
    Path,
    origins,
    same,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A comment after an entry on the same line, with the comma before it.
_COMMENT = re.compile(r"[ \t]*(,)?[ \t]*#[^\n]*")
_REST_OF_LINE = re.compile(r"[ \t]*,?[ \t]*(?:#[^\n]*)?")
_INDENT = re.compile(r"[ \t]*")
_LINE_BREAK = re.compile(r"\n[ \t]*")


class Entry(NamedTuple):
    """A key with its value, or an item of a list."""

    key: str | int
    start: int  # of the key or of the item; in a YAML block list, of its dash
    key_end: int  # `start` for an item
    node: Node


class Node(NamedTuple):
    """A value and its place: `text[start:end]`."""

    start: int
    end: int
    value: Any  # plain data
    entries: tuple[Entry, ...] = ()
    block: bool = False
    fixed: bool = False  # its entries are not written here, as with an alias


class Splice(NamedTuple):
    """Replace `text[start:end]`."""

    start: int
    end: int
    new: str


class Style(Protocol):
    """How a language writes values between brackets. `indent` None means on one line."""

    comma: str

    def value(self, value: Any, indent: str | None) -> str:
        """Return a value as the language writes it."""

    def pair(self, key: str, value: Any, indent: str | None) -> str:
        """Return an entry of a mapping as the language writes it."""

    def indent(self, text: str, node: Node) -> str | None:
        """Return the indentation of the lines of new entries."""


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """Apply splices that do not overlap. At the same place, earlier ones come first."""
    parts, done = [], 0
    for start, end, new in sorted(splices, key=lambda splice: (splice.start, splice.end)):
        parts += [text[done:start], new]
        done = end
    return "".join((*parts, text[done:]))


def line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def line_indent(text: str, index: int) -> str:
    """Return the white space at the start of the line of `index`."""
    match = _INDENT.match(text, line_start(text, index))
    return match[0] if match else ""


def is_inline(text: str, node: Node) -> bool:
    """Tell whether a collection has its first entry on the line of its opening bracket."""
    return bool(node.entries) and "\n" not in text[node.start : node.entries[0].start]


def check_places(node: Node, path: Path) -> None:
    """Raise NotEditable if the entries of a collection are not written in its place."""
    if node.fixed:
        raise NotEditable(f"{show(path)} is written through an alias, a merge key or a dotted key")


def edit_brackets(
    text: str, node: Node, desired: Any, style: Style, indent: str | None, path: Path
) -> Iterator[Splice]:
    """Yield the splices that change a value. `indent` is that of the value's line."""
    if same(node.value, desired):
        return
    if not isinstance(desired, dict | list) or type(node.value) is not type(desired):
        yield Splice(node.start, node.end, style.value(desired, indent))
        return
    check_places(node, path)
    inner = style.indent(text, node)
    # The content of the edited collection: indices of kept entries, and texts of new ones.
    slots: list[int | str] = []
    for old, key, value in _pairs(node, desired):
        if old is None and isinstance(key, str):
            slots.append(style.pair(key, value, inner))
        elif old is None:
            slots.append(style.value(value, inner))
        else:
            slots.append(old)
            entry = node.entries[old]
            yield from edit_brackets(text, entry.node, value, style, inner, (*path, entry.key))
    if node.entries:
        yield from _arrange(text, node, slots, style)
    else:
        yield _fill(text, node, [str(slot) for slot in slots], inner)


def _pairs(node: Node, desired: Any) -> Iterator[tuple[int | None, str | int, Any]]:
    """Yield the index of each entry (None: new) with its key and its desired value."""
    if isinstance(desired, list):
        found = origins(node.value, desired)
        yield from ((old, index, desired[index]) for index, old in enumerate(found))
        return
    for index, entry in enumerate(node.entries):
        if entry.key in desired:
            yield index, entry.key, desired[entry.key]
    for key, value in desired.items():
        if key not in node.value:
            yield None, key, value


def _fill(text: str, node: Node, items: list[str], indent: str | None) -> Splice:
    """Write the first entries between the brackets."""
    outer = line_indent(text, node.end)
    comment = text.find("#", node.start, node.end)
    if comment > 0:  # in TOML and YAML
        at, indent = line_start(text, node.end), line_indent(text, comment)
        return Splice(at, at, indent + f",\n{indent}".join(items) + "\n")
    if indent is None:
        return Splice(node.start + 1, node.end - 1, ", ".join(items))
    lines = f",\n{indent}".join(items)
    return Splice(node.start + 1, node.end - 1, f"\n{indent}{lines}\n{outer}")


def _arrange(text: str, node: Node, slots: list[int | str], style: Style) -> Iterator[Splice]:
    """Remove the entries without a slot and insert new ones, in a collection with entries."""
    entries = node.entries
    kept = [slot for slot in slots if isinstance(slot, int)]
    indent = None if is_inline(text, node) else line_indent(text, entries[0].start)
    comma = style.comma if indent is None else f",\n{indent}"
    if not slots:
        yield Splice(node.start + 1, node.end - 1, "")
    elif not kept:
        yield Splice(entries[0].start, entries[-1].node.end, comma.join(map(str, slots)))
    else:
        yield from _take_out(text, entries, kept)
        yield from _put_in(text, node, slots, comma)


def _take_out(text: str, entries: tuple[Entry, ...], kept: list[int]) -> Iterator[Splice]:
    """Remove entries and their commas. Comments of other entries stay."""
    first = kept[0]
    if first > 0:
        end, following = entries[first - 1].node.end, entries[first].start
        if "#" in text[end:following] and (line := _LINE_BREAK.match(text, _behind(text, end))):
            following = line.end()
        yield Splice(entries[0].start, following, "")
    for last, index in pairwise((*kept, len(entries))):
        if index == last + 1:
            continue
        before, start = entries[last].node.end, entries[last + 1].start
        end = entries[index - 1].node.end
        if "#" not in text[before:start]:
            yield Splice(before, end, "")
            continue
        # The comma before the entry has a comment after it. It stays: a trailing comma is valid.
        own = line_start(text, start)
        yield Splice(own - 1 if text[own:start].isspace() else start, _behind(text, end), "")


def _behind(text: str, end: int) -> int:
    """Return the end of the comma and the comment after an entry."""
    match = _REST_OF_LINE.match(text, end)
    return match.end() if match else end


def _put_in(text: str, node: Node, slots: list[int | str], comma: str) -> Iterator[Splice]:
    """Insert new entries after their predecessors, or before the first entry."""
    before: Entry | None = None
    new: list[str] = []
    for slot in (*slots, None):
        if isinstance(slot, str):
            new.append(slot)
            continue
        if new and before:
            yield from _put_behind(text, before.node.end, new, comma)
        elif new:
            yield _put_first(text, node, new, comma)
        new = []
        before = None if slot is None else node.entries[slot]


def _put_first(text: str, node: Node, new: list[str], comma: str) -> Splice:
    first = node.entries[0].start
    if "#" in text[node.start : first] and "\n" in comma:
        at = node.start + 1  # above the comment about the first entry
        return Splice(at, at, "".join(f"{comma[1:]}{item}," for item in new))
    return Splice(first, first, "".join(item + comma for item in new))


def _put_behind(text: str, at: int, new: list[str], comma: str) -> Iterator[Splice]:
    comment = _COMMENT.match(text, at)
    if comment is None:
        yield Splice(at, at, "".join(comma + item for item in new))
        return
    # The comment stays on the line of its entry.
    if not comment[1]:
        yield Splice(at, at, ",")
    line_break = f"\n{line_indent(text, at)}" if "\n" not in comma else comma[1:]
    lines = f",{line_break}".join(new)
    yield Splice(comment.end(), comment.end(), f"{line_break}{lines}{comment[1] or ''}")
