# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Identify a process, so that a later process can find out whether it has ended.

A process id alone is not enough: ids are reused, and mean other processes on other machines or in
other containers. `read_identity` and `is_gone` read /proc, whose path is an argument.

Source: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
"""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def read_identity(pid: int, proc: Path = _PROC) -> str:
    """Return boot, process id namespace, id and start time of a process; empty without /proc."""
    try:
        world, start = _read_world(proc), _read_start(proc, str(pid))
    except (OSError, LookupError):
        return ""
    return f"{world} {pid} {start}"


def is_gone(identity: str, proc: Path = _PROC) -> bool:
    """Return whether a process has certainly ended; False if it may run on another machine."""
    world, _space, rest = identity.partition(" ")
    pid, _space, start = rest.partition(" ")
    try:
        if not pid or world != _read_world(proc):
            return False
    except OSError:
        return False
    try:
        return start != _read_start(proc, pid)
    except (OSError, LookupError):
        return True


def _read_world(proc: Path) -> str:
    """Return what processes share if they see the same process ids."""
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{(proc / 'self/ns/pid').readlink()}"


def _read_start(proc: Path, pid: str) -> str:
    """Return when a process started. Raises OSError or LookupError if it does not run."""
    # The second field is the program's name in parentheses, which can contain anything.
    state, *fields = (proc / pid / "stat").read_text().rpartition(")")[2].split()
    if state in "ZX":
        raise LookupError(f"process {pid} has ended, but its parent has not reaped it")
    return fields[18]
