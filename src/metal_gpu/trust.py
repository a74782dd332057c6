# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether another user of this machine could have written a file that decides what runs here."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_VARIABLES = ("group_vars", "host_vars")  # what Ansible reads beside an inventory


def distrust(path: Path) -> str:
    """Return why a file cannot be trusted; empty if only its user and root can change it.

    Source: OpenSSH 9.2 of Debian, misc.c, safe_path: the group of a user alone may write.
    """
    places = dict.fromkeys([path.parent, path, path.resolve().parent])
    return next(filter(None, map(distrust_file, places)), "")


def distrust_file(place: Path) -> str:
    """Return why a file or a folder alone cannot be trusted."""
    status = place.stat()
    if status.st_uid not in _owners():
        return f"{place} belongs to {_user(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:
        return f"every user may write {place}"
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid):
        return f"the group {_group(status.st_gid)} may write {place}"
    return ""


def distrust_inventory(path: Path) -> str:
    """Return why an inventory, or a file of variables beside it, cannot be trusted."""
    return next(filter(None, map(distrust, [path, *_beside(path.parent)])), "")


def _beside(folder: Path) -> Iterator[Path]:
    for name in _VARIABLES:
        for place, folders, files in os.walk(folder / name):
            found = (Path(place) / one for one in [*folders, *files])
            yield from filter(Path.exists, found)  # an editor's lock is a link to nothing


def _owners() -> tuple[int, ...]:
    return (0, os.geteuid())


def _is_private(gid: int, uid: int) -> bool:
    """Tell whether a group has the name of the user, and no other member."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid).pw_name
    except KeyError:
        return False
    return group.gr_name == user and not {*group.gr_mem} - {user}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
