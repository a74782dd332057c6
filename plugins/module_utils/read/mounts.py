# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Mount tables of the kernel (`/proc/PID/mountinfo`).

To look at a mount point itself can wait forever for a server that is gone. The kernel's table
never does.

Source: proc_pid_mountinfo(5), mount_namespaces(7); tests/recorded/nfs.yml
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NFS, AUTOFS = ("nfs", "nfs4"), "autofs"
_CODES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\"))


class Mount(NamedTuple):
    """A line of a mount table."""

    identity: str
    parent: str
    root: str
    path: str
    options: tuple[str, ...]
    shared: str  # the group of mounts that get the same changes below them; empty: it has none
    master: str  # the group whose changes it gets
    kind: str
    source: str
    more_options: tuple[str, ...]  # of the file system, which all its mounts have


def parse_mounts(text: str) -> list[Mount]:
    """Read a mount table. Where several mounts have one path, the last is the visible one."""
    found = []
    for line in text.splitlines():
        first, _dash, second = line.partition(" - ")
        words, more = first.split(), second.split()
        if len(words) > 5 and len(more) > 1:
            groups = dict(one.split(":", 1) for one in words[6:] if ":" in one)
            found.append(
                Mount(
                    words[0],
                    words[1],
                    plain(words[3]),
                    plain(words[4]),
                    tuple(words[5].split(",")),
                    groups.get("shared", ""),
                    groups.get("master", ""),
                    more[0],
                    plain(more[1]),
                    tuple(more[2].split(",")) if len(more) > 2 else (),
                )
            )
    return found


def plain(text: str) -> str:
    """Return a word without the octal numbers that stand for blanks."""
    for code, sign in _CODES:
        text = text.replace(code, sign)
    return text


def visible_nfs(mounts: Iterable[Mount], path: str) -> Mount | None:
    """Return the NFS that is mounted at a path."""
    return next((one for one in reversed([*mounts]) if _is_nfs(one) and one.path == path), None)


def parse_masters(tables: Iterable[Sequence[Mount]]) -> dict[str, str]:
    """Return which groups get the changes of which others."""
    return {one.shared: one.master for table in tables for one in table if one.shared}


def stays_mounted(
    path: str, here: Sequence[Mount], there: Sequence[Mount], masters: Mapping[str, str]
) -> bool:
    """Tell whether the NFS at a path here stays mounted there after it is unmounted here.

    `there` is the table of another mount namespace. To unmount takes a mount from namespaces that
    follow this one, such as those of services of systemd, and not from those of containers.
    """
    gone = visible_nfs(here, path)
    parent = _parent(here, gone) if gone else None
    if not gone:
        return False
    for one in there:
        # All NFS has the root `/` in the table. The source has the folder that is mounted. Below an
        # export there can be others, which are other file systems.
        if _is_nfs(one) and _is_below(one.source, gone.source):
            above = _parent(there, one)
            if not above or not parent or not _follows(above, parent.shared, masters):
                return True
            if _spot(one, above) != _spot(gone, parent):
                return True
    return False


def _follows(mount: Mount, group: str, masters: Mapping[str, str]) -> bool:
    """Tell whether a mount gets the changes of a group, also by way of others."""
    if not group or mount.shared == group:
        return bool(group)
    above = mount.master
    seen: set[str] = set()
    while above and above not in seen and above != group:
        seen.add(above)
        above = masters.get(above, "")
    return above == group


def _is_nfs(mount: Mount) -> bool:
    return mount.kind in NFS


def _parent(mounts: Iterable[Mount], mount: Mount) -> Mount | None:
    return next((one for one in mounts if one.identity == mount.parent), None)


def _is_below(source: str, folder: str) -> bool:
    return source == folder or source.startswith(f"{folder.rstrip('/')}/")


def _spot(mount: Mount, parent: Mount) -> str:
    """Return where in the file system of its parent something is mounted."""
    return posixpath.normpath(
        posixpath.join(parent.root, posixpath.relpath(mount.path, parent.path))
    )
