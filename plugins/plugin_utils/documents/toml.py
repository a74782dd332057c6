# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""TOML: edited expression by expression.

Whole expressions are lines, which this module adds and removes. The inside of a value is edited
between its brackets. The rest of the text stays. (Libraries that round-trip TOML remove the comment
above the next table together with a table, and cannot edit tables that are spread over the file.)
"""

from __future__ import annotations

import datetime
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import spans, toml_reader
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    NotEditable,
    Path,
    Reading,
    Table,
    copied,
    origins,
    same,
    show,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.spans import (
    Node,
    line_indent,
    line_start,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.toml_reader import (
    Expression,
    split,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def read(text: str) -> Reading:
    """Return the document. Raises Malformed."""
    content, obstacle = toml_reader.read(text)
    return Reading(copied(content), obstacle)


def edit(text: str, desired: Table) -> str:
    """Edit the text so that its content is `desired`. Raises NotEditable."""
    if text and not text.endswith("\n"):
        text += "\n"
    content = toml_reader.read(text).content
    written = {one.path for one in split(text) if not one.is_header}
    for step in list(_steps(content, desired, (), written)):
        text = _carry_out(text, step)
    return text


class _Put(NamedTuple):
    """Set a key of a table, new or existing."""

    path: Path
    value: Any


class _Drop(NamedTuple):
    """Remove a key from its table."""

    path: Path


class _Insert(NamedTuple):
    """Insert a table into a list of tables with headers, before the one at `place`."""

    path: Path
    place: int
    value: Table


class _Take(NamedTuple):
    """Remove a table from a list of tables with headers."""

    path: Path
    place: int


_Step = _Put | _Drop | _Insert | _Take


def _steps(before: Table, after: Table, path: Path, written: set[Path]) -> Iterator[_Step]:
    """Yield the steps that turn one table into the other.

    Additions come first, so that no table or list becomes empty in between. `written` has the keys
    with a value. Everything else is a table, or a list of tables, that headers define.
    """
    for key, value in after.items():
        place, old = (*path, key), before.get(key)
        if key in before and same(old, value):
            continue
        has_headers = key in before and place not in written
        if has_headers and isinstance(old, dict) and isinstance(value, dict):
            yield from _steps(old, value, place, written)
        elif has_headers and isinstance(old, list) and isinstance(value, list):
            yield from _list_steps(old, value, place, written)
        else:
            _refuse_null(value, place)
            yield _Put(place, value)
    for key in before:
        if key not in after:
            yield _Drop((*path, key))


def _list_steps(
    before: list[Any], after: list[Any], path: Path, written: set[Path]
) -> Iterator[_Step]:
    """Yield the steps for a list of tables, from its end, so that the indices before stay."""
    at = len(before)
    found = origins(before, after)
    if not all(isinstance(item, dict) for item in after):
        if any(old is not None for old in found):
            raise NotEditable(f"{show(path)} has tables with headers and cannot hold other values")
        yield _Put(path, after)
        return
    for old, item in reversed(list(zip(found, after, strict=True))):
        if old is None:
            _refuse_null(item, path)
            yield _Insert(path, at, item)
            continue
        yield from (_Take(path, index) for index in reversed(range(old + 1, at)))
        yield from _steps(before[old], item, (*path, old), written)
        at = old
    yield from (_Take(path, index) for index in reversed(range(at)))


def _carry_out(text: str, step: _Step) -> str:
    expressions = split(text)
    match step:
        case _Put(path, value):
            values = (value_of(text, one) for one in expressions if one.path == path)
            node = next(filter(None, values), None)
            becomes_table = isinstance(value, dict)
            if node and becomes_table <= isinstance(node.value, dict):
                edits = spans.edit_brackets(text, node, value, _Inline(), None, path)
                return spans.spliced(text, edits)
            if any(_is_under(one, path) for one in expressions):
                text = _drop(text, expressions, path)
                expressions = split(text)
            return _add(text, expressions, path, value)
        case _Drop(path):
            text = _drop(text, expressions, path)
            if any(one.path == path and not one.is_header for one in expressions):
                text = _drop_bare_header(text, path[:-1])
            return _ensure(text, path[:-1], {})
        case _Insert(path, place, value):
            return _insert(text, expressions, path, place, value)
        case _Take(path, place):
            text = _drop(text, expressions, (*path, place))
            return _ensure(text, path, [])


def _ensure(text: str, path: Path, empty: Any) -> str:
    """Write an empty table or list that has lost its last entry, unless it has a header.

    A table without a header exists only while it has entries.
    """
    expressions = split(text)
    if not path or any(_is_under(one, path) for one in expressions):
        return text
    return _add(text, expressions, path, empty)


def _is_under(expression: Expression, path: Path) -> bool:
    return expression.path[: len(path)] == path


def _drop(text: str, expressions: Sequence[Expression], path: Path) -> str:
    """Remove everything under a path. Comments on separate lines stay."""
    edits = []
    for one in expressions:
        if _is_under(one, path):
            is_apart = one.is_header and text.endswith("\n\n", 0, one.start)
            edits.append(spans.Splice(one.start - is_apart, one.end, ""))
    return spans.spliced(text, edits)


def _drop_bare_header(text: str, path: Path) -> str:
    """Remove the header of a table that has lost its last value, and that its subtables define.

    Such a header stands where a value was added to a table without one. A comment keeps it.
    """
    expressions = split(text)
    under = [one for one in expressions if _is_under(one, path)]
    header = next((one for one in under if one.is_header and one.path == path), None)
    if header is None or isinstance(path[-1], int) or all(one is header for one in under):
        return text
    if any(one.table == path and not one.is_header for one in under):
        return text
    following = (one.start for one in expressions if one.start > header.start)
    lines = text[header.start : next(following, len(text))]
    if "#" in lines:
        return text
    rest = _drop(text, [header], path)
    return rest if header.start else rest.removeprefix("\n")


def _add(text: str, expressions: Sequence[Expression], path: Path, value: Any) -> str:
    """Write a new key into an existing table."""
    parent = path[:-1]
    if isinstance(value, dict):
        return _add_tables(text, expressions, path, value)
    below = [one for one in expressions if one.table == parent]
    if not below:
        below = [one for one in expressions if _is_under(one, parent) and not one.is_header]
        below = [one for one in below if len(one.table) < len(parent)]  # through dotted keys
    if below:
        last = below[-1]
        keys = path[len(last.table) :]
        return _insert_line(text, last.end, line_indent(text, last.start), keys, value)
    if parent:  # a table without a header, which only its entries define
        return _add_tables(text, expressions, parent, {str(path[-1]): value})
    return _add_first(text, expressions, path, value)


def _insert_line(text: str, at: int, indent: str, keys: Path, value: Any) -> str:
    line = f"{indent}{_dotted(text, keys)} = {_write(value)}\n"
    return spans.spliced(text, [spans.Splice(at, at, line)])


def _add_first(text: str, expressions: Sequence[Expression], path: Path, value: Any) -> str:
    """Write the first key outside of any table: above the comment of the first table."""
    if not expressions:
        return _insert_line(text, len(text), "", path, value)
    at = _above(text, expressions[0])
    return _insert_line(spans.spliced(text, [spans.Splice(at, at, "\n")]), at, "", path, value)


def _above(text: str, expression: Expression) -> int:
    """Return the start of the comment above an expression."""
    at = expression.start
    while text[line_start(text, at - 1) : at].lstrip().startswith("#"):
        at = line_start(text, at - 1)
    return at


def _add_tables(text: str, expressions: Sequence[Expression], path: Path, table: Table) -> str:
    """Write a table and its subtables, after the tables that share the longest key path."""
    at, indent, inner = len(text), "", ""
    for length in range(len(path), 0, -1):
        related = [one for one in expressions if one.table[:length] == path[:length]]
        if related:
            at = related[-1].end
            indent, inner = _indents(text, related)
            break
    new = _headers(text, path, table, indent, inner, "[{}]")
    return spans.spliced(text, [spans.Splice(at, at, new if text[:at] else new[1:])])


def _insert(
    text: str, expressions: Sequence[Expression], path: Path, place: int, table: Table
) -> str:
    """Write one more table of a list, with its subtables."""
    before = [one for one in expressions if place and _is_under(one, (*path, place - 1))]
    if before:
        new = _headers(text, path, table, *_indents(text, before), "[[{}]]")
        at = before[-1].end
    else:
        first = [one for one in expressions if _is_under(one, (*path, 0))]
        new = _headers(text, path, table, *_indents(text, first), "[[{}]]")[1:] + "\n"
        at = _above(text, first[0])
    return spans.spliced(text, [spans.Splice(at, at, new)])


def _indents(text: str, expressions: Sequence[Expression]) -> tuple[str, str]:
    """Return the indentation of the last header, and of the keys below it."""
    header = next(one for one in reversed(expressions) if one.is_header)
    within = (one for one in expressions if not one.is_header and one.table == header.path)
    return line_indent(text, header.start), line_indent(text, next(within, header).start)


def _headers(text: str, path: Path, table: Table, indent: str, inner: str, brackets: str) -> str:
    """Write a table and its subtables, each after a blank line."""
    lines = []
    for keys, values in _tables(path, table, is_first=brackets == "[[{}]]"):
        form = brackets if keys == path else "[{}]"
        lines.append(f"\n{indent}{form.format(_dotted(text, keys))}\n")
        lines += [
            f"{inner}{_dotted(text, (key,))} = {_write(value)}\n" for key, value in values.items()
        ]
    return "".join(lines)


def _tables(path: Path, table: Table, *, is_first: bool = False) -> Iterator[tuple[Path, Table]]:
    """Yield each table that needs a header, with the values below it."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if values or not table or is_first:
        yield path, values
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _tables((*path, key), value)


def _dotted(text: str, keys: Path) -> str:
    """Write a key path, with the kind of quotes that the headers of the text have."""
    literal = re.search(r"^\s*\[[^\"\n]*'", text, re.MULTILINE)
    names = []
    for key in keys:
        if isinstance(key, int):
            continue
        if re.fullmatch(r"[A-Za-z0-9_-]+", key):
            names.append(key)
        elif literal and key.isprintable() and "'" not in key:
            names.append(f"'{key}'")
        else:
            names.append(_write(key))
    return ".".join(names)


class _Inline:
    """How values are written between brackets."""

    comma = ", "

    def value(self, value: Any, indent: str | None) -> str:
        return _write(value)

    def pair(self, key: str, value: Any, indent: str | None) -> str:
        return f"{_dotted('', (key,))} = {_write(value)}"

    def indent(self, text: str, node: Node) -> str | None:
        return None


def _write(value: Any) -> str:
    """Write a value as it follows an equals sign."""
    if isinstance(value, dict):
        pairs = ", ".join(_Inline().pair(key, item, None) for key, item in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date | datetime.time):  # a datetime is also a date
        return value.isoformat()
    return str(value)


def _refuse_null(value: Any, path: Path) -> None:
    if value is None:
        raise NotEditable(f"{show(path)}: TOML has no null")
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        _refuse_null(item, (*path, key))
