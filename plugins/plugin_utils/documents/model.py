# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the languages of `documents` share: key paths, errors, and changes in lists."""

from __future__ import annotations

import json
import re
from collections import Counter
from difflib import SequenceMatcher
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Path = tuple[str | int, ...]  # keys of tables and indices of lists
Table = dict[str, Any]

# Deeper documents are refused, because the editors are recursive. The deepest file that Kubernetes,
# Docker or containerd ships has 7 levels.
MAX_DEPTH = 100
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"

# The maximum of compared pairs of items. Lists are long, but few of their items change.
_MAX_PAIRS = 10_000


class DocumentError(Exception):
    """Root of every error about a document; the action plugin catches this one class."""


class Malformed(DocumentError, ValueError):
    """The text is invalid in its language, or cannot be edited."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")
        self.line = line
        self.column = column


class BadPath(DocumentError, ValueError):
    """The value is not a key path."""


class KeyConflict(DocumentError, TypeError):
    """The task and the document disagree about the type of a key."""


class NotEditable(DocumentError):
    """The edited text would not have the desired meaning, so it must not be used."""


class Reading(NamedTuple):
    """The meaning of a text for the programs that read it."""

    content: Table
    # Why the text must not be edited although programs accept it. An example is a key that appears
    # twice: an edit of one of the two may change nothing.
    obstacle: Malformed | None = None


def show(path: Path) -> str:
    """Write a key path as TOML does, with quotes around keys that contain dots."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += "." + (key if re.fullmatch(r"[\w-]+", key) else json.dumps(key))
    return text.removeprefix(".")


def position(text: str, index: int) -> tuple[int, int]:
    """Return the line and the column of a place in the text, both counted from 1."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def place_of(text: str, tokens: re.Pattern[str], is_it: Callable[[str, int], bool]) -> int:
    """Return the position of the first token that matches, by its text and depth."""
    depth = 0
    for match in tokens.finditer(text):
        depth += (match[0] in ("[", "{")) - (match[0] in ("]", "}"))
        if is_it(match[0], depth):
            return match.start()
    return 0


def is_too_deep(value: Any) -> bool:
    """Tell whether plain data has more levels than `MAX_DEPTH`."""
    level = [value]
    for _depth in range(MAX_DEPTH + 1):
        tables = [one.values() for one in level if isinstance(one, dict)]
        lists = [one for one in level if isinstance(one, list)]
        level = [item for inner in (*tables, *lists) for item in inner]
        if not level:
            return False
    return True


def copied(value: Any) -> Any:
    """Return plain data that can be changed without changing this."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def same(left: Any, right: Any) -> bool:
    """Compare plain data. Unlike in Python, 1, 1.0 and true differ."""
    if isinstance(left, dict | list) and isinstance(right, dict | list):
        return canonical(left) == canonical(right)
    return type(left) is type(right) and repr(left) == repr(right)


_canonical = json.JSONEncoder(sort_keys=True, default=repr)


def canonical(value: Any) -> str:
    return _canonical.encode(value)


def fingerprint(value: Any) -> str:
    """Return what two equal values share. A value itself can be a secret."""
    return sha256(canonical(value).encode()).hexdigest()


def differences(before: Any, after: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the key path of each difference, descending while both values are tables."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            if key in before and key in after:
                yield from differences(before[key], after[key], (*path, key))
            else:
                yield (*path, key)
    elif not same(before, after):
        yield path


def origins(before: Sequence[Any], after: Sequence[Any]) -> list[int | None]:
    """Return the former index of each item of a list; None: the item is new.

    The indices increase. A changed table or list is matched with the former item that it shares
    most with.
    """
    old, new = ([canonical(item) for item in items] for items in (before, after))
    shorter = min(len(old), len(new))
    # Skip equal ends: the matcher takes minutes for 60,000 equal items.
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    result: list[int | None] = list(range(head))
    for tag, start, end, new_start, new_end in SequenceMatcher(
        None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False
    ).get_opcodes():
        start, end = start + head, end + head
        if tag == "equal":
            result += range(start, end)
        else:
            pairs = _align(before[start:end], after[new_start + head : new_end + head])
            result += [None if index is None else start + index for index in pairs]
    result += range(len(old) - tail, len(old))
    return result


def _align(before: Sequence[Any], after: Sequence[Any]) -> list[int | None]:
    """Pair the items of two lists in order, so that the pairs share as much as possible."""
    result: list[int | None] = [None] * len(after)
    if len(before) * len(after) > _MAX_PAIRS:
        return result
    olds, news = (list(map(_parts, items)) for items in (before, after))
    # The most that the items from these two positions on can share.
    best = [[0] * (len(news) + 1) for _old in range(len(olds) + 1)]
    common = [[sum((old & new).values()) for new in news] for old in olds]
    for i in reversed(range(len(olds))):
        for j in reversed(range(len(news))):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + common[i][j])
    i = j = 0
    while i < len(olds) and j < len(news):
        if common[i][j] and best[i][j] == best[i + 1][j + 1] + common[i][j]:
            result[j] = i
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return result


def _parts(value: Any, key: str = "") -> Counter[str]:
    """Count the scalars in a table or a list, at any depth; a scalar has no parts."""
    parts: Counter[str] = Counter()
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else ((key, item) for item in value)
        for name, item in items:
            parts += _parts(item, name) or Counter([canonical((name, item))])
    return parts
