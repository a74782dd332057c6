# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out why a file cannot be replaced or removed atomically. All functions do I/O.

A file is replaced by renaming a new one over it. The check runs before anything is written, so that
no backup and no history has to be undone.

Source: rename(2), ioctl_iflags(2), proc_pid_mountinfo(5)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import stat
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOUNTS = "/proc/self/mountinfo"

_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS on 64-bit machines
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


def find_obstacle(path: str, mounts: str = MOUNTS) -> str | None:
    """Return the obstacle and how to remove it; None if the file can be replaced.

    The file and its directories need not exist.
    """
    return next(_obstacles(path, mounts), None)


def _obstacles(path: str, mounts: str) -> Iterator[str]:
    directory = os.path.dirname(path)
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    if not os.path.isdir(directory):
        yield f"{directory} is not a directory. Move it away"
        return
    if os.path.lexists(path):
        yield from _of_file(path, mounts)
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        yield (
            f"{directory} is on a read-only file system. Remount it with "
            f'`mount -o remount,rw "$(stat -c %m {shlex.quote(directory)})"`'
        )
    for name in (path, directory):
        flags = _flags(name)
        if flags & (_IMMUTABLE | _APPEND_ONLY):
            word, letter = ("immutable", "i") if flags & _IMMUTABLE else ("append-only", "a")
            yield f"{name} is {word}. Allow changes with `chattr -{letter} {shlex.quote(name)}`"
    if not os.access(directory, os.W_OK | os.X_OK):
        yield f"this user cannot write to {directory}. Run the task as root, with become: true"


def _of_file(path: str, mounts: str) -> Iterator[str]:
    found, name = os.stat(path), shlex.quote(path)
    if stat.S_ISDIR(found.st_mode):
        yield f"{path} is a directory, not a file. Move it away"
    elif not stat.S_ISREG(found.st_mode):
        yield f"{path} is not a regular file. Move it away"
    elif path in _mount_points(mounts):
        yield (
            f"{path} is a mount point, and a mounted file cannot be replaced. `findmnt {name}` "
            f"shows its source. Edit the source, or unmount the file with `umount {name}`"
        )
    elif found.st_nlink > 1:
        yield (
            f"{path} has {found.st_nlink} hard links, and the other names would keep the old "
            f"content. Separate it with `cp -p {name} {name}.new && mv {name}.new {name}`"
        )


def _mount_points(mounts: str) -> set[str]:
    points = set()
    with contextlib.suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as file:
        for line in file:
            point = line.split()[4]
            for escape, character in _ESCAPES:
                point = point.replace(escape, character)
            points.add(point)
    return points


def _flags(path: str) -> int:
    """Return the flags that chattr sets; 0 if the file system does not support them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        answer = fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("q", 0))
        flags: int = struct.unpack("q", answer)[0]
        return flags
    except OSError:
        return 0
    finally:
        os.close(descriptor)
