# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the languages of `documents` share: key paths, steps that edit a text, errors."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

Path = tuple[str, ...]
Table = dict[str, Any]


class DocumentError(Exception):
    """Root of every error about a document; the action plugin catches this one class."""


class Malformed(DocumentError, ValueError):
    """The text is not what its language allows, or not what we can edit."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")
        self.line = line
        self.column = column


class BadPath(DocumentError, ValueError):
    """Something else was given as a key path."""


class KeyConflict(DocumentError, TypeError):
    """A wish and the document disagree about whether a key holds a table, a list or a scalar."""


class NotEditable(DocumentError):
    """The edited text would not have meant what was wanted; it must not be used."""


class LibraryMissing(DocumentError, ImportError):
    """The controller lacks a Python package."""


class Put(NamedTuple):
    """Set a key of an existing table, whether it is there or not."""

    path: Path
    value: Any


class Drop(NamedTuple):
    """Take a key out of its table."""

    path: Path


class Insert(NamedTuple):
    """Put an item into an existing list, before the one that is at `place` now."""

    path: Path
    place: int
    value: Any


class Take(NamedTuple):
    """Take an item out of a list."""

    path: Path
    place: int


Step = Put | Drop | Insert | Take


def show(path: Path) -> str:
    """Write a key path as TOML would, so that keys with dots in them can be told apart."""
    return ".".join(key if re.fullmatch(r"[\w-]+", key) else json.dumps(key) for key in path)


def position(text: str, index: int) -> tuple[int, int]:
    """Return the line and the column of a place in the text, both counted from 1."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)
