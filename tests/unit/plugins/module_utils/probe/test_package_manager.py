# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_manager import (
    read_lock,
    read_start,
    was_interrupted,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant


def holder(path, pid, command):
    return {"path": path, "pid": pid, "command": command}


FRONTEND = "/var/lib/dpkg/lock-frontend"
TICKS = os.sysconf("SC_CLK_TCK")
HOLD = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Another process, which holds dpkg's lock as dpkg does."""
    plant(tmp_path, {FRONTEND: ""})
    command = [sys.executable, "-c", HOLD, tmp_path / FRONTEND.lstrip("/")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


def test_lock_that_is_held(tmp_path, other):
    plant(tmp_path, {f"/proc/{other.pid}/cmdline": "/usr/bin/apt-get\0-y\0upgrade\0"})
    assert read_lock(tmp_path) == holder(FRONTEND, other.pid, "/usr/bin/apt-get -y upgrade")


def test_lock_of_a_process_that_cannot_be_seen(tmp_path, other):
    assert read_lock(tmp_path) == holder(FRONTEND, other.pid, "")


def test_reading_a_lock_does_not_lock(tmp_path, other):
    read_lock(tmp_path)
    other.stdin.close()
    other.wait()
    assert read_lock(tmp_path) is None


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param({}, None, id="no package manager"),
        pytest.param({FRONTEND: "", "/var/lib/rpm/.rpm.lock": ""}, None, id="free"),
        pytest.param(
            {"/var/lib/dnf/rpmdb_lock.pid": "812", "/proc/812/cmdline": "dnf\0upgrade\0"},
            holder("/var/lib/dnf/rpmdb_lock.pid", 812, "dnf upgrade"),
            id="dnf",
        ),
        pytest.param(
            {
                "/var/lib/dnf/rpmdb_lock.pid": "812",
                "/proc/812/cmdline": "dnf\0--setopt=proxy_password=CANARY\0upgrade\0",
            },
            holder("/var/lib/dnf/rpmdb_lock.pid", 812, "dnf --setopt=proxy_password=*** upgrade"),
            id="dnf with a password",
        ),
        pytest.param({"/var/lib/dnf/rpmdb_lock.pid": "812"}, None, id="dnf that was killed"),
        pytest.param({"/var/lib/dnf/rpmdb_lock.pid": ""}, None, id="dnf that starts"),
    ],
)
def test_files_of_locks(tmp_path, texts, expected):
    plant(tmp_path, texts)
    assert read_lock(tmp_path) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param({}, False, id="no dpkg"),
        pytest.param({"/var/lib/dpkg/updates/tmp.i": ""}, False, id="nothing noted"),
        pytest.param({"/var/lib/dpkg/updates/0001": "Package: sudo\n"}, True, id="cut off"),
    ],
)
def test_interrupted(tmp_path, texts, expected):
    plant(tmp_path, texts)
    assert was_interrupted(tmp_path) is expected


def test_start_of_a_process():
    start = read_start(Path("/"), os.getpid())
    assert 0 < time.time() - start < 24 * 3600


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param({}, id="has ended"),
        pytest.param({"/proc/812/stat": "812 (dnf) S 1", "/proc/stat": "btime 1\n"}, id="short"),
        pytest.param({"/proc/812/stat": f"812 (a) S {'1 ' * 30}", "/proc/stat": ""}, id="no boot"),
    ],
)
def test_start_that_cannot_be_read(tmp_path, texts):
    plant(tmp_path, texts)
    assert read_start(tmp_path, 812) is None


def test_start_of_a_process_with_any_name(tmp_path):
    texts = {
        "/proc/812/stat": f"812 (a) b) S {' '.join(map(str, range(4, 22)))} {50 * TICKS} 0",
        "/proc/stat": "cpu 1 2\nbtime 1700000000\nprocesses 9\n",
    }
    plant(tmp_path, texts)
    assert read_start(tmp_path, 812) == 1700000050
