# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the changes of this collection to a node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import (
    Edit,
    Entry,
    OursPart,
    Record,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import packages, registries
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history as document_history
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import load_json

_OF_REGISTRIES = f"metal.gpu.{registries.ROLE}"


def observe(raw: Raw) -> OursPart:
    return {
        "ours": {
            "files": raw.own_files,
            "edits": [_edit(raw, history) for history in raw.histories],
            "packages": {
                PurePosixPath(path).stem: _record(raw, path)
                for path in (*raw.find(packages.RECORDS), *raw.unread(packages.RECORDS))
            },
        }
    }


def _edit(raw: Raw, history: str) -> Edit:
    """Return the edited file, the actor and the changed values."""
    path, actor = raw.histories[history]
    # Of these, the former values can be logins.
    is_secret = actor == _OF_REGISTRIES
    summary = document_history.summarize(path, raw.texts[history], raw.texts.get(path))
    return {
        "path": path,
        "actor": actor,
        "changes": [] if is_secret else list(summary.changes),
        "untouched": summary.untouched,
        "error": f"{history}: {summary.error}" if summary.error else None,
    }


def _record(raw: Raw, path: str) -> Record:
    text = raw.texts.get(path, "")
    document = load_json(path, text)
    rows = {**document.content}
    version = rows.pop("version", 1)
    error = raw.read_error(path) or document.error or _problem(path, text, rows, version)
    entries = {} if error else cast(Mapping[str, Entry], rows)
    return {"path": path, "packages": entries, "error": error}


def _problem(path: str, text: str, rows: Mapping[str, object], version: object) -> str | None:
    """Return why a text is not a valid record of packages; None if it is valid."""
    if not text.strip():
        return f"{path}: the file is empty"
    if version != 1:
        return f"{path}: {document_history.later(version)}"
    for name, entry in rows.items():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("version"), str):
            return f'{path}: "version" of {name} is not a string'
        if not isinstance(entry.get("before", 0), str | None):
            return f'{path}: "before" of {name} is not a string or null'
    return None
