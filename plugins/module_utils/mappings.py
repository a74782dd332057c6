# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Look into documents that people wrote, where any value may be of any kind. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def section(document: Any, *keys: str) -> Mapping[str, Any]:
    """Follow keys through nested mappings; empty where one is missing or holds no mapping."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def sections(document: Any, *keys: str) -> dict[str, Mapping[str, Any]]:
    """Return the mappings below `section`, by name; other values are left out."""
    found = section(document, *keys)
    return {name: value for name, value in found.items() if isinstance(value, Mapping)}
