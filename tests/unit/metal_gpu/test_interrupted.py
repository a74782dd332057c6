# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ctrl-C while a command waits for a machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Machine, Server
from metal_gpu.terminal import exit_codes

_ROOT = Path(__file__).parents[3]


def _started(home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "metal_gpu", *words],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT / '.ansible' / 'collections'}",
            "HOME": str(home),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Assert that the command ends without a word."""
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == exit_codes.INTERRUPTED, stderr
    assert stdout == ""
    assert "Traceback" not in stderr


def test_interrupted_scan_ends_at_once_and_writes_nothing(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        words = ["scan", f"127.0.0.1:{port}", "--timeout", "600", "--write", str(inventory)]
        process = _started(tmp_path, *words)
        connection, _peer = silent.accept()  # from now on, the scan waits
        _interrupt(process)
        connection.close()
    assert not inventory.exists()


def test_interrupted_doctor_waits_for_no_command_of_a_machine(
    start: Callable[[Machine], Server], key: Any, home: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    shell = ("sh", "-c", f"echo > {begun}; exec cat")  # ends with its input
    server = start(Machine(keys=[key], shell=shell))
    words = ["doctor", f"admin@127.0.0.1:{server.port}", "--timeout", "600"]
    process = _started(home, *words, "--accept-new-host-keys", "--json")
    begun.read_text()  # from now on, doctor waits
    _interrupt(process)
