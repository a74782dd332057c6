# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the character devices of the NVIDIA driver, and what stands in their place.

Functions that start with read_ do I/O; they take the root directory as an argument.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TypedDict

PATTERNS = ("dev/nvidia*", "dev/nvidia-caps/*")
# Of the others, nvidia-caps is a directory, and CUDA needs none.
_NEEDED = re.compile(r"nvidia(?:\d+|ctl|-uvm|-uvm-tools)")


class DeviceFile(TypedDict):
    """A character device; the mode is octal text, such as "0666"."""

    path: str
    major: int
    minor: int
    mode: str  # octal digits, such as `0666`
    linked: bool  # whether it is in `/dev/char`, where runc looks it up


class Obstacle(TypedDict):
    """What stands in the place of a character device, so that nobody can create it."""

    path: str
    type: str  # `directory`, `file`, `link` (to no device) or `other`


def read_device_files(root: Path) -> list[DeviceFile]:
    """Read the device files, sorted by path. A file that disappears meanwhile is left out."""
    files: list[DeviceFile] = []
    for path in sorted(path for pattern in PATTERNS for path in root.glob(pattern)):
        try:
            status = path.stat()
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode):
            major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
            files.append(
                {
                    "path": f"/{path.relative_to(root)}",
                    "major": major,
                    "minor": minor,
                    "mode": f"{stat.S_IMODE(status.st_mode):04o}",
                    "linked": (root / f"dev/char/{major}:{minor}").exists(),
                }
            )
    return files


def read_obstacles(root: Path) -> list[Obstacle]:
    """Read what stands in the place of the device files, sorted by path."""
    found: list[Obstacle] = []
    for path in sorted(root.glob(PATTERNS[0])):
        kind = _obstacle_type(path) if _NEEDED.fullmatch(path.name) else None
        if kind:
            found.append({"path": f"/{path.relative_to(root)}", "type": kind})
    return found


def _obstacle_type(path: Path) -> str | None:
    """Return the type of what is not a character device; None for one, and if it disappears."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return None if _leads_to_device(path) else "link"
    if stat.S_ISCHR(mode):
        return None
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "other"


def _leads_to_device(link: Path) -> bool:
    try:
        return stat.S_ISCHR(link.stat().st_mode)
    except OSError:  # of any kind: the name too long, a file server that is gone, a loop
        return False
