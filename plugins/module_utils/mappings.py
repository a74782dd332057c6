# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read values from documents in which any value may have any type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, overload

_Value = TypeVar("_Value")  # object, or what the caller assumes about its documents


@overload
def section(document: Mapping[str, _Value], *keys: str) -> Mapping[str, _Value]:
    """A part of a typed document has the same type."""


@overload
def section(document: object, *keys: str) -> Mapping[str, object]:
    """A part of anything else can have any values."""


def section(document: object, *keys: str) -> Mapping[str, object]:
    """Follow keys through nested mappings; empty if a key is missing or its value no mapping."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def text(document: object, *keys: str) -> str | None:
    """Return the text at a key path; None if it is missing or of another type."""
    value = _value(document, keys)
    return value if isinstance(value, str) else None


def flag(document: object, *keys: str) -> bool | None:
    """Return the boolean at a key path, likewise."""
    value = _value(document, keys)
    return value if isinstance(value, bool) else None


def number(document: object, *keys: str) -> int | None:
    """Return the integer at a key path, likewise."""
    value = _value(document, keys)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def texts(document: object, *keys: str) -> list[str]:
    """Return the texts of the list at a key path; items of other types are left out."""
    value = _value(document, keys)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def sections(document: object, *keys: str) -> dict[str, Mapping[str, object]]:
    """Return the mappings in the mapping at a key path, by name; other values are left out."""
    found = section(document, *keys)
    return {name: value for name, value in found.items() if isinstance(value, Mapping)}


def _value(document: object, keys: Sequence[str]) -> object:
    return section(document, *keys[:-1]).get(keys[-1])
