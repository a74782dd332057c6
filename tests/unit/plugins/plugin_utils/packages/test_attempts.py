# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.attempts import (
    PROGRESS_S,
    Failed,
    Lock,
    attempt,
)

LOCK = {"path": "/var/lib/dpkg/lock-frontend", "pid": 812, "command": "apt-get upgrade"}
STARTED = {**LOCK, "started": 1795362241.5}  # 2026-11-22 15:44:01 UTC
IN_USE = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 509 (apt)"
LACKS = "no available installation candidate for nvidia-driver-cuda=580.178.04-1"
BUSY_SERVER = "E: Failed to fetch http://mirror.example/InRelease  503  Service Unavailable"
BROKEN = "E: Sub-process /usr/bin/dpkg returned an error code (1)"


class Node:
    """A node whose package manager is locked for some seconds, and then has these errors."""

    def __init__(self, *errors: str, locked_s: float = 0, holder: Lock = LOCK) -> None:
        self.errors, self.locked_s, self.holder = [*errors], locked_s, holder
        self.now = 0.0
        self.worked: list[bool] = []  # whether each attempt read the index again
        self.shown: list[tuple[float, str]] = []

    @property
    def lines(self) -> list[str]:
        return [line for _when, line in self.shown]

    def work(self, *, is_fresh: bool) -> Failed | None:
        self.worked.append(is_fresh)
        if self.now < self.locked_s:
            return Failed(IN_USE)
        return Failed(self.errors.pop(0), "as printed") if self.errors else None

    def wait(self, seconds: int) -> Lock | None:
        end = self.now + seconds
        self.now = max(self.now, min(end, self.locked_s))
        return self.holder if self.now < self.locked_s else None

    def pause(self, seconds: int) -> None:
        self.now += seconds

    def show(self, line: str) -> None:
        self.shown.append((self.now, line))

    def clock(self) -> float:
        return self.now


class Elsewhere(Node):
    """A node on which nobody can see who holds the lock."""

    def wait(self, seconds: int) -> Lock | None:
        return None


def run(node: Node, timeout: int = 300, *, has_index: bool = True) -> Failed | None:
    return attempt(node, "gpu-1", timeout, has_index=has_index)


@pytest.mark.parametrize(
    ("errors", "has_index", "worked", "error"),
    [
        pytest.param([], True, [False], None, id="works"),
        pytest.param([BROKEN], True, [False], BROKEN, id="fails"),
        pytest.param([LACKS], True, [False, True], None, id="index lacks the version"),
        pytest.param([LACKS, LACKS], True, [False, True], LACKS, id="so does the repository"),
        pytest.param([LACKS], False, [False], LACKS, id="an operation without the index"),
        pytest.param([BUSY_SERVER], False, [False] * 2, None, id="server has a bad moment"),
        pytest.param([BUSY_SERVER] * 3, False, [False] * 3, BUSY_SERVER, id="server is ill"),
        pytest.param([BUSY_SERVER, BROKEN], False, [False] * 2, BROKEN, id="and then fails"),
        pytest.param([IN_USE], True, [False] * 2, None, id="lock that is free again"),
    ],
)
def test_attempts(errors: list[str], has_index: bool, worked: list[bool], error: Any) -> None:
    node = Node(*errors)
    failed = run(node, has_index=has_index)
    assert node.worked == worked
    assert failed == (Failed(error, "as printed") if error else None)


def test_repeats_are_announced() -> None:
    node = Node(BUSY_SERVER)
    run(node, has_index=False)
    assert node.lines == [f"gpu-1: the run tries again in 5 s: {BUSY_SERVER}"]


def test_wait_names_the_process_and_since_when() -> None:
    node = Node(locked_s=40, holder=STARTED)
    assert run(node) is None
    first, *others = node.lines
    assert first.startswith(
        "PACKAGE_MANAGER_BUSY gpu-1: apt-get upgrade (process 812) holds the package manager's "
        "lock; the run waits up to 300 s\n"
    )
    assert others == [
        "gpu-1: apt-get upgrade (process 812, started 2026-11-22 15:44:01 UTC) holds the package "
        f"manager's lock; the run waits {left} s more"
        for left in (300, 285, 270)
    ]
    times = [when for when, _line in node.shown]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 15
    assert PROGRESS_S == 15


@pytest.mark.parametrize(
    ("node", "timeout", "holder", "attempts"),
    [
        pytest.param(Node(locked_s=999), 60, "apt-get upgrade (process 812)", 1, id="observed"),
        pytest.param(Node(locked_s=999), 0, "apt-get upgrade (process 812)", 1, id="no time"),
        pytest.param(Elsewhere(locked_s=999), 12, "apt (process 509)", 5, id="not to be seen"),
    ],
)
def test_lock_that_is_held_too_long(node: Node, timeout: int, holder: str, attempts: int) -> None:
    failed = run(node, timeout)
    assert failed is not None
    assert failed.finding is not None
    assert failed.finding["code"] == "PACKAGE_MANAGER_LOCKED"
    assert failed.finding["message"] == (
        f"gpu-1: {holder} held the package manager's lock for more than {timeout} s"
    )
    assert len(node.worked) == attempts
    assert node.now == timeout


def test_time_for_the_lock_is_spent_once() -> None:
    """A second process may take the lock before the operation does."""
    node = Node(locked_s=20)
    taken_again = iter([50.0, 999.0])

    def work(*, is_fresh: bool) -> Failed | None:
        if node.now >= node.locked_s:
            node.locked_s = next(taken_again)
        return Failed(IN_USE)

    node.work = work  # type: ignore[method-assign]
    failed = run(node, 60)
    assert failed is not None
    assert failed.finding is not None
    assert node.now == 60
    assert len([line for line in node.lines if "PACKAGE_MANAGER_BUSY" in line]) == 1


def test_process_without_a_command_line() -> None:
    node = Node(locked_s=5, holder={"pid": 0, "command": "", "started": None})
    run(node)
    assert re.search(r"BUSY gpu-1: a process \(process 0\) holds", node.lines[0])
    assert node.lines[1].startswith("gpu-1: a process (process 0) holds")
