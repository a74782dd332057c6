# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu top` as a program: in a pipe, and in a pseudo-terminal of 80 columns."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from metal_gpu.terminal import exit_codes

_ROOT = Path(__file__).parents[3]
_FIXTURES = _ROOT / "tests" / "unit" / "fixtures" / "nvidia_smi"
_SCHEMA = json.loads((_ROOT / "src" / "metal_gpu" / "schemas" / "top.json").read_text())
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")
_LOST = "[    9.000000] NVRM: Xid (PCI:0000:82:00): 79, pid=7, GPU has fallen off the bus."
_SWITCH = "[    9.500000] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 22003, Fatal, x"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with a lost GPU, and with a broken NVSwitch."""
    rows = (_FIXTURES / "query-gpu-lost.txt").read_text().partition("\n\n")[2].split("\n")
    text = "".join(f"{row}, 87, 12345, 64, 231.42, 250.00\n" for row in rows if row)
    (tmp_path / "rows").write_text(text)
    (tmp_path / "log").write_text(f"[    0.000000] Linux version 6.1.0\n{_LOST}\n{_SWITCH}\n")
    for name, file in (("nvidia-smi", "rows"), ("dmesg", "log")):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat {tmp_path}/{file}\n")
        (tmp_path / name).chmod(0o755)
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT / '.ansible' / 'collections'}",
        "HOME": str(tmp_path),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }


def _run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "metal_gpu", "top", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_document(environment: dict[str, str]) -> None:
    done = _run(environment, "--once", "--json")
    assert done.returncode == exit_codes.FOUND, done.stderr
    (line,) = done.stdout.splitlines()
    document: dict[str, Any] = json.loads(line)
    jsonschema.validate(document, _SCHEMA)
    good, lost = document["machines"][0]["gpus"]
    assert (good["utilization"], good["power_w"]) == (87, 231.42)
    assert (lost["error"], lost["code"]) == ("[GPU is lost]", "GPU_FAULTY")
    (switch,) = document["machines"][0]["switches"]
    assert switch["sxids"][0]["number"] == 22003
    assert [one["number"] for one in lost["xids"]] == [79]


def test_plain_lines_without_a_terminal(environment: dict[str, str]) -> None:
    done = _run(environment, "--once")
    assert done.returncode == exit_codes.FOUND, done.stderr
    assert "\x1b" not in done.stdout
    switch, head, lost, good, remedies, end = done.stdout.splitlines()
    assert "NVSWITCH_ERROR_LOGGED: NVSwitch 0000:05:00.0: SXid 22003 Fatal, x" in switch
    assert head.split()[:4] == ["host", "GPU", "model", "use"]
    assert "[GPU is lost]; Xid 79 GPU off the bus; GPU_FAULTY" in lost
    host = socket.gethostname()
    assert remedies == (
        f"remedies: metal-gpu doctor {host}; metal-gpu explain NVSWITCH_ERROR_LOGGED GPU_FAULTY"
    )
    assert good.split()[1] == "0"
    assert "12.1/16G" in good
    assert "2 GPUs on 1 of 1 machines" in end
    assert "1 GPU needs somebody; 1 NVSwitch needs somebody" in end


def test_quiet_prints_what_needs_somebody(environment: dict[str, str]) -> None:
    done = _run(environment, "--once", "--quiet")
    assert done.returncode == exit_codes.FOUND, done.stderr
    switch, _head, lost, remedies = done.stdout.splitlines()
    assert "NVSWITCH_ERROR_LOGGED" in switch
    assert lost.split()[1] == "1"
    assert remedies.endswith("metal-gpu explain NVSWITCH_ERROR_LOGGED GPU_FAULTY")
    assert done.stderr == ""


def test_quiet_prints_nothing_if_all_is_well(environment: dict[str, str], tmp_path: Path) -> None:
    rows = (tmp_path / "rows").read_text().splitlines(keepends=True)
    (tmp_path / "rows").write_text("".join(row for row in rows if "lost" not in row))
    (tmp_path / "log").write_text("[    0.000000] Linux version 6.1.0\n")
    assert "1 GPUs on 1 of 1 machines" in _run(environment, "--once").stdout
    done = _run(environment, "--once", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (exit_codes.OK, "", "")


def test_quiet_is_for_one_question(environment: dict[str, str]) -> None:
    done = _run(environment, "--quiet")
    assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
    assert "--quiet needs --once" in done.stderr


def test_unusable_arguments(environment: dict[str, str]) -> None:
    done = _run(environment, "--once", "--inventory", "/no/such/file")
    assert done.returncode == exit_codes.USAGE
    assert "/no/such/file" in done.stderr


@contextmanager
def _terminal(
    environment: dict[str, str], *words: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the command in a terminal of 80 columns. Yield it, and the other end of the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "metal_gpu", "top", *words],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_screen_in_a_terminal(environment: dict[str, str]) -> None:
    """The view fits 80 columns. Ctrl-C ends it, and leaves the terminal as it was."""
    with _terminal(environment, "-n", "60") as (process, terminal):
        before = termios.tcgetattr(terminal)
        shown = _read_until(terminal, "needs somebody")
        process.send_signal(signal.SIGINT)
        shown += _read_to_the_end(terminal)
        assert process.wait() == exit_codes.INTERRUPTED, shown
        assert termios.tcgetattr(terminal) == before
    assert shown.count("\x1b[?1049h") == shown.count("\x1b[?1049l") == 1
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    # The view starts again at the upper left corner.
    lines = _CONTROL.sub("", shown.replace("\x1b[H", "\n")).split("\n")
    assert max(map(len, lines)) <= 80
    assert any("[GPU is lost]" in line for line in lines)
    assert any("87% ━━" in line for line in lines)


def test_no_colour(environment: dict[str, str]) -> None:
    with _terminal({**environment, "NO_COLOR": "1"}, "--once") as (_process, terminal):
        shown = _read_to_the_end(terminal)
    assert "[GPU is lost]" in shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)


def _read_until(terminal: int, words: str) -> str:
    shown = b""
    while words not in _CONTROL.sub("", shown.decode(errors="replace")):
        part = os.read(terminal, 4096)
        assert part, shown
        shown += part
    return shown.decode(errors="replace")


def _read_to_the_end(terminal: int) -> str:
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the program has ended
            return shown.decode(errors="replace")
        if not part:
            return shown.decode(errors="replace")
        shown += part
