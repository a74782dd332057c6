# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Change a configuration document, and give back what was there before.

Everything is decided on plain data: `apply` says what the document shall hold, `give_back` what it
would hold without us. `render` then edits the text until it means that, so whatever
is the same in both keeps its bytes. No function does I/O.
"""

from __future__ import annotations

import copy
import json
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import document_json, document_toml, document_yaml
from .document_model import (
    BadPath,
    Drop,
    Insert,
    KeyConflict,
    Malformed,
    NotEditable,
    Path,
    Put,
    Step,
    Table,
    Take,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Language = Literal["json", "yaml", "toml"]

_LANGUAGES: dict[Language, Any] = {
    "json": document_json,
    "yaml": document_yaml,
    "toml": document_toml,
}
_MISSING = object()


class ListEdit(NamedTuple):
    """Items to add to a list, or to take out of it."""

    path: Path
    items: list[Any]


class Edits(NamedTuple):
    """What a document shall hold and what not, carried out in this order."""

    remove: tuple[Path, ...] = ()
    discard: tuple[ListEdit, ...] = ()
    merge: Table = {}  # noqa: RUF012 - read only
    append: tuple[ListEdit, ...] = ()


def key_path(path: Any) -> Path:
    r"""Return a key path given as a list of keys or with dots between them, where `\.` is no end.

    Raises BadPath.
    """
    keys = path if isinstance(path, list) else re.split(r"(?<!\\)\.", str(path))
    if not isinstance(path, list):
        keys = [key.replace("\\.", ".") for key in keys]
    if not keys or not all(isinstance(key, str | int) and key != "" for key in keys):
        raise BadPath(f"not a key path: {path!r}")
    return tuple(map(str, keys))


def parse(text: str, language: Language) -> Table:
    """Return the plain data of a document. Raises Malformed."""
    data: Table = _LANGUAGES[language].parse(text)
    return data


def render(text: str, language: Language, wanted: Table) -> str:
    """Edit the text so that it means `wanted`. Raises NotEditable.

    The result is read again before it is returned: a text that means anything else, through
    whatever surprise in the old one, never leaves this function.
    """
    steps = list(_steps(parse(text, language), wanted))
    if not steps:
        return text
    places = ", ".join(sorted({show(step.path) for step in steps}))
    newline = "\r\n" if text.count("\n") == text.count("\r\n") > 0 else "\n"
    try:
        edited: str = _LANGUAGES[language].edit(text.replace(newline, "\n"), steps)
        edited = edited.replace("\n", newline)
        meaning = parse(edited, language)
    except Malformed as error:
        raise NotEditable(f"cannot change {places} in place: {error}") from error
    if not _same(meaning, wanted):
        raise NotEditable(f"cannot change {places} in place without changing something else")
    return edited


def apply(data: Table, edits: Edits) -> Table:
    """Return what the document shall hold. Raises KeyConflict."""
    result = copy.deepcopy(data)
    for path in edits.remove:
        _remove(result, path)
    for path, items in edits.discard:
        found = _list_at(result, path)
        if found:
            found[:] = [item for item in found if not _contains(items, item)]
    _merge(result, edits.merge, ())
    for path, items in edits.append:
        found = _list_at(result, path, create=True)
        found += [copy.deepcopy(item) for item in items if not _contains(found, item)]
    return result


def give_back(current: Table, written: Table, original: Table) -> Table:
    """Return `current` without what turned `original` into `written`.

    A three-way merge: what has been changed since by somebody else stays theirs, also where
    it was ours before.
    """
    result = {}
    for key in [*current, *(key for key in original if key not in current)]:
        value = _give_back_value(
            *(table.get(key, _MISSING) for table in (current, written, original))
        )
        if value is not _MISSING:
            result[key] = copy.deepcopy(value)
    return result


def _give_back_value(current: Any, written: Any, original: Any) -> Any:
    if _same(written, original):
        return current
    if _same(current, written):
        return original
    without: tuple[tuple[type, Callable[..., Any]], ...]
    without = ((dict, give_back), (list, _give_back_items))
    for kind, give_back_within in without:
        others = [kind() if other in (_MISSING, None) else other for other in (written, original)]
        if all(isinstance(value, kind) for value in (current, *others)):
            rest: Any = give_back_within(current, *others)
            # A table or list that exists only because of us goes with what we put into it.
            return rest if rest or isinstance(original, kind) else original
    return current


def _give_back_items(current: list[Any], written: list[Any], original: list[Any]) -> list[Any]:
    """Take out the items that were added, and put those back that were taken out."""
    rest = [item for item in current if _contains(original, item) or not _contains(written, item)]
    for index, item in enumerate(original):
        if not _contains(written, item) and not _contains(rest, item):
            rest.insert(index, item)
    return rest


def _remove(table: Table, path: Path) -> None:
    """Remove a key, and each table around it that this leaves empty."""
    key, *rest = path
    if not rest:
        table.pop(key, None)
    elif isinstance(inner := table.get(key), dict) and inner:
        _remove(inner, tuple(rest))
        if not inner:
            del table[key]


def _merge(table: Table, wishes: Table, path: Path) -> None:
    for key, wish in wishes.items():
        found = table.get(key)
        if found is None:  # also an explicit null, which says nothing
            table[key] = copy.deepcopy(wish)
        elif _kind(found) != _kind(wish):
            raise KeyConflict(
                f"{show((*path, key))} is {_kind(found)} in the file, "
                f"and the task wants {_kind(wish)}"
            )
        elif isinstance(wish, dict):
            _merge(found, wish, (*path, key))
        else:
            table[key] = copy.deepcopy(wish)


def _list_at(table: Table, path: Path, *, create: bool = False) -> list[Any]:
    """Return the list at a path, or where there is none a new one, in the document if `create`."""
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
                f"and the task wants {_kind(kind())}"
            )
        nested = found
    items: list[Any] = nested
    return items


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else "a single value"


def _steps(before: Table, after: Table, path: Path = ()) -> Iterator[Step]:
    """Yield what turns one into the other. Additions come first, so that no table or
    list is emptied, and written as an empty one, in between."""
    for key, value in after.items():
        place, old = (*path, key), before.get(key, _MISSING)
        if _same(old, value):
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            yield from _steps(old, value, place)
        elif _is_flat(old) and _is_flat(value):
            yield from _list_steps(old, value, place)
        else:
            yield Put(place, value)
    for key in before:
        if key not in after:
            yield Drop((*path, key))


def _list_steps(before: list[Any], after: list[Any], path: Path) -> Iterator[Step]:
    old, new = ([_canonical(item) for item in items] for items in (before, after))
    for tag, start, end, new_start, new_end in reversed(  # from the end, so that indices stay
        SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    ):
        if tag != "equal":
            for item in reversed(after[new_start:new_end]):
                yield Insert(path, end, item)
            for index in reversed(range(start, end)):
                yield Take(path, index)


def _is_flat(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(item, dict | list) for item in value)


def _contains(items: list[Any], item: Any) -> bool:
    return any(_same(other, item) for other in items)


def _same(left: Any, right: Any) -> bool:
    return _canonical(left) == _canonical(right)


def _canonical(value: Any) -> str:
    """Return a text for comparing, because to Python 1, 1.0 and true are equal."""
    return json.dumps(value, sort_keys=True, default=repr)
