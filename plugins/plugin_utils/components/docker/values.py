# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values of daemon.json, in a form that shows whether two are equal, and no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import fingerprint

Key = tuple[str, ...]


def leaves(table: Mapping[str, object], path: Key = ()) -> Iterator[tuple[Key, object]]:
    """Yield the values of a document that are no tables, by key path. An empty table is one."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, str(key)))
        else:
            yield (*path, str(key)), value


def values_of(document: Mapping[str, object]) -> dict[str, str]:
    """Return the fingerprints of a document's values by key path."""
    return {key_text(key): fingerprint(value) for key, value in leaves(document)}


def key_text(key: Key) -> str:
    return "/".join(key)
