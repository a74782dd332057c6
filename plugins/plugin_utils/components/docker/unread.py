# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which settings of the role docker_ce has Docker not read yet?

A run that is cut off between the write and the reload leaves a file that Docker has not read. An
edit of somebody else waits for the next start, because they may not want a restart now. So the time
of the role's own history counts, and not that of the file.
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Unread
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read import docker, document_history_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history

_ACTOR = "metal.gpu.docker_ce"


# What a reload applies (SIGHUP). Docker reads all others only at its start.
RELOADABLE = frozenset(
    {
        *("authorization-plugins", "debug", "default-cgroupns-mode", "default-ipc-mode"),
        *("default-shm-size", "default-stop-timeout", "insecure-registries", "labels"),
        *("live-restore", "max-concurrent-downloads", "max-concurrent-uploads"),
        *("max-download-attempts", "network-diagnostic-port", "registry-mirrors", "runtimes"),
        "shutdown-timeout",
    }
)


def observe(raw: Raw, config: str) -> Unread:
    """Return what the role has written into the file of Docker and its drop-in."""
    stored = raw.history(config, _ACTOR)
    # The name has signs that a pattern would take for its own.
    pattern = [document_history_files.PATTERN]
    changes = (
        history.last_changes(config, raw.texts[stored], raw.texts.get(config))
        if stored and stored in raw.changed_since_start(docker.UNIT, pattern)
        else ()
    )
    is_reloaded = stored not in raw.changed_since_reload(docker.UNIT, pattern)
    return {
        "set": [
            change["key"]
            for change in changes
            if change["after"] is not None and not (is_reloaded and change["key"][0] in RELOADABLE)
        ],
        # Docker keeps the value of a key that is gone until it starts again.
        "removed": [change["key"] for change in changes if change["after"] is None],
        "proxy": any(
            path in raw.own_files
            for path in raw.changed_since_start(docker.UNIT, own_files.OF_DOCKER_PROXY)
        ),
    }
