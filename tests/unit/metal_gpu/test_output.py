# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What commands print, on a terminal and elsewhere."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from metal_gpu.playbooks import run
from metal_gpu.terminal import output

FINDING = finding("NODE_UNREACHABLE", "gpu-1", error="[bold]timed out[/bold]")


def test_finding_is_one_whole_line_with_its_remedy(capsys):
    output.print_finding(FINDING)
    first, remedy, reference = capsys.readouterr().out.splitlines()
    assert first.startswith("refusal NODE_UNREACHABLE gpu-1: the node cannot be reached: [bold]")
    assert remedy.startswith("    remedy: check the address")
    assert reference == "    see docs/troubleshooting.md#node_unreachable"


def test_long_lines_of_a_terminal(monkeypatch):
    """A command stays whole, what goes on is indented, and no line of a node looks like ours."""
    stream = io.StringIO()
    stream.isatty = lambda: True
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, stream)
    for name, value in {"TERM": "xterm", "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)
    remedy = "run `lspci -d 10de: -vv`, or (`ssh -o BatchMode=yes -p 2222 admin@gpu-1.example`) and"
    message = "gpu-1: 123456789 a\ngpu-2: ok"
    output.print_finding(
        {**FINDING, "message": message, "remedy": f"{remedy} look at what it says"}
    )
    output.print_line("  would: Install the driver of NVIDIA (none)")
    output.error("a b c d e f g h i j k l m n o p q r s t")
    assert re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines() == [
        "refusal NODE_UNREACHABLE gpu-1:",
        "    123456789 a",
        "    gpu-2: ok",
        "    remedy: run `lspci -d 10de: -vv`, or",
        "        (`ssh -o BatchMode=yes -p 2222 admin@gpu-1.example`)",
        "        and look at what it says",
        "    see",
        "        docs/troubleshooting.md#node_unreachable",
        "  would: Install the driver of NVIDIA",
        "      (none)",
        "error: a b c d e f g h i j k l m n o p q",
        "    r s t",
    ]


def test_table(capsys):
    output.print_table(["host", "GPUs"], [["gpu-1", "4"], ["gpu-10", "[red]8"]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "gpu-" in line] == [
        ["gpu-1", "4"],
        ["gpu-10", "[red]8"],
    ]
    assert "\x1b" not in "".join(lines)
    assert [line for line in lines if line.endswith(" ")] == []


COLUMNS = ("host", "GPUs", "kernel", "engine", "cluster node")
ROWS = [
    ["gpu-1", "4 Tesla P100-PCIE-16GB, 1 Tesla T4", "6.18.44-amd64", "containerd 2.4.2", "gpu-1"],
    ["gpu-2", "-", "6.12.1-cloud-amd64", "docker 29.6.0", "-"],
]


def drawn(monkeypatch, width, rows=ROWS):
    """Return the lines of a table on a terminal of this width."""
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    output.print_table(COLUMNS, rows, least=["kernel", "engine"], between={"GPUs": ", "})
    printed = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    return [line.rstrip() for line in printed.splitlines()]


def test_a_table_with_room_has_all_columns(monkeypatch):
    head, _rule, first, second = drawn(monkeypatch, 120)
    assert re.split("  +", head) == [*COLUMNS]
    assert [re.split("  +", first), re.split("  +", second)] == ROWS


def test_parts_of_a_cell_come_below_each_other_before_a_column_is_missing(monkeypatch):
    head, _rule, first, more, second = drawn(monkeypatch, 90)
    assert re.split("  +", head) == [*COLUMNS]
    assert "4 Tesla P100-PCIE-16GB,   6.18.44-amd64" in first
    assert more.split() == ["1", "Tesla", "T4"]
    assert second.split()[:2] == ["gpu-2", "-"]


@pytest.mark.parametrize(
    ("width", "missing"), [(80, ["kernel"]), (60, ["kernel", "engine"]), (46, ["kernel", "engine"])]
)
def test_a_narrow_terminal_gets_no_least_columns(monkeypatch, width, missing):
    lines = drawn(monkeypatch, width)
    assert max(map(len, lines)) <= width
    assert re.split("  +", lines[0]) == [one for one in COLUMNS if one not in missing]
    assert "4 Tesla P100-PCIE-16GB" in lines[2]
    assert lines[-1] == f"no room in {width} columns for: {', '.join(missing)}"


def test_a_large_document_is_written_in_few_parts(monkeypatch):
    written = []
    monkeypatch.setattr(sys.stdout, "write", written.append)
    document = {"rows": [{"name": f"gpu-{number}"} for number in range(20_000)]}
    output.print_json(document)
    assert json.loads("".join(written)) == document
    assert 2 < len(written) < 50


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


EVIL = "a\x1b]52;c;aGk=\x07b\x1b[2Jc\x9b31md\u202ee\tf"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_a_machine_says_does_not_control_the_terminal(monkeypatch, is_terminal):
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    output.print_finding(finding("NODE_UNREACHABLE", "gpu-1", error=EVIL))
    output.print_line(EVIL)
    output.message(EVIL)
    output.error(EVIL)
    output.print_table([EVIL], [[EVIL]])
    output.print_json({EVIL: EVIL})
    printed = stream.getvalue()
    assert printed.count("a?]52;c;aGk=") >= 6
    assert not set(printed) & set("\x1b\x07\x9b\u202e")


def test_json_keeps_its_values(capsys):
    output.print_json({"é": EVIL})
    text = capsys.readouterr().out
    assert json.loads(text) == {"é": EVIL}
    assert "é" in text


def test_lines_of_a_run_do_not_control_the_terminal():
    assert run.plain("\x1b[31mred\x1b[0m\r\n" + EVIL) == "red\n" + run.plain(EVIL)
    assert run.plain("\x1b]0;title\x07\u202e") == "?]0;title??"
