# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Look at a folder where something shall be mounted. `hidden_files` does I/O.

To look at a mount of a server that is gone waits forever, and nothing can end it. So the kernel's
table says where not to look.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.metal.gpu.plugins.module_utils.read.mounts import Mount

_SHOWN = 3
# File systems of this host that need not be on a device of their own.
_LOCAL = {"rootfs", "tmpfs", "ramfs", "overlay", "squashfs", "btrfs", "zfs"}


def hidden_files(path: str, table: Iterable[Mount]) -> str:
    """Return the files that a mount at a path would hide, with the words for it.

    Empty: there are none, or something is mounted there, or above it is a file system that might
    not answer.
    """
    mounts, place = {one.path: one for one in table}, PurePosixPath(path)
    above = (mounts[folder] for folder in map(str, place.parents) if folder in mounts)
    if str(place) in mounts or not all(_is_local(one) for one in above):
        return ""
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return str(error)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"the mount would hide {', '.join(names[:_SHOWN])}{more}" if names else ""


def _is_local(mount: Mount) -> bool:
    is_fuse = mount.kind.startswith("fuse")
    return not is_fuse and (mount.source.startswith("/dev/") or mount.kind in _LOCAL)
