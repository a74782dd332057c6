# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Look at a folder where something shall be mounted. `read_obstacle` does I/O.

To look at a mount of a server that is gone waits forever, and nothing can end it. So the kernel's
table says where not to look.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.read.mounts import AUTOFS, NFS
from ansible_collections.metal.gpu.plugins.module_utils.readable import some

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.metal.gpu.plugins.module_utils.read.mounts import Mount

_SHOWN = 3
# File systems of this host that need not be on a device of their own.
_LOCAL = {"rootfs", "tmpfs", "ramfs", "overlay", "squashfs", "btrfs", "zfs"}


def read_obstacle(path: str, table: Iterable[Mount]) -> str:
    """Return why nothing shall be mounted at a path: it has a link, or files that would be hidden.

    Empty: nothing speaks against it, or above it is a file system that might not answer. Whose NFS
    or automount is at the path itself is for the plan to say.
    """
    mounts, place = {one.path: one for one in table}, PurePosixPath(path)
    above = [*map(str, reversed(place.parents))]
    if there := mounts.get(str(place)):
        is_known = there.kind in (*NFS, AUTOFS)
        # Sources of other file systems can have passwords.
        return "" if is_known else f"a file system of type {there.kind} is mounted there"
    if not all(_is_local(mounts[one]) for one in above if one in mounts):
        return ""
    for one in (*above, str(place)):
        if os.path.islink(one):
            return f"{one} is a link to {os.readlink(one)}, and systemd mounts at no link"
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error)
    return f"the mount would hide {some(names, _SHOWN)}" if names else ""


def _is_local(mount: Mount) -> bool:
    is_fuse = mount.kind.startswith("fuse")
    return not is_fuse and (mount.source.startswith("/dev/") or mount.kind in _LOCAL)
