# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Look into documents that people wrote, where any value may be of any kind. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def section(document: Any, *keys: str) -> Mapping[str, Any]:
    """Follow keys through nested mappings; empty where one is missing or holds no mapping."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def text(document: Any, *keys: str) -> str | None:
    """Return the text below keys; None where there is none, or something of another kind."""
    value = _value(document, keys)
    return value if isinstance(value, str) else None


def flag(document: Any, *keys: str) -> bool | None:
    """Return the boolean below keys, likewise."""
    value = _value(document, keys)
    return value if isinstance(value, bool) else None


def number(document: Any, *keys: str) -> int | None:
    """Return the whole number below keys, likewise."""
    value = _value(document, keys)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def texts(document: Any, *keys: str) -> list[str]:
    """Return the texts of the list below keys; items of another kind are left out."""
    value = _value(document, keys)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def sections(document: Any, *keys: str) -> dict[str, Mapping[str, Any]]:
    """Return the mappings below `section`, by name; other values are left out."""
    found = section(document, *keys)
    return {name: value for name, value in found.items() if isinstance(value, Mapping)}


def _value(document: Any, keys: Sequence[str]) -> Any:
    return section(document, *keys[:-1]).get(keys[-1])
