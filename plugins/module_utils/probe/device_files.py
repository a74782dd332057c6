# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the character devices of the NVIDIA driver.

Only `read_device_files` does I/O; it takes the root directory as an argument.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TypedDict

PATTERNS = ("dev/nvidia*", "dev/nvidia-caps/*")


class DeviceFile(TypedDict):
    """A character device; the mode is octal text, such as "0666"."""

    path: str
    major: int
    minor: int
    mode: str
    linked: bool  # in /dev/char, where runc looks it up


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
