# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Try a package operation until it succeeds or fails for a reason that does not pass.

Three reasons pass: another process holds the package manager's lock, the node's index of packages
is older than its repositories, and a server has a bad moment. While the lock is free, an operation
costs no query of the lock: only a failure asks who holds it.

The caller does all I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.failure import (
    is_locked,
    is_passing,
    is_stale,
    locked,
    locked_by,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import explain

PROGRESS_S = 15  # at most, between two lines about the process that holds the lock
_UNSEEN_S = 5  # between two attempts while nobody can see who holds the lock
_REPEATS = 2
_REPEAT_S = 5

Lock = Mapping[str, Any]  # pid, command, started


class Failed(NamedTuple):
    """The failure of an operation."""

    error: str  # of the module, or of the signing key
    printed: str = ""  # by the package manager
    explains: bool = True  # whether it is the package manager's, which can explain it
    began: bool = True  # whether anything on the node may have changed
    finding: dict[str, str] | None = None  # if the reason is known
    code: str = ""  # of the finding that such a failure is


class Node(Protocol):
    """What an attempt needs of its caller."""

    def work(self, *, is_fresh: bool) -> Failed | None:
        """Carry out the operation, with an index that is read again if `is_fresh`."""

    def wait(self, seconds: int) -> Lock | None:
        """Wait until the lock is free. Return the process that holds it after that time."""

    def pause(self, seconds: int) -> None:
        """Wait before the next attempt."""

    def show(self, line: str) -> None:
        """Show the line to the user now."""

    def clock(self) -> float:
        """Return seconds since any point in time."""


def attempt(
    node: Node, host: str, lock_timeout: int, *, has_index: bool, is_fresh: bool = False
) -> Failed | None:
    """Return why the operation failed in the end, or None.

    `has_index` tells whether the operation depends on the index of packages, and `is_fresh`
    whether to read it again at once.
    """
    waiting = _Waiting(node, host, lock_timeout)
    repeats = 0
    while (failed := node.work(is_fresh=is_fresh)) is not None:
        observed = node.wait(0) if failed.explains else None
        if observed or is_locked(failed.error):
            holder = waiting.wait(observed or locked_by(failed.error), is_seen=bool(observed))
            if holder:
                return failed._replace(finding=locked(host, holder, lock_timeout))
        elif has_index and not is_fresh and is_stale(failed.error, failed.printed):
            is_fresh = True
        elif is_passing(failed.error) and repeats < _REPEATS:
            repeats += 1
            error = failed.error.strip().partition("\n")[0]
            node.show(f"{host}: the run tries again in {_REPEAT_S} s: {error}")
            node.pause(_REPEAT_S)
        else:
            return failed
    return None


def wait_for_lock(node: Node, host: str, seconds: int) -> Lock | None:
    """Wait until the lock is free. Return the process that held it for the whole time."""
    lock = node.wait(0)
    return _Waiting(node, host, seconds).wait(lock, is_seen=True) if lock else None


class _Waiting:
    """The time that an operation may wait for the lock, in any number of attempts."""

    def __init__(self, node: Node, host: str, seconds: int) -> None:
        self._node, self._host, self._seconds = node, host, seconds
        self._end: float | None = None

    def wait(self, holder: Lock, *, is_seen: bool) -> Lock | None:
        """Return the process that held the lock for the whole time; None for another attempt."""
        if self._end is None:
            self._end = self._node.clock() + self._seconds
            busy = finding(
                "PACKAGE_MANAGER_BUSY",
                self._host,
                command=holder["command"] or "a process",
                pid=holder["pid"],
                seconds=self._seconds,
            )
            self._node.show("\n".join(explain([busy])))
            if not is_seen:  # it has gone since
                return None
        while (left := round(self._end - self._node.clock())) > 0:
            self._node.show(f"{self._host}: {_described(holder)}; the run waits {left} s more")
            if not is_seen:
                self._node.pause(min(_UNSEEN_S, left))
                return None
            found = self._node.wait(min(PROGRESS_S, left))
            if found is None:
                return None
            holder = found
        return holder


def _described(holder: Lock) -> str:
    started = holder.get("started")
    since = f", started {datetime.fromtimestamp(started, UTC):%F %T} UTC" if started else ""
    process = f"{holder['command'] or 'a process'} (process {holder['pid']}{since})"
    return f"{process} holds the package manager's lock"
