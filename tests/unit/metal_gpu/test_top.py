# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet of `metal-gpu top`: this machine, with programs that print recorded output."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer
from metal_gpu import gpu_script, ssh
from metal_gpu.gpu_pods import GpuPods
from metal_gpu.gpu_use import Gpu, Switch, parse
from metal_gpu.hosts import Host
from metal_gpu.ssh.settings import Session, Settings
from metal_gpu.top import Machine, Top, attention, codes, is_failing, named, needs_somebody

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_UUID = "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01"


def _rows() -> str:
    text = (_FIXTURES / "nvidia_smi" / "query-p100x2.txt").read_text().partition("\n\n")[2]
    return "".join(f"{row}, 87, 12345, 64, 231.42, 250.00\n" for row in text.split("\n") if row)


def _gpu(**changes: Any) -> Gpu:
    output = f"\n@@metal-gpu@@ begin 0\n{_rows()}\n@@metal-gpu@@ smi 0\n"
    return {**parse(output).gpus[0], **changes}  # type: ignore[typeddict-item]


def _machine(host: str, *gpus: Gpu, answered: bool = True, error: str | None = None) -> Machine:
    return {
        "host": host,
        "error": error,
        "code": None,
        "answered": answered,
        "gpus": list(gpus),
        "switches": [],
    }


def _xid(number: int, tier: str) -> dict[str, object]:
    return {"number": number, "count": 1, "tier": tier, "meaning": "x"}


def _switch(number: int) -> Switch:
    sxids: Any = [{"number": number, "count": 1, "line": "Fatal, x"}]
    return {"address": "0000:05:00.0", "sxids": sxids, "code": "NVSWITCH_ERROR_LOGGED"}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that come before those of this machine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    script = gpu_script.SCRIPT.replace(gpu_script.BUS, str(tmp_path))  # not that of this machine
    monkeypatch.setattr(gpu_script, "SCRIPT", script)
    (tmp_path / "rows").write_text(_rows())
    _install(folder, "nvidia-smi", f"cat {tmp_path}/rows")
    _install(folder, "dmesg", "exit 1")
    return folder


def _install(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(("files", "connections"), [(13, 1), (11, 3)])
def test_connections_that_this_computer_cannot_keep(
    files: int, connections: int, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (files, files))
    opened: list[str] = []

    def connect(host: Host, settings: Settings) -> Session:
        opened.append(host.name)
        return ssh.connect(host, settings)

    hosts = [Host.this_machine(name) for name in ("a", "b")]
    hosts = [replace(one, become=False) for one in hosts]
    with Top(hosts, Settings(), connect) as top:
        for _time in range(3):
            assert all(one["answered"] for one in top.ask())
    assert opened.count("a") == connections


def test_what_needs_attention_is_first() -> None:
    machines = [
        _machine("idle", _gpu(utilization=0)),
        _machine("busy", _gpu(utilization=99)),
        _machine("program", _gpu(xids=[_xid(31, "application")])),
        _machine("broken", _gpu(xids=[_xid(79, "hardware")])),
        _machine("lost", _gpu(error="[GPU is lost]")),
        _machine("silent", answered=False, error="no answer"),
        {**_machine("switch", _gpu()), "switches": [_switch(20034)]},
    ]
    ordered = sorted(machines, key=lambda one: (attention(one), one["host"]))
    assert [one["host"] for one in ordered] == [
        "silent",
        "broken",
        "lost",
        "switch",
        "program",
        "busy",
        "idle",
    ]
    assert needs_somebody(machines[3]["gpus"][0])
    assert not needs_somebody(machines[2]["gpus"][0])
    assert [one["host"] for one in ordered if is_failing(one)] == [
        "silent",
        "broken",
        "lost",
        "switch",
    ]


def test_codes_are_those_of_all_readings_each_once() -> None:
    silent = {**_machine("silent", answered=False, error="x"), "code": "NODE_UNREACHABLE"}
    lost, logged = _gpu(error="x", code="GPU_FAULTY"), _gpu(code="GPU_ERROR_LOGGED")
    switch = {**_machine("switch", lost, _gpu()), "switches": [_switch(1), _switch(2)]}
    machines: Any = [silent, switch, _machine("two", logged, lost)]
    assert codes(machines) == [
        "NODE_UNREACHABLE",
        "NVSWITCH_ERROR_LOGGED",
        "GPU_FAULTY",
        "GPU_ERROR_LOGGED",
    ]


def test_a_pod_that_has_ended_is_left_out() -> None:
    holders = [{"uid": "a", "pod": None}, {"uid": "b", "pod": None}]
    machine = _machine("gpu-1", _gpu(pods=holders))
    assert named(machine, None) == machine
    assert named(machine, {"a": "default/train"})["gpus"][0]["pods"] == [
        {"uid": "a", "pod": "default/train"}
    ]


def test_a_fleet_of_this_machine(programs: Path) -> None:
    with Top([Host.this_machine("here")], Settings()) as top:
        (machine,) = top.ask()
        assert (machine["host"], machine["answered"], machine["error"]) == ("here", True, None)
        assert [gpu["utilization"] for gpu in machine["gpus"]] == [87, 87]
        _install(programs, "nvidia-smi", "echo Driver not loaded; exit 9")
        (machine,) = top.ask()
        assert (machine["error"], machine["gpus"]) == ("Driver not loaded", [])


def test_a_host_that_does_not_answer_is_not_asked_at_once_again(programs: Path) -> None:
    count = programs / "count"
    _install(programs, "sh", f"echo x >> {count}; exit 1")
    with Top([Host.this_machine("here")], Settings()) as top:
        first = top.ask()
        asked = count.read_text()
        assert top.ask() == first
    assert first[0]["answered"] is False
    assert first[0]["error"]
    assert not first[0]["error"].startswith("here")  # the view names the host
    assert first[0]["code"] == "NODE_NOT_OBSERVED"
    assert count.read_text() == asked


def test_a_slow_host_does_not_hold_up_the_others(programs: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    hosts = [Host.this_machine("here")]
    with Top(hosts, Settings()) as top:
        first = top.ask()
        _install(programs, "nvidia-smi", f"cat {pipe}")  # waits until somebody writes
        assert top.ask(wait_s=0.2) == first
        assert top.ask(wait_s=0.2) == first
        _install(programs, "nvidia-smi", "exit 9")
        pipe.write_text("")  # the question ends without a row
        (machine,) = top.ask()
        assert machine["gpus"] == []


def test_a_host_that_has_never_answered(programs: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    _install(programs, "nvidia-smi", f"cat {pipe}")
    with Top([Host.this_machine("here")], Settings()) as top:
        (machine,) = top.ask(wait_s=0.1)
        assert (machine["answered"], machine["error"]) == (False, "no answer yet")
        pipe.write_text("")


def _pod(name: str, uid: str, gpus: int) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"nodeName": "gpu-1", "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


def test_names_of_pods(tmp_path: Path) -> None:
    with ApiServer() as server:
        server.put("pods", _pod("train", "uid-1", 1))
        server.put("pods", _pod("web", "uid-2", 0))
        pods = GpuPods(str(server.kubeconfig(tmp_path / "kubeconfig")))
        assert pods.names() is None
        pods.read()
        assert pods.names() == {"uid-1": "default/train"}
        assert pods.error is None


def test_pods_are_followed(tmp_path: Path) -> None:
    with ApiServer() as server:
        server.put("pods", _pod("train", "uid-1", 1))
        pods = GpuPods(str(server.kubeconfig(tmp_path / "kubeconfig")))
        pods.follow()
        assert pods.names() == {"uid-1": "default/train"}


def test_a_cluster_that_cannot_be_asked(tmp_path: Path) -> None:
    for use in (GpuPods.read, GpuPods.follow):
        pods = GpuPods(str(tmp_path / "missing"))
        use(pods)
        assert pods.names() is None
        assert pods.error
        assert "does not exist" in pods.error
