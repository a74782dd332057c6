# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs that outlive the command that started them, identified by process id and start time.

The kernel reuses process ids. A process id with a start time identifies one process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

STOP_TIMEOUT_S = 10.0
POLL_S = 0.1


class Process(NamedTuple):
    """A process of this machine."""

    pid: int
    started: int  # clock ticks after boot, field 22 of /proc/PID/stat


def _start_time(pid: int) -> int | None:
    """Return when `pid` started. None means no such process, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def is_alive(process: Process) -> bool:
    return _start_time(process.pid) == process.started


def start(command: Sequence[str | Path], log: Path) -> Process:
    """Start a program in a new session. Append its output to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        )
    started = _start_time(child.pid)
    if started is None:
        raise SystemExit(f"{command[0]} ended at once:\n{tail(log)}")
    return Process(child.pid, started)


def stop(processes: Sequence[Process]) -> None:
    """Terminate all processes. Kill those that still run after STOP_TIMEOUT_S."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if is_alive(process):
                os.kill(process.pid, number)
        while any(is_alive(process) for process in processes) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        deadline += STOP_TIMEOUT_S


def wait_until(
    ready: Callable[[], bool], what: str, process: Process, log: Path, timeout_s: float = 60
) -> None:
    """Wait until `ready()`. If the process ends or time runs out, exit with the end of `log`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if not is_alive(process):
            raise SystemExit(f"{what} ended:\n{tail(log)}")
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} is not ready after {timeout_s:.0f} s:\n{tail(log)}")
        time.sleep(POLL_S)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
