# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which options would part an installed Docker from its containers, images and volumes?

Permission to restart Docker is no permission to let it start empty.

Source: tests/recorded/docker_daemon.yml
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from posixpath import normpath

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Docker
from ansible_collections.metal.gpu.plugins.module_utils.read.docker import DEFAULT_DATA_ROOT
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.values import Key

# Options that decide where Docker looks for its data. `graph` is the former name of data-root.
_ROOTS: tuple[Key, ...] = (("data-root",), ("graph",))
_DRIVER: Key = ("storage-driver",)
PLACES: tuple[Key, ...] = (
    *(*_ROOTS, _DRIVER),
    *(("userns-remap",), ("features", "containerd-snapshotter")),
)
# With userns-remap, Docker reports the folder of a user below its data root.
_REMAPPED = re.compile(r"/\d+\.\d+$", re.ASCII)


def moves(engine: Docker, merge: Mapping[Key, object], remove: Iterable[Key]) -> dict[Key, str]:
    """Return the changed options after which Docker no longer finds its data, in words."""
    if not engine["installed"]:
        return {}
    after: dict[Key, object] = {**merge, **dict.fromkeys(remove)}
    found = {key: _in_use(engine, key) for key in after if key in PLACES}
    return {
        key: f"{'.'.join(key)} (now {now})" if now else ".".join(key)
        for key, now in found.items()
        if now is None or _normal(key, after[key]) != now
    }


def _in_use(engine: Docker, key: Key) -> str | None:
    """Return what Docker uses now; None: unknown."""
    if key in _ROOTS:
        return _REMAPPED.sub("", normpath(engine["data_root"] or DEFAULT_DATA_ROOT))
    return engine["storage_driver"] if key == _DRIVER else None


def _normal(key: Key, value: object) -> object:
    """Return the value in the form of `_in_use`; None: the key goes."""
    if key in _ROOTS:
        return normpath(DEFAULT_DATA_ROOT if value is None else str(value))
    return value
