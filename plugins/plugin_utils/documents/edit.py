# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a configuration document, change it, and restore what was there before.

Each language has a reader. It accepts what the programs of the files accept, and reports where a
text is invalid or must not be edited.

All decisions are made on plain data: `apply` computes the desired content, `restore` the content
without our edits. `render` then edits the text until it has that content. Equal parts keep their
bytes. No function does I/O.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import json as document_json
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import toml as document_toml
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import yaml as document_yaml
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    BadPath,
    KeyConflict,
    Malformed,
    NotEditable,
    Path,
    Reading,
    Table,
    canonical,
    copied,
    differences,
    same,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Language = Literal["json", "yaml", "toml"]

_LANGUAGES: dict[Language, Any] = {
    "json": document_json,
    "yaml": document_yaml,
    "toml": document_toml,
}
LANGUAGES = tuple(_LANGUAGES)
_SUFFIXES: dict[str, Language] = {
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
}
_MISSING = object()
# Windows editors write it at the start of a text. dockerd 23, containerd 1 and the kubelet skip it.
BYTE_ORDER_MARK = "\ufeff"


class ListEdit(NamedTuple):
    """Items to add to a list or to remove from it."""

    path: tuple[str, ...]
    items: list[Any]


class Edits(NamedTuple):
    """What to change in a document, in the order of the fields."""

    remove: tuple[tuple[str, ...], ...] = ()
    discard: tuple[ListEdit, ...] = ()
    merge: Table = {}  # noqa: RUF012 - read only
    append: tuple[ListEdit, ...] = ()


def key_path(path: Any) -> tuple[str, ...]:
    r"""Return the key path of a list of keys, or of keys joined by dots; `\.` is a literal dot.

    Raises BadPath.
    """
    keys = path if isinstance(path, list) else re.split(r"(?<!\\)\.", str(path))
    if not isinstance(path, list):
        keys = [key.replace("\\.", ".") for key in keys]
    if not keys or not all(isinstance(key, str | int) and key != "" for key in keys):
        raise BadPath(f"not a key path: {path!r}")
    return tuple(map(str, keys))


def language_of(path: str) -> Language | None:
    """Return the language of a file by its suffix."""
    return _SUFFIXES.get(PurePosixPath(path).suffix)


def read(text: str, language: Language) -> Reading:
    """Return the content of a document, and why it must not be edited. Raises Malformed."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    if "\0" in text[:2] or text.startswith("\ufffd\ufffd"):
        raise Malformed("not UTF-8, possibly UTF-16", 1, 1)
    reading: Reading = _LANGUAGES[language].read(text)
    return reading


def parse(text: str, language: Language) -> Table:
    """Return the plain data of an editable document. Raises Malformed."""
    content, obstacle = read(text, language)
    if obstacle:
        raise obstacle
    return content


def render(text: str, language: Language, desired: Table) -> str:
    """Edit the text so that its content is `desired`. Raises Malformed, NotEditable.

    The result is read again before it is returned, so this never returns a text with another
    content.
    """
    places = sorted(map(show, differences(parse(text, language), desired)))
    if not places:
        return text
    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    body = text.removeprefix(mark)
    newline = "\r\n" if body.count("\n") == body.count("\r\n") > 0 else "\n"
    try:
        edited: str = _LANGUAGES[language].edit(body.replace(newline, "\n"), desired)
        edited = mark + edited.replace("\n", newline)
        meaning = parse(edited, language)
    except Malformed as error:
        raise NotEditable(f"cannot change {', '.join(places)} in place: {error}") from error
    if not same(meaning, desired):
        raise NotEditable(
            f"cannot change {', '.join(places)} in place without changing something else"
        )
    return edited


def apply(data: Table, edits: Edits) -> Table:
    """Return the desired content of the document. Raises KeyConflict."""
    result: Table = copied(data)
    for path in edits.remove:
        _remove(result, path)
    for path, items in edits.discard:
        found = _list_at(result, path)
        if found:
            found[:] = [item for item in found if not _contains(items, item)]
    _merge(result, edits.merge, ())
    for path, items in edits.append:
        found = _list_at(result, path, create=True)
        found += [copied(item) for item in items if not _contains(found, item)]
    return result


def restore(current: Table, written: Table, original: Table) -> Table:
    """Return `current` without the changes from `original` to `written`.

    A three-way merge: later changes of the admin stay, also changes of our own values.
    """
    result = {}
    for key in [*current, *(key for key in original if key not in current)]:
        value = _restore_value(
            *(table.get(key, _MISSING) for table in (current, written, original))
        )
        if value is not _MISSING:
            result[key] = copied(value)
    return result


def _restore_value(current: Any, written: Any, original: Any) -> Any:
    if same(written, original):
        return current
    if same(current, written):
        return original
    without: tuple[tuple[type, Callable[..., Any]], ...]
    without = ((dict, restore), (list, _restore_items))
    for kind, restore_within in without:
        others = [kind() if other in (_MISSING, None) else other for other in (written, original)]
        if all(isinstance(value, kind) for value in (current, *others)):
            rest: Any = restore_within(current, *others)
            # A table or list that we created is removed when our edits leave it empty.
            return rest if rest or isinstance(original, kind) else original
    return current


def _restore_items(current: list[Any], written: list[Any], original: list[Any]) -> list[Any]:
    """Remove the items that were added, and restore the items that were removed."""
    ours, theirs = ({canonical(item) for item in items} for items in (written, original))
    rest = [item for item in current if canonical(item) in theirs or canonical(item) not in ours]
    there = {canonical(item) for item in rest}
    for index, item in enumerate(original):
        if canonical(item) not in ours | there:
            rest.insert(index, item)
            there.add(canonical(item))
    return rest


def _remove(table: Table, path: tuple[str, ...]) -> None:
    """Remove a key, and each table around it that becomes empty."""
    key, *rest = path
    if not rest:
        table.pop(key, None)
    elif isinstance(inner := table.get(key), dict) and inner:
        _remove(inner, tuple(rest))
        if not inner:
            del table[key]


def _merge(table: Table, desired: Table, path: Path) -> None:
    for key, value in desired.items():
        found = table.get(key)
        if found is None:  # also for an explicit null
            _refuse_other_case(table, key, value, path)
            table[key] = copied(value)
        elif _kind(found) != _kind(value):
            raise KeyConflict(
                f"{show((*path, key))} is {_kind(found)} in the file, "
                f"but the task asks for {_kind(value)}"
            )
        elif isinstance(value, dict):
            _merge(found, value, (*path, key))
        else:
            table[key] = copied(value)


def _refuse_other_case(table: Table, key: str, value: Any, path: Path) -> None:
    """Refuse a key that Go programs, which ignore case, would confuse with an existing key.

    The name of a table is chosen freely, as of a Docker runtime, so such names may differ in case.
    """
    other = next((one for one in table if one.lower() == key.lower()), key)
    if other != key and not isinstance(value, dict):
        raise KeyConflict(
            f"the file has {show((*path, other))}, but the task asks for {show((*path, key))}. "
            f"Programs that ignore case treat them as one key. Rename {other} in the file"
        )


def _list_at(table: Table, path: tuple[str, ...], *, create: bool = False) -> list[Any]:
    """Return the list at a path, else a new list, which `create` adds to the document."""
    nested: Any = table
    for depth, key in enumerate(path, 1):
        kind: type = list if depth == len(path) else dict
        found = nested.get(key)
        if found is None:
            found = kind()
            if create:
                nested[key] = found
        if not isinstance(found, kind):
            raise KeyConflict(
                f"{show(path[:depth])} is {_kind(found)} in the file, "
                f"but the task asks for {_kind(kind())}"
            )
        nested = found
    items: list[Any] = nested
    return items


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else "a single value"


def _contains(items: list[Any], item: Any) -> bool:
    return any(same(other, item) for other in items)
