# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about CRI-O. No I/O."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import crio
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import load_toml


class Config(TypedDict):
    """The configuration files."""

    path: str
    exists: bool | None
    error: str | None
    source: str | None


class Crio(TypedDict):
    """The CRI-O service."""

    installed: bool
    version: str | None
    running: bool | None
    config: Config
    default_runtime: str | None
    runtimes: dict[str, crio.Runtime]


class Engines(TypedDict):
    """Its place among the engines."""

    crio: Crio


class Observed(TypedDict):
    """The engine."""

    engines: Engines


def observe(raw: Raw) -> Observed:
    return {"engines": {"crio": _crio(raw)}}


def _crio(raw: Raw) -> Crio:
    path = crio.CONFIG_PATTERNS[0]
    files = {file: load_toml(file, raw.texts[file]) for file in raw.find(*crio.CONFIG_PATTERNS)}
    errors = [raw.read_error(file) for file in raw.unread(*crio.CONFIG_PATTERNS)]
    errors += [document.error for document in files.values() if document.error]
    answer = raw.outputs.get("crio_config")
    if answer and answer.rc == 0:
        documents = {"crio status config": load_toml("crio status config", answer.stdout)}
    else:
        documents = {file: document for file, document in files.items() if not document.error}
    effective = crio.parse_effective(document.content for document in documents.values())
    program = raw.program(crio.UNIT, "crio", "crio")
    return {
        "installed": program["installed"],
        "version": program["version"],
        "running": program["running"],
        "config": {
            "path": path,
            "exists": raw.file_exists(path),
            "error": errors[0] if errors else None,
            "source": ", ".join(documents) or None,
        },
        "default_runtime": effective.default_runtime,
        "runtimes": effective.runtimes,
    }
