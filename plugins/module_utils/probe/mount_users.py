# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Who keeps an NFS mount that the host unmounts: containers, by their mount tables.

`read_mount_users` does I/O, and looks at no mount point.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.read import mounts

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

_CONTAINER = re.compile(r"[0-9a-f]{64}")
_SHOWN_ID = 12  # as `docker ps` shows it


def read_mount_users(root: Path, paths: Collection[str]) -> dict[str, list[str]]:
    """Return a process of each mount namespace that keeps the NFS of these paths, by path.

    systemd unmounts in the namespace of process 1, which need not be that of this process.
    """
    first = root / "proc/1"
    if not paths or not first.is_dir():
        return {}
    try:
        here = mounts.parse_mounts(_text(first / "mountinfo"))
        mounted = [path for path in paths if mounts.visible_nfs(here, path)]
        return _users(root, mounted, here, os.readlink(first / "ns/mnt")) if mounted else {}
    except OSError as error:  # only root may read it; what is unknown is no proof
        return {path: [f"unknown processes ({error})"] for path in paths}


def _users(
    root: Path, mounted: Collection[str], here: Sequence[mounts.Mount], host: str
) -> dict[str, list[str]]:
    tables: dict[str, list[mounts.Mount]] = {}
    names: dict[str, str] = {}
    for process in sorted(root.glob("proc/[0-9]*"), key=lambda path: int(path.name)):
        try:
            namespace = os.readlink(process / "ns/mnt")
            if namespace not in (*tables, host):
                table, name = mounts.parse_mounts(_text(process / "mountinfo")), _name(process)
                tables[namespace], names[namespace] = table, name
        except OSError:  # the process has ended; another one may have its namespace
            continue
    masters = mounts.parse_masters((here, *tables.values()))
    found = {
        path: [
            names[namespace]
            for namespace, there in tables.items()
            if mounts.stays_mounted(path, here, there, masters)
        ]
        for path in mounted
    }
    return {path: users for path, users in found.items() if users}


def _name(process: Path) -> str:
    """Return the name of a process. Its command line could have passwords."""
    name = f"{_text(process / 'comm').strip()} (process {process.name})"
    container = _CONTAINER.findall(_text(process / "cgroup"))
    return f"{name} of container {container[-1][:_SHOWN_ID]}" if container else name


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
