# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ctrl-C while a scan waits for a machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from metal_gpu.terminal import exit_codes

_ROOT = Path(__file__).parents[3]


def test_interrupted_scan_ends_at_once_and_writes_nothing(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        words = ["scan", f"127.0.0.1:{port}", "--timeout", "600", "--write", str(inventory)]
        process = subprocess.Popen(
            [sys.executable, "-m", "metal_gpu", *words],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT / '.ansible' / 'collections'}",
                "HOME": str(tmp_path),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _peer = silent.accept()  # from now on, the scan waits
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
        connection.close()
    assert process.returncode == exit_codes.INTERRUPTED, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert not inventory.exists()
