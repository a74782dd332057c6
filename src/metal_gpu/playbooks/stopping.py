# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stop ansible-playbook cleanly, with all processes below it.

It runs in a session of its own, so Ctrl-C in the terminal reaches only this process. The first one
is handed on as SIGINT: Ansible ends its workers and itself. Modules that run on this machine may
need some seconds more, to delete their pods. The second one, or ten seconds, kill what is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType

from ansible_collections.metal.gpu.plugins.module_utils.probe import process_identity

PATIENCE_S = 10.0  # between SIGINT and SIGKILL
_POLL_S = 0.1


class Stop:
    """What signals do to a run."""

    def __init__(
        self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.signal = 0
        self._tell = tell
        self._clock = clock
        self._process = 0  # of ansible-playbook; 0: not known yet
        self._below: dict[int, str] = {}  # processes below it, with their identities
        self._since = 0.0
        self._is_killed = False

    def know(self, process: int) -> None:
        """Take the process of ansible-playbook."""
        if not self._process:
            self._process = process
            if self.signal:
                self._interrupt()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.signal:
            self._is_killed = True
            return
        self.signal, self._since = number, self._clock()
        # The handler of a signal may not wait for the lock of the display.
        words = "stopping: Ansible ends its tasks. Press Ctrl-C again to kill it"
        threading.Thread(target=self._tell, args=[words], daemon=True).start()
        if self._process:
            self._interrupt()

    def is_over(self) -> bool:
        """Tell whether ansible-playbook itself is to be killed."""
        if not self.signal:
            return False
        return self._is_impatient() or not self._process

    def finish(self) -> None:
        """Wait until the processes below ansible-playbook have ended, or kill them."""
        if not self.signal:
            return
        while self._left() and not self._is_impatient():
            time.sleep(_POLL_S)
        kill(self._left())

    def _interrupt(self) -> None:
        self._below = identities(descendants(self._process))
        with suppress(OSError):
            os.kill(self._process, signal.SIGINT)

    def _is_impatient(self) -> bool:
        return self._is_killed or self._clock() - self._since > PATIENCE_S

    def _left(self) -> list[int]:
        return [
            process
            for process, identity in self._below.items()
            if not process_identity.is_gone(identity)
        ]


def descendants(process: int) -> list[int]:
    """Return the processes below a process. Ansible's workers have sessions of their own."""
    command = ["ps", "-A", "-o", "pid=", "-o", "ppid="]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # a small image without ps: Ansible ends its workers itself
        return []
    children: dict[int, list[int]] = {}
    for line in listed.stdout.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found: list[int] = []
    rest = [process]
    while rest:
        below = children.get(rest.pop(), [])
        found += below
        rest += below
    return found


def identities(processes: Iterable[int]) -> dict[int, str]:
    """Return the identities of processes, without those that have ended or cannot be identified."""
    found = {process: process_identity.read_identity(process) for process in processes}
    return {process: identity for process, identity in found.items() if identity}


def kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)
