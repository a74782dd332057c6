# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What commands print, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from metal_gpu.terminal import output

FINDING = finding("NODE_UNREACHABLE", "gpu-1", error="[bold]timed out[/bold]")


def test_finding_is_one_whole_line_with_its_remedy(capsys):
    output.print_finding(FINDING)
    first, remedy, reference = capsys.readouterr().out.splitlines()
    assert first.startswith("refusal NODE_UNREACHABLE gpu-1: the node cannot be reached: [bold]")
    assert remedy.startswith("    remedy: check the address")
    assert reference == "    see docs/troubleshooting.md#node_unreachable"


def test_table(capsys):
    output.print_table(["host", "GPUs"], [["gpu-1", "4"], ["gpu-10", "[red]8"]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "gpu-" in line] == [
        ["gpu-1", "4"],
        ["gpu-10", "[red]8"],
    ]
    assert "\x1b" not in "".join(lines)


def test_streams(capsys):
    output.print_json({"a": "é"})
    output.message("written")
    output.error("wrong")
    printed = capsys.readouterr()
    assert printed.out == '{\n  "a": "é"\n}\n'
    assert printed.err.splitlines() == ["written", "error: wrong"]


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_only_on_a_terminal(environment, coloured):
    """A pseudo-terminal of 80 columns."""
    code = f"from metal_gpu.terminal import output; output.print_finding({FINDING!r})"
    ours, theirs = pty.openpty()
    paths = os.pathsep.join(path for path in sys.path if path)
    result = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=theirs,
        env={"PATH": "/usr/bin:/bin", "TERM": "xterm", "PYTHONPATH": paths, **environment},
    )
    os.close(theirs)
    printed = b""
    try:
        while data := os.read(ours, 4096):
            printed += data
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert result.wait() == 0
    assert (b"\x1b[31m" in printed) is coloured
    assert b"NODE_UNREACHABLE" in printed
