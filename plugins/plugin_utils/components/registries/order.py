# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""In which order does an engine ask the mirrors of a file?

Engines ask in the order of the file. An edit adds at the end, so what is missing comes after what
is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.containers import RegistryFile
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.layout import Document
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.marks import (
    key_text,
    marks,
)

_HOST = "host"  # the table of tables in hosts.toml


def hosts(found: RegistryFile) -> list[str]:
    """Return the servers that a hosts.toml names, in their order."""
    return [*dict.fromkeys(_hosts(found["values"]))]


def hosts_of_admin(found: RegistryFile) -> set[str]:
    """Return those with a key that is not of the role."""
    return {*_hosts(key for key in found["values"] if key not in found["ours"])}


def _hosts(keys: Iterable[str]) -> Iterator[str]:
    paths = (key.split(" > ") for key in keys)
    return (path[1] for path in paths if path[0] == _HOST and len(path) > 1)


def misplaced(document: Document, found: RegistryFile) -> list[str]:
    """Return the keys at which the role has to begin again for the desired order.

    What the admin has keeps its place.
    """
    keys = []
    for path, items in document.append:
        key = key_text(path)
        there, ours = found["items"].get(key, []), found["our_items"].get(key, [])
        if not _is_start(there, [one for one in there if one not in ours], marks(items)):
            keys.append(key)
    tables = document.merge.get(_HOST)
    if isinstance(tables, Mapping):
        desired = [key_text((host,)) for host in tables]
        if not _is_start(hosts(found), hosts_of_admin(found), desired):
            keys.append(_HOST)
    return keys


def _is_start(there: Iterable[str], theirs: Collection[str], desired: Iterable[str]) -> bool:
    """Return whether what is ours is the start of what is desired."""
    wanted = [one for one in dict.fromkeys(desired) if one not in theirs]
    ours = [one for one in there if one in wanted]
    return ours == wanted[: len(ours)]
