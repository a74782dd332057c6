# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the processes that use the NVIDIA driver. Its modules cannot be unloaded while they run.

`read_device_users` does I/O; it takes the root directory as an argument. It is slow, because it
reads every process of the node.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_DEVICES = "/dev/nvidia"
# A CUDA context has it open as long as it lives. NVML does not open it. Of services and monitoring,
# these may have it, by their names as the kernel cuts them: tests/recorded/device_files.yml.
_COMPUTES = "/dev/nvidia-uvm"
_SERVICES = ("nvidia-persiste", "nv-hostengine", "nvsm_core")
# A loaded library of the driver proves its use even if the devices are in another namespace.
_LIBRARIES = re.compile(r"/lib(nvidia-ml|cuda)\.so\.")
# The kubelet's cgroups: pod<uid> by the cgroupfs driver, kubepods-pod<uid>.slice by systemd's.
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


class DeviceUser(TypedDict):
    """A process that has the driver open."""

    pid: int
    command: str  # at most 15 characters
    pod: str | None  # its UID
    computes: bool  # whether it has `/dev/nvidia-uvm` open, as programs of CUDA have


def read_device_users(root: Path) -> list[DeviceUser]:
    """Return the processes that use the driver, sorted by process id."""
    found: list[DeviceUser] = []
    for process in sorted(root.glob("proc/[0-9]*"), key=lambda path: int(path.name)):
        try:
            files = [*_open_files(process)]
            if _uses_driver(process, files):
                command = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                cgroup = (process / "cgroup").read_text(encoding="utf-8", errors="replace")
                pid = int(process.name)
                found.append(
                    {
                        "pid": pid,
                        "command": command,
                        "pod": parse_pod(cgroup),
                        "computes": _COMPUTES in files and command not in _SERVICES,
                    }
                )
        except OSError:  # the process has ended
            continue
    return found


def parse_pod(cgroup: str) -> str | None:
    """Return the UID of the pod that a control group is part of; None if there is none."""
    match = _POD.search(cgroup)
    return match[1].replace("_", "-") if match else None


def _uses_driver(process: Path, files: Iterable[str]) -> bool:
    if any(target.startswith(_DEVICES) for target in files):
        return True
    maps = (process / "maps").read_text(encoding="utf-8", errors="replace")
    return bool(_LIBRARIES.search(maps))


def _open_files(process: Path) -> Iterator[str]:
    for entry in os.scandir(process / "fd"):
        try:
            yield os.readlink(entry.path)
        except FileNotFoundError:  # closed meanwhile
            continue
