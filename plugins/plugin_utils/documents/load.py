# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load configuration files of the admin: their content, or their error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Language
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import Malformed


class Document(NamedTuple):
    """A configuration file: its content, or its error."""

    content: Mapping[str, object]
    error: str | None  # with file, line and column
    # Why we must not edit a file that its program accepts; with file, line and column.
    obstacle: str | None = None


def outline(content: Mapping[str, object]) -> dict[str, object]:
    """Return a document without its values, for which `edit.apply` raises the same conflicts.

    A list is empty, and so is a text in the place of any other value.
    """
    return {
        key: outline(value) if isinstance(value, Mapping) else _without_value(value)
        for key, value in content.items()
    }


def _without_value(value: object) -> object:
    if value is None:
        return None
    return [] if isinstance(value, list) else ""


def load(path: str, text: str, language: Language) -> Document:
    """Load a file. Raises nothing, whatever it contains."""
    try:
        content, obstacle = documents.read(text, language)
    except Malformed as error:
        return Document({}, f"{path}, {error}")
    return Document(content, None, f"{path}, {obstacle}" if obstacle else None)


def load_toml(path: str, text: str) -> Document:
    return load(path, text, "toml")


def load_json(path: str, text: str) -> Document:
    return load(path, text, "json")


def load_yaml(path: str, text: str) -> Document:
    return load(path, text, "yaml")
