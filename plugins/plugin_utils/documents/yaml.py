# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""YAML: edited in place.

The parser's events have the place of each value, and only that text is replaced. Comments, quotes,
alignment and long lines stay as they are. (Round-tripping libraries rewrite the whole document.
They attach the comment above a key to the key before it, and remove it with that key.)

New strings are quoted unless every version of YAML reads them as strings.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import spans
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    Malformed,
    NotEditable,
    Path,
    Reading,
    Table,
    origins,
    position,
    same,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.spans import (
    Entry,
    Node,
    Splice,
    line_start,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.yaml_reader import Reader, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HEADER = re.compile(r"(?:[&!]\S*\s+)*(?P<style>[|>])[-+]?(?P<indent>[1-9]?)[-+]?")
_PLAIN = re.compile(r"(?![yn]$)[A-Za-z/][\w./-]*", re.ASCII | re.IGNORECASE)


def read(text: str) -> Reading:
    """Return the document; a text without a value is an empty document. Raises Malformed."""
    root, obstacle = Reader(text).read()
    if not isinstance(root.value, dict):
        raise Malformed("the document is not a mapping", *position(text, root.start))
    return Reading(root.value, obstacle)


def edit(text: str, desired: Table) -> str:
    """Edit the text so that its content is `desired`."""
    if text and not text.endswith("\n"):
        text = _with_newline(text)
    root, _obstacle = Reader(text).read()
    return spans.spliced(text, _Editor(text, root).edit(root, desired, ()))


def _with_newline(text: str) -> str:
    """Return the text with a newline at its end, and with the same content.

    A newline belongs to the value of a literal or folded block that ends the text. Then the header
    of the block gets another indicator: `-` strips newlines at the end, none keeps one.
    """
    node, _obstacle = Reader(text).read()
    content = node.value
    while node.entries:
        node = node.entries[-1].node
    header = _HEADER.match(text, node.start)
    texts = [f"{text}\n"]
    if header:
        begin, end = (f"{text[: header.end('style')]}{header['indent']}", text[header.end() :])
        texts += [f"{begin}{sign}{end}\n" for sign in ("-", "")]
    for candidate in texts:
        if same(Reader(candidate).read()[0].value, content):
            return candidate
    raise NotEditable("the file does not end with a newline. Add one")


class _Editor:
    """Finds the splices in block collections; `spans` edits those in brackets."""

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self.writer = _Writer(text, root)

    def edit(self, node: Node, desired: Any, path: Path) -> Iterator[Splice]:
        """Yield the splices that change a block collection or the whole document."""
        text = self.text
        if same(node.value, desired):
            return
        if not node.block and not node.value:  # empty, or only `{}`
            block = self.writer.table(desired, 0)
            yield Splice(node.start, node.end, block if node.end > node.start else f"{block}\n")
        elif not node.block:
            yield from spans.edit_brackets(text, node, desired, _Flow(), None, path)
        elif not desired:
            yield Splice(node.start, node.end, flow(desired))
        elif isinstance(desired, dict):
            yield from self._edit_table(node, desired, path)
        else:
            yield from self._edit_list(node, desired, path)

    def _edit_table(self, node: Node, desired: Table, path: Path) -> Iterator[Splice]:
        spans.check_places(node, path)
        kept = [entry for entry in node.entries if entry.key in desired]
        for entry in kept:
            yield from self._edit_value(entry, desired[str(entry.key)], self._column(entry), path)
        yield from self._take_out(node, kept)
        new = {key: value for key, value in desired.items() if key not in node.value}
        if new:
            at = self._line_behind(node.end)
            block = self.writer.table(new, self._column(node.entries[0]))
            yield Splice(at, at, f"{block}\n")

    def _edit_value(self, entry: Entry, desired: Any, column: int, path: Path) -> Iterator[Splice]:
        """Yield the splices that change the value of a key in a block table."""
        text, old, path = self.text, entry.node, (*path, entry.key)
        is_collection = bool(desired) and isinstance(desired, dict | list)
        if same(old.value, desired):
            return
        if type(old.value) is type(desired) and is_collection and (old.block or old.value):
            yield from self.edit(old, desired, path)
            return
        is_list_in_brackets = isinstance(desired, list) and text[old.start : old.start + 1] == "["
        if is_list_in_brackets:
            yield from spans.edit_brackets(text, old, desired, _Flow(), None, path)
        elif is_collection or old.block or old.start == old.end or text[old.start] in "|>":
            yield Splice(entry.key_end, old.end, ":" + self.writer.value(desired, column))
        else:
            yield Splice(old.start, old.end, flow(desired))

    def _edit_list(self, node: Node, desired: list[Any], path: Path) -> Iterator[Splice]:
        spans.check_places(node, path)
        entries, column = node.entries, self._column(node.entries[0])
        before: Entry | None = None
        kept, first = [], []
        for old, item in zip(origins(node.value, desired), desired, strict=True):
            if old is not None:
                before = entries[old]
                kept.append(before)
                yield from self.edit(before.node, item, (*path, old))
                continue
            new = f"- {self.writer.item(item, column + 2)}\n"
            if before is None:
                first.append(new)
            else:
                at = self._line_behind(before.node.end)
                yield Splice(at, at, " " * column + new)
        yield from self._take_out(node, kept, first)

    def _take_out(self, node: Node, kept: list[Entry], new: Sequence[str] = ()) -> Iterator[Splice]:
        """Remove the lines of the other entries, and insert new ones before the first.

        Comments on separate lines stay.
        """
        text, first = self.text, node.entries[0]
        staying = {entry.key for entry in kept}
        gone = [entry for entry in node.entries if entry.key not in staying]
        if text[line_start(text, first.start) : first.start].strip():
            yield self._begin_behind_dash(first, gone, kept, new)
            gone = [entry for entry in gone if kept and entry.start > kept[0].start]
        elif new:
            at = line_start(text, (kept or [first])[0].start)
            while text[line_start(text, at - 1) : at].lstrip().startswith("#"):
                at = line_start(text, at - 1)
            indent = " " * self._column(first)
            yield Splice(at, at, "".join(indent + item for item in new))
        for entry in gone:
            start = line_start(text, entry.start)
            yield Splice(start, self._line_behind(entry.node.end), "")

    def _begin_behind_dash(
        self, first: Entry, gone: list[Entry], kept: list[Entry], new: Sequence[str]
    ) -> Splice:
        """Insert new items at the start of a collection whose first line has the dash of a list.

        Removes the entries before the first kept one.
        """
        text, indent = self.text, " " * self._column(first)
        if kept and kept[0] is first:
            return Splice(first.start, first.start, "".join(item + indent for item in new))
        if not kept:
            end = gone[-1].node.end
            return Splice(first.start, end, indent.join(new).rstrip("\n"))
        following = kept[0].start
        comments = text[self._line_behind(first.node.end) : line_start(text, following)]
        for entry in gone[1:]:
            if entry.start < following:
                start = line_start(text, entry.start)
                comments = comments.replace(text[start : self._line_behind(entry.node.end)], "", 1)
        begin = "".join(item + indent for item in new)
        if not comments.strip():
            return Splice(first.start, following, begin)
        start = first.start if new else len(text[: first.start].rstrip())
        return Splice(start, line_start(text, following), f"{begin.rstrip()}\n{comments}")

    def _column(self, entry: Entry) -> int:
        return entry.start - line_start(self.text, entry.start)

    def _line_behind(self, index: int) -> int:
        return self.text.index("\n", index) + 1


class _Flow:
    """How values are written on one line, also between brackets."""

    comma = ", "

    def value(self, value: Any, indent: str | None) -> str:
        return flow(value)

    def pair(self, key: str, value: Any, indent: str | None) -> str:
        return f"{flow(key)}: {flow(value)}"

    def indent(self, text: str, node: Node) -> str | None:
        return None


class _Writer:
    """Writes new blocks with the indentation of the document."""

    def __init__(self, text: str, root: Node) -> None:
        self.unit = next(_indents(text, root, dict), 2)
        self.list_indent = next(_indents(text, root, list), 0)

    def table(self, table: Table, column: int) -> str:
        """Write the keys of a table, each at `column`; without a newline at the end."""
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
        return "".join(f"\n{' ' * dash}- {self.item(item, dash + 2)}" for item in value)

    def item(self, item: Any, column: int) -> str:
        """Write what follows the dash of an item, whose further lines start at `column`."""
        return self.table(item, column).lstrip() if item and isinstance(item, dict) else flow(item)


def flow(value: Any) -> str:
    """Write a value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and _is_string_to_all(value):
        return value
    style = '"' if isinstance(value, str) else None
    text: str = yaml.safe_dump(value, default_style=style, width=math.inf, allow_unicode=True)
    return text.removesuffix("...\n").rstrip("\n")


def _is_string_to_all(plain: str) -> bool:
    resolver: Any = yaml.SafeLoader("")
    tag: str = resolver.resolve(yaml.ScalarNode, plain, (True, False))
    return tag == "tag:yaml.org,2002:str" and resolve(plain) == plain


def _indents(text: str, node: Node, kind: type) -> Iterator[int]:
    """Yield the indentation of block collections of a kind below their keys."""
    for entry in node.entries:
        inner = entry.node
        is_below = node.block and inner.block and isinstance(entry.key, str)
        if is_below and isinstance(inner.value, kind):
            key, first = entry.start, inner.entries[0].start
            yield (first - line_start(text, first)) - (key - line_start(text, key))
        yield from _indents(text, inner, kind)
