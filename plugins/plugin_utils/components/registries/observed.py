# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about the files in which engines keep registries, mirrors and logins."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, dirname, join
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text
from ansible_collections.metal.gpu.plugins.module_utils.observed.containers import (
    RegistriesPart,
    RegistryFile,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.registries import Values
from ansible_collections.metal.gpu.plugins.module_utils.read import crio
from ansible_collections.metal.gpu.plugins.module_utils.read import registries as places
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import home as homes
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.marks import (
    is_plain_list,
    key_text,
    leaves,
    mark,
    marks,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history as histories
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Language, language_of
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import Document, load


def observe(raw: Raw) -> RegistriesPart:
    values = cast(Values, raw.values("registries"))
    there = [join(folder, name) for folder, names in values["folders"].items() for name in names]
    own = [path for path in there if basename(path) in places.OWN and path in raw.texts]
    blocks = {path: own_files.parse_block(raw.texts[path], places.ROLE) for path in own}
    blocks = {path: lines for path, lines in blocks.items() if lines}
    paths = [path for path in values["files"] if path in raw.texts or path in raw.errors]
    return {
        "registries": {
            "files": {path: _file(raw, path, values["modes"].get(path)) for path in paths},
            "certificates": {
                path: mark(places.pem_blocks("\n".join(lines))) for path, lines in blocks.items()
            },
            "exposed": [path for path in blocks if _is_exposed(path, values["modes"].get(path))],
            "created": sorted({one for lines in blocks.values() for one in _created(lines)}),
            "folders": values["folders"],
            "unread": _unread(raw),
            "prefixes": dict(_prefixes(raw, paths)),
        }
    }


def _unread(raw: Raw) -> list[str]:
    """Return the files that the role has changed since the start of their engine.

    What somebody else changes waits for the next start, also in a file that the role edited before.
    So not only the file counts, but the history of the role's edits, too.
    """
    ours = [history for history, edit in raw.histories.items() if edit.actor == places.ACTOR]
    paths = [raw.histories[history].path for history in ours]
    # containerd reads hosts.toml at each pull.
    of_containerd = [one for one in paths if basename(one) != places.HOSTS and _is_read_once(one)]
    of_crio = [one for one in paths if one in (places.CONTAINERS_DROP_IN, places.CRIO_DROP_IN)]
    changed = raw.changed_since_start(crio.UNIT, of_crio)
    edited = raw.edited(raw.changed_since_start(crio.UNIT, ours), changed)
    changed = homes.changed_since_start(raw, of_containerd)
    edited += raw.edited(homes.changed_since_start(raw, ours), changed)
    return edited


def _is_read_once(path: str) -> bool:
    return path.endswith(".toml") or path in places.REGISTRIES_YAML.values()


def _is_exposed(path: str, mode: str | None) -> bool:
    return basename(path) == places.KEY and bool(int(mode or "0", 8) & 0o077)


def _created(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith(places.CREATED):
            yield line.removeprefix(places.CREATED)


def _language(path: str) -> Language:
    return language_of(path) or "toml"


def _file(raw: Raw, path: str, mode: str | None) -> RegistryFile:
    document = load(path, raw.texts.get(path, ""), _language(path))
    found = dict(leaves(document.content))
    stored = raw.history(path, places.ACTOR)
    try:
        history = histories.recall(raw.texts[stored] if stored else None, raw.texts.get(path))
    except histories.HistoryUnreadable:
        history = None  # the plan refuses it
    ours, our_items = _ours(path, document, history) if history else ([], {})
    stores = ["*"] if text(document.content, "credsStore") else []
    return {
        "mode": mode,
        "error": raw.read_error(path) or document.error,
        "obstacle": document.obstacle,
        "values": {key_text(key): mark(value) for key, value in found.items()},
        "items": {
            key_text(key): marks(value) for key, value in found.items() if is_plain_list(value)
        },
        "ours": ours,
        "our_items": our_items,
        "our_folders": [*history.directories] if history else [],
        "helpers": [*section(document.content, "credHelpers"), *stores],
    }


def _ours(
    path: str, document: Document, history: histories.History
) -> tuple[list[str], dict[str, list[str]]]:
    """Return the values and the items of lists that the role wrote, as far as they are there."""
    original, written = (
        dict(leaves(load(path, content or "", _language(path)).content))
        for content in (history.original, history.written)
    )
    found = dict(leaves(document.content))
    ours: list[str] = []
    items: dict[str, list[str]] = {}
    for key, value in written.items():
        before, now = original.get(key), found.get(key)
        if key in original and mark(before) == mark(value):
            continue
        if is_plain_list(value) and is_plain_list(now):
            former = marks(before) if is_plain_list(before) else []
            added = [one for one in marks(value) if one not in former and one in marks(now)]
            items[key_text(key)] = added
        if key in found and mark(now) == mark(value):
            ours.append(key_text(key))
    return ours, items


def _prefixes(raw: Raw, paths: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the names in the [[registry]] tables of the admin, with their files."""
    for path in paths:
        if path == places.CONTAINERS_DROP_IN or not path.endswith(".conf"):
            continue
        if dirname(path) not in (places.CONTAINERS_DROP_INS, dirname(places.CONTAINERS_CONFIG)):
            continue
        tables = load(path, raw.texts.get(path, ""), "toml").content.get("registry")
        for table in tables if isinstance(tables, list) else []:
            prefix = text(table, "prefix") or text(table, "location")
            if prefix:
                yield prefix, path
