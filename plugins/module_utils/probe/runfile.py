# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read what NVIDIA's `.run` installer left on a node, and what it would meet there. Does I/O.

Source: backup.c of NVIDIA/nvidia-installer, 2026-11-23; Xserver(1), section FILES
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles

if TYPE_CHECKING:
    from pathlib import Path

# The first line of the list of installed files: "1.0-58017804 (580.178.04)".
_LIST = "var/lib/nvidia/log"
_VERSION = re.compile(r"\((\d+(?:\.\d+)+)\)\s*$")
# Packages of a driver have it. The installer prints it, and stops.
_STOPS = "usr/lib/nvidia/alternate-install-present"
_UNINSTALLER = "usr/bin/nvidia-uninstall"
# Where this collection lets the installer unpack itself.
_SPACE = "var/lib"
# A lock has the number of its process.
_LOCKS = "/tmp/.X*-lock"
_DISPLAY = re.compile(r"\.X(\d+)-lock$")


class Installer(TypedDict):
    """The driver of a `.run` file, and what such a file needs."""

    version: str | None  # version that it has installed
    uninstaller: bool  # whether `nvidia-uninstall` exists
    free_mib: int | None  # space in `/var/lib`, where it unpacks itself
    runs_programs: bool | None  # whether programs can run from there, so not `noexec`
    displays: list[str]  # displays of running X servers, such as `:0`
    stops: bool  # whether packages forbid it by `alternate-install-present`


def read_installer(root: Path) -> Installer:
    """Read the traces of an installer, the space for another one, and the X servers that run."""
    free_mib, runs_programs = _read_space(root / _SPACE)
    return {
        "version": _read_version(root / _LIST),
        "uninstaller": (root / _UNINSTALLER).exists(),
        "free_mib": free_mib,
        "runs_programs": runs_programs,
        "displays": _read_displays(root),
        "stops": (root / _STOPS).exists(),
    }


def _read_version(path: Path) -> str | None:
    """Return the version in the first line. The other thousands of lines stay on the node."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            match = _VERSION.search(file.readline(200))
    except OSError:
        return None
    return match[1] if match else None


def _read_space(path: Path) -> tuple[int | None, bool | None]:
    try:
        found = os.statvfs(path)
    except OSError:
        return None, None
    return found.f_bavail * found.f_frsize // 2**20, not found.f_flag & os.ST_NOEXEC


def _read_displays(root: Path) -> list[str]:
    """Return the displays of X servers whose process lives. A server that died leaves its lock."""
    files = NodeFiles(root)
    found = []
    for path in files.find(_LOCKS):
        match = _DISPLAY.search(path)
        pid = (files.read(path) or "").strip()
        if match and pid.isdigit() and (root / "proc" / pid).is_dir():
            found.append(f":{match[1]}")
    return found
