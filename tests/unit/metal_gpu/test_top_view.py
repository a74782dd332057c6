# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `metal-gpu top` shows, by width and height of the terminal."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
import typer
from rich.console import Console

from metal_gpu.gpu_use import Gpu
from metal_gpu.terminal import top as command
from metal_gpu.terminal.top_view import drawn
from metal_gpu.top import Machine

_UID = "5a1f4e0e-8b1b-4b43-9d0c-0c5d3e0c9a11"


def _gpu(index: int, **changes: object) -> Gpu:
    found: Gpu = {
        "index": index,
        "uuid": f"GPU-{index}",
        "address": f"0000:{index:02x}:00.0",
        "model": "NVIDIA H100 80GB HBM3",
        "utilization": 87,
        "memory_used_mib": 72_345,
        "memory_mib": 81_559,
        "temperature_c": 64,
        "power_w": 631.42,
        "power_limit_w": 700.0,
        "error": None,
        "code": None,
        "xids": [],
        "pods": [],
    }
    return {**found, **changes}  # type: ignore[typeddict-item]


def _machines() -> list[Machine]:
    long = "gpu-with-a-very-long-name.rack-7.example.com"
    blank = dict.fromkeys(("utilization", "memory_used_mib", "temperature_c", "power_w"))
    pods = [{"uid": _UID, "pod": "research/" + "train-" * 10}, {"uid": _UID, "pod": None}]
    xids = [{"number": 31, "count": 3, "tier": "application", "meaning": "invalid access"}]
    lost = _gpu(2, error="[GPU is lost]", code="GPU_FAULTY", **blank)
    silent = _machine("silent", error="the node cannot be reached", code="NODE_UNREACHABLE")
    gpus = [_gpu(0, pods=pods), _gpu(1, xids=xids), lost]
    return [{**silent, "answered": False}, _machine("empty"), _machine(long, gpus=gpus)]


def _machine(host: str, **changes: object) -> Machine:
    found: Machine = {
        "host": host,
        "error": None,
        "code": None,
        "answered": True,
        "gpus": [],
        "switches": [],
    }
    return {**found, **changes}  # type: ignore[typeddict-item]


def _drawn(
    width: int,
    height: int | None = None,
    error: str | None = None,
    machines: list[Machine] | None = None,
    *,
    quiet: bool = False,
) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    shown = _machines() if machines is None else machines
    with console.capture() as capture:
        console.print(drawn(shown, error, width, height, quiet=quiet))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_80_columns() -> None:
    lines = _drawn(80)
    assert max(map(len, lines)) <= 80
    assert lines[0] == "silent: NODE_UNREACHABLE: the node cannot be reached"
    assert lines[1] == "empty: no GPU"
    assert lines[2].split() == ["host", "GPU", "use", "memory", "°C", "W", "Xid,", "pods"]
    assert "[GPU is lost]; GPU_" in lines[3]
    assert "Xid 31 x3 invalid access" in lines[4]
    assert lines[5].split()[1:7] == ["0", "87%", "━━━━━", "70.6/80G", "64", "631/700"]
    assert "research/train-" in lines[5]
    assert lines[6] == (
        "remedies: metal-gpu doctor HOST; metal-gpu explain NODE_UNREACHABLE GPU_FAULTY"
    )
    assert lines[7].endswith("1 without an answer; 1 GPU needs somebody")


def test_fatal_errors_of_an_nvswitch_are_a_line_of_their_machine() -> None:
    sxids = [
        {"number": 20034, "count": 3, "line": "Fatal, Link 30 LTSSM Fault Up"},
        {"number": 22003, "count": 1, "line": "Fatal, x"},
    ]
    switch = {"address": "0000:05:00.0", "sxids": sxids, "code": "NVSWITCH_ERROR_LOGGED"}
    lines = _drawn(10_000, machines=[_machine("gpu-1", gpus=[_gpu(0)], switches=[switch])])
    assert lines[0] == (
        "gpu-1: NVSWITCH_ERROR_LOGGED: NVSwitch 0000:05:00.0: "
        "SXid 20034 x3 Fatal, Link 30 LTSSM Fault Up; SXid 22003 Fatal, x"
    )
    assert lines[2].split()[0] == "gpu-1"
    assert lines[3].endswith("metal-gpu explain NVSWITCH_ERROR_LOGGED")
    assert lines[4].endswith("; 1 NVSwitch needs somebody")


def test_remedies_are_named_if_something_needs_one() -> None:
    good = _machine("gpu-1", gpus=[_gpu(0)])
    waiting = _machine("gpu-2", answered=False, error="no answer yet")
    assert "remedies" not in "".join(_drawn(80, machines=[good, waiting]))
    bare = _machine("gpu-2", error="nvidia-smi is not installed")
    assert _drawn(80, machines=[good, bare])[-2] == f"remedies: metal-gpu doctor {bare['host']}"


def test_quiet_shows_what_needs_somebody() -> None:
    silent, head, row, remedies = _drawn(10_000, quiet=True)
    assert silent.startswith("silent: NODE_UNREACHABLE")
    assert head.startswith("host")
    assert row.split()[1] == "2"
    assert "Xid 31" not in row
    assert remedies.endswith("metal-gpu explain NODE_UNREACHABLE GPU_FAULTY")
    switch = {"address": "0000:05:00.0", "sxids": [], "code": "NVSWITCH_ERROR_LOGGED"}
    alone = _machine("gpu-1", gpus=[_gpu(0)], switches=[switch])
    assert [line.split()[0] for line in _drawn(80, machines=[alone], quiet=True)] == [
        "gpu-1:",
        "remedies:",
    ]
    assert _drawn(80, error="the API server", machines=[], quiet=True) == ["the API server"]


def test_a_cluster_that_does_not_answer_is_a_line() -> None:
    lines = _drawn(80, error="the API server " + "x" * 100)
    assert lines[0].startswith("the API server x")
    assert len(lines[0]) == 80


def test_wide_terminals_have_the_model() -> None:
    lines = _drawn(120)
    assert max(map(len, lines)) <= 120
    assert "H100 80GB HBM3" in lines[3]


def test_without_a_terminal_nothing_is_cut() -> None:
    text = "\n".join(_drawn(10_000))
    assert "gpu-with-a-very-long-name.rack-7.example.com" in text
    assert f"{'train-' * 10}; pod {_UID}" in text


def test_what_matters_most_is_shown_where_there_is_little_room() -> None:
    lines = _drawn(80, 7)
    assert [line.split()[0] for line in lines[:-1]] == [
        "silent:",
        "empty:",
        "host",
        "gpu-with-a-very-l…",
        "…",
        "remedies:",
    ]
    assert len(_drawn(80, 10)) == 8


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one GPU."""
    row = "0, GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01, Tesla T4, 15360, 00000000:03:00.0, Enabled"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{row}, 580.1, 5, 1, 30, 25, 70'\n")
    (tmp_path / "dmesg").write_text("#!/bin/sh\n")
    for name in ("nvidia-smi", "dmesg"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        command.top(once=True, as_json=True)
    assert ended.value.exit_code == 0
    (machine,) = json.loads(capsys.readouterr().out)["machines"]
    assert machine["gpus"][0]["utilization"] == 5
    with pytest.raises(typer.Exit):
        command.top(once=True, kubeconfig=str(here / "missing"))
    shown = capsys.readouterr().out
    assert "Tesla T4" in shown
    assert "does not exist" in shown


def test_command_with_a_host_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        command.top(["admin@127.0.0.1:1"], once=True)
    assert ended.value.exit_code == 3
    line, *_others = capsys.readouterr().out.splitlines()
    assert line.startswith("127.0.0.1: NODE_UNREACHABLE: the node cannot be reached: ")
