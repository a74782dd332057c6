# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the process that holds the package manager's lock, and whether dpkg was interrupted.

`read_lock`, `read_start` and `was_interrupted` do I/O; they take the root directory as an argument.

Source: apt-get(8), FILES; dpkg keeps unfinished changes in its directory `updates`;
https://github.com/rpm-software-management/dnf/blob/master/dnf/lock.py
https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact

if TYPE_CHECKING:
    from pathlib import Path

# In the order in which an installation acquires them. All are record locks of fcntl(2).
LOCKS = (
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/cache/apt/archives/lock",
    "var/lib/apt/lists/lock",
    "var/lib/rpm/.rpm.lock",
    "usr/lib/sysimage/rpm/.rpm.lock",
)
# dnf's locks are these files, which contain its process id while it runs.
PROCESS_IDS = (
    "var/lib/dnf/rpmdb_lock.pid",
    "var/cache/dnf/metadata_lock.pid",
    "var/cache/dnf/download_lock.pid",
)
_FLOCK = "hhqqi"  # l_type, l_whence, l_start, l_len, l_pid


class Lock(TypedDict):
    """The process that holds a lock."""

    path: str  # file of the lock
    pid: int  # 0 if it is in another container
    command: str  # empty if it cannot be read


def read_lock(root: Path) -> Lock | None:
    """Return the process that holds a lock of the package manager; None if no process does."""
    for path in LOCKS:
        pid = _record_lock(root / path)
        if pid is not None:
            return {"path": f"/{path}", "pid": pid, "command": _command(root, pid)}
    for path in PROCESS_IDS:
        command = _command(root, pid) if (pid := _process_id(root / path)) else ""
        if command:
            return {"path": f"/{path}", "pid": pid or 0, "command": command}
    return None


def read_start(root: Path, pid: int) -> float | None:
    """Return when a process started, in seconds since the epoch; None if it cannot be read."""
    try:
        # The second field is the program's name in parentheses, which can contain anything.
        fields = (root / "proc" / str(pid) / "stat").read_text().rpartition(")")[2].split()
        system = (root / "proc/stat").read_text().splitlines()
        booted = next(line for line in system if line.startswith("btime ")).split()[1]
        return int(booted) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, LookupError, StopIteration, ValueError):
        return None


def was_interrupted(root: Path) -> bool:
    """Return whether dpkg was interrupted and has unfinished changes."""
    try:
        return any(name.isdecimal() for name in os.listdir(root / "var/lib/dpkg/updates"))
    except OSError:
        return False


def _record_lock(path: Path) -> int | None:
    """Return the id of the process that holds a lock on a file. Does not lock the file."""
    try:
        with path.open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return None if answer[0] == fcntl.F_UNLCK else int(answer[4])


def _process_id(path: Path) -> int | None:
    try:
        return int(path.read_text().strip())
    except (OSError, ValueError):
        return None


def _command(root: Path, pid: int) -> str:
    """Return the command line of a process without credentials; empty if it has ended."""
    try:
        words = (root / "proc" / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return redact(" ".join(word.decode(errors="replace") for word in words if word))
