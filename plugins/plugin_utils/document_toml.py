# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""TOML: judged and decoded by the standard library, edited expression by expression.

An expression is a table header or a key with its value. tomlkit edits within an expression, where
its care for comments and layout is needed; whole expressions are lines, which are added and
taken out here. Left to tomlkit, a table goes together with the comments that
introduce the next one, and tables that are spread over the file cannot all be edited.

Source: https://toml.io/en/v1.0.0
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from .document_model import (
    Drop,
    Insert,
    LibraryMissing,
    Malformed,
    NotEditable,
    Path,
    Put,
    Step,
    Table,
    Take,
    show,
)
from .document_spans import line_indent, splice

try:
    import tomlkit
except ImportError as error:
    TOMLKIT_ERROR: ImportError | None = error
else:
    TOMLKIT_ERROR = None

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def parse(text: str) -> Table:
    """Return the document. Raises Malformed."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem, lines = str(error), text.split("\n")
        line, column = len(lines), len(lines[-1]) + 1
        if place := _PLACE.search(problem):
            problem = problem[: place.start()]
            if place[1]:
                line, column = int(place[1]), int(place[2])
        raise Malformed(problem, line, column) from error


def edit(text: str, steps: Iterable[Step]) -> str:
    """Carry out the steps on the text. Raises LibraryMissing, NotEditable."""
    require_tomlkit()
    if text and not text.endswith("\n"):
        text += "\n"
    for step in steps:
        if isinstance(step, Put | Insert):
            _refuse_null(step.value, step.path)
        text = _edit(text, step)
    return text


def require_tomlkit() -> None:
    """Raise LibraryMissing unless tomlkit can be imported."""
    if TOMLKIT_ERROR:
        raise LibraryMissing(
            "editing TOML needs the Python package tomlkit on the controller: pip install tomlkit"
        ) from TOMLKIT_ERROR


class _Expression(NamedTuple):
    """A header or a key with its value: `text[start:end]`, whole lines."""

    start: int
    end: int
    table: Path  # of the header it is below; () at the top of the file
    path: Path  # complete; for a header that of its table
    is_header: bool


def _edit(text: str, step: Step) -> str:
    expressions = list(_expressions(text))
    holder = next((e for e in expressions if _holds(e, step)), None)
    if holder:
        return splice(text, holder.start, holder.end, _edit_within(text, holder, step))
    match step:
        case Put(path, value):
            if any(_is_under(expression, path) for expression in expressions):
                text = _drop(text, expressions, path)
                expressions = list(_expressions(text))
            return _add(text, expressions, path, value)
        case Drop(path):
            text = _drop(text, expressions, path)
            expressions = list(_expressions(text))
            if path[1:] and not any(_is_under(e, path[:-1]) for e in expressions):
                return _add(text, expressions, path[:-1], {})  # the table had no header
            return text
    raise NotEditable(f"{show(step.path)} is not written in one place")


def _expressions(text: str) -> Iterator[_Expression]:
    """Split a valid text. Every expression is a valid document of its own, and no part
    of one that ends with a line is."""
    start = end = 0
    table: Path = ()
    while end < len(text):
        end = text.index("\n", end) + 1
        try:
            data = tomllib.loads(text[start:end])
        except tomllib.TOMLDecodeError:
            continue
        if data:
            is_header = text[start:end].lstrip().startswith("[")
            keys = _keys(data if is_header else _key_of(text[start:end]))
            table = keys if is_header else table
            yield _Expression(start, end, table, keys if is_header else table + keys, is_header)
        start = end


def _key_of(expression: str) -> Table:
    """Return the nested tables that a key, dotted or not, stands for."""
    for equals in re.finditer("=", expression):
        try:
            return tomllib.loads(f"{expression[: equals.start()]}= 0")
        except tomllib.TOMLDecodeError:  # within quotes
            continue
    raise NotEditable(f"no key in {expression!r}")


def _keys(nested: Any) -> Path:
    keys = []
    while isinstance(nested, dict) and nested:
        [(key, nested)] = nested.items()
        keys.append(key)
    return tuple(keys)


def _is_under(expression: _Expression, path: Path) -> bool:
    return expression.path[: len(path)] == path


def _holds(expression: _Expression, step: Step) -> bool:
    """Say whether the expression is the only one that the step is about."""
    if expression.is_header or step.path[: len(expression.path)] != expression.path:
        return False
    if expression.path == step.path and isinstance(step, Put):
        return not isinstance(step.value, dict)
    return expression.path != step.path or isinstance(step, Insert | Take)


def _edit_within(text: str, expression: _Expression, step: Step) -> str:
    """Return the text of the expression after the step."""
    document = tomlkit.parse(text[expression.start : expression.end])
    below = len(expression.table)
    found: Any = document
    *outer, name = step.path[below:]
    for key in outer:
        found = found[key]
    match step:
        case Put(_, value):
            found[name] = _item(value)
        case Drop(_):
            del found[name]
        case Insert(_, index, value):
            found[name].insert(index, value)
        case Take(_, index):
            del found[name][index]
    return tomlkit.dumps(document)


def _drop(text: str, expressions: list[_Expression], path: Path) -> str:
    """Take out everything under a path. Comments on lines of their own stay."""
    for expression in reversed([e for e in expressions if _is_under(e, path)]):
        start = expression.start
        if expression.is_header and text.endswith("\n\n", 0, start):
            start -= 1
        text = splice(text, start, expression.end, "")
    return text


def _add(text: str, expressions: list[_Expression], path: Path, value: Any) -> str:
    """Write a key that is not there yet into a table that is."""
    parent = path[:-1]
    if isinstance(value, dict):
        return _add_tables(text, expressions, path, value)
    below = [e for e in expressions if e.table == parent]
    if not below:
        below = [e for e in expressions if _is_under(e, parent) and not e.is_header]
        below = [e for e in below if len(e.table) < len(parent)]  # through dotted keys
    if below:
        last = below[-1]
        return _insert_line(
            text, last.end, line_indent(text, last.start), path[len(last.table) :], value
        )
    if parent:  # a table without a header, there because of what is in it
        return _add_tables(text, expressions, parent, {path[-1]: value})
    return _add_first(text, expressions, path, value)


def _insert_line(text: str, at: int, indent: str, keys: Path, value: Any) -> str:
    return splice(text, at, at, f"{indent}{_dotted(text, keys)} = {_item(value).as_string()}\n")


def _add_first(text: str, expressions: list[_Expression], path: Path, value: Any) -> str:
    """Write the first key outside of any table: above the comment of the first table."""
    if not expressions:
        return _insert_line(text, len(text), "", path, value)
    at = expressions[0].start
    while text[text.rfind("\n", 0, at - 1) + 1 : at].lstrip().startswith("#"):
        at = text.rfind("\n", 0, at - 1) + 1
    return _insert_line(splice(text, at, at, "\n"), at, "", path, value)


def _add_tables(text: str, expressions: list[_Expression], path: Path, table: Table) -> str:
    """Write a table and those in it, behind the tables that it has most keys in common with."""
    at, indent, inner = len(text), "", ""
    for length in range(len(path), 0, -1):
        related = [e for e in expressions if e.table[:length] == path[:length]]
        if related:
            at = related[-1].end
            header = next(e for e in reversed(related) if e.is_header)
            indent = line_indent(text, header.start)
            within = (e for e in related if not e.is_header and e.table == header.path)
            inner = line_indent(text, next(within, header).start)
            break
    lines = []
    for keys, values in _tables(path, table):
        lines.append(f"\n{indent}[{_dotted(text, keys)}]\n")
        lines += [
            f"{inner}{_dotted(text, (key,))} = {_item(value).as_string()}\n"
            for key, value in values.items()
        ]
    return splice(text, at, at, "".join(lines)[0 if text[:at] else 1 :])


def _tables(path: Path, table: Table) -> Iterator[tuple[Path, Table]]:
    """Yield each table that needs a header, with the values below it."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if values or not table:
        yield path, values
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _tables((*path, key), value)


def _dotted(text: str, keys: Path) -> str:
    """Write a key path, with the quotes that the headers of the text have."""
    literal = re.search(r"^\s*\[[^\"\n]*'", text, re.MULTILINE)
    names = []
    for key in keys:
        if re.fullmatch(r"[A-Za-z0-9_-]+", key):
            names.append(key)
        elif literal and key.isprintable() and "'" not in key:
            names.append(f"'{key}'")
        else:
            names.append(tomlkit.string(key).as_string())
    return ".".join(names)


def _item(value: Any) -> Any:
    """Return tomlkit's form of a value that stands on the right of an equals sign."""
    if isinstance(value, list):
        array = tomlkit.array()
        array.extend(value)
        return array
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        return table
    return tomlkit.item(value)


def _refuse_null(value: Any, path: Path) -> None:
    if value is None:
        raise NotEditable(f"{show(path)}: TOML has no null")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_null(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            _refuse_null(item, path)
