# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import kubelet_devices
from metal_gpu import gpu_script
from metal_gpu.gpu_script import Unreadable
from metal_gpu.gpu_use import parse

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_MARK = "@@metal-gpu@@"
_UUID = "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01"


def _recorded(folder: str, name: str) -> str:
    """Return a recorded output without the comment at its start."""
    text = (_FIXTURES / folder / f"{name}.txt").read_text()
    return text.partition("\n\n")[2]


def _more(text: str, *cells: str) -> str:
    """Add our cells to the rows of a recorded query."""
    rows = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"{row}, {', '.join(cells)}" if row[0].isdigit() else row for row in rows)


def _output(
    smi: str,
    rc: str = "0",
    log: str = "",
    checkpoint: str = "",
    listing: str = "",
    bus: str = "",
    bound: str = "",
    pods: str = "",
) -> str:
    parts = {
        "list": listing,
        "bus": bus,
        "bound": bound,
        "log": log,
        "checkpoint": checkpoint,
        "pods": pods,
    }
    others = "".join(f"{text}\n{_MARK} {name} 0\n" for name, text in parts.items())
    return f"Welcome to gpu-1\n\n{_MARK} begin 0\n{smi}\n{_MARK} smi {rc}\n{others}"


def _checkpoint(*devices: str, pod: str = "uid-1") -> str:
    entry = {
        "PodUID": pod,
        "ContainerName": "train",
        "ResourceName": "nvidia.com/gpu",
        "DeviceIDs": {"0": list(devices)},
        "AllocResp": "c2VjcmV0",
    }
    return json.dumps(
        {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}
    )


def test_values() -> None:
    rows = _more(_recorded("nvidia_smi", "query-p100x2"), "87", "12345", "64", "231.42", "250.00")
    use = parse(_output(rows))
    assert use.error is None
    first = use.gpus[0]
    assert first["model"] == "Tesla P100-PCIE-16GB"
    assert (first["utilization"], first["memory_used_mib"], first["memory_mib"]) == (
        87,
        12345,
        16384,
    )
    assert (first["temperature_c"], first["power_w"], first["power_limit_w"]) == (64, 231.42, 250.0)
    assert first["address"] == "0000:03:00.0"


def test_values_that_a_gpu_does_not_offer() -> None:
    """With MIG, the use is [N/A] (nvidia-smi 590.48.01 on an H100)."""
    rows = _more(_recorded("nvidia_smi", "query-h100x8"), "[N/A]", "1", "42", "[N/A]", "ERR!")
    use = parse(_output(rows))
    assert len(use.gpus) == 8
    assert use.gpus[0]["utilization"] is None
    assert use.gpus[0]["power_w"] is None
    assert use.gpus[0]["memory_used_mib"] == 1


def test_lost_gpu() -> None:
    lost = ("[GPU is lost]",) * 5
    use = parse(_output(_more(_recorded("nvidia_smi", "query-gpu-lost"), *lost)))
    assert [gpu["error"] for gpu in use.gpus] == [None, "[GPU is lost]"]
    assert [gpu["code"] for gpu in use.gpus] == [None, "GPU_FAULTY"]
    assert (use.error, use.code) == (None, None)


def test_gpu_without_a_row() -> None:
    rows = _more(_recorded("nvidia_smi", "unreached-with-rows"), "0", "0", "30", "25.0", "250.0")
    use = parse(_output(rows, "255"))
    errors = {gpu["index"]: gpu["error"] for gpu in use.gpus}
    assert errors == {0: "Unknown Error", 1: None, 2: None, 3: None}


@pytest.mark.parametrize(
    ("smi", "rc", "error", "code"),
    [
        ("", "missing", "nvidia-smi is not installed", None),
        ("", "124", "nvidia-smi did not end within 30 s", "NVML_UNAVAILABLE"),
        ("", "137", "nvidia-smi did not end within 30 s", "NVML_UNAVAILABLE"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "9",
            "couldn't communicate with the NVIDIA driver",
            "NVML_UNAVAILABLE",
        ),
        (
            'Field "power.limit" is not a valid field to query.',
            "2",
            "not a valid field",
            "NVML_UNAVAILABLE",
        ),
        ("", "0", "nvidia-smi printed nothing", "NVML_UNAVAILABLE"),
    ],
)
def test_failures(smi: str, rc: str, error: str, code: str | None) -> None:
    use = parse(_output(smi, rc))
    assert use.gpus == []
    assert use.error
    assert error in use.error
    assert use.code == code


def test_a_failure_with_rows_is_another_finding() -> None:
    rows = _more(_recorded("nvidia_smi", "query-p100x2"), *"12345")
    use = parse(_output(f"{rows}\nWARNING: infoROM is corrupted at gpu 0000:03:00.0", "14"))
    assert len(use.gpus) == 2
    assert use.error
    assert "infoROM is corrupted" in use.error
    assert use.code == "NVML_TROUBLE"


def test_the_limit_is_the_one_in_the_message() -> None:
    """timeout(1) gets the limit, and the parser of nvidia-smi names it."""
    use = parse(_output("", "124"))
    limit = re.search(r"timeout -k 1 (\d+) nvidia-smi", gpu_script.SCRIPT)
    assert limit
    assert use.error == f"nvidia-smi did not end within {limit[1]} s"


def test_errors_of_the_kernel_log() -> None:
    rows = _more(_recorded("nvidia_smi", "query-p100x2"), "0", "0", "30", "25.0", "250.0")
    log = _recorded("kernel_log", "application")
    use = parse(_output(rows, log=log))
    (found,) = use.gpus[0]["xids"]
    assert (found["number"], found["tier"]) == (31, "application")
    assert use.gpus[0]["code"] is None
    assert use.gpus[1]["xids"] == []


@pytest.mark.parametrize(
    ("number", "code"), [(31, None), (62, "GPU_ERROR_LOGGED"), (172, "XID_UNKNOWN")]
)
def test_an_error_of_the_kernel_log_has_the_code_of_its_finding(
    number: int, code: str | None
) -> None:
    rows = _more(_recorded("nvidia_smi", "query-p100x2"), *"12345")
    log = f"[ 99.000000] NVRM: Xid (PCI:0000:03:00): {number}, pid=7, words\n"
    assert [gpu["code"] for gpu in parse(_output(rows, log=log)).gpus] == [code, None]


def _of_switch(number: int, words: str) -> str:
    return f"[ 99.000000] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {number}, {words}\n"


def test_fatal_errors_of_nvswitches() -> None:
    """The lines are those of tests/recorded/xids.yml."""
    rows = _more(_recorded("nvidia_smi", "query-p100x2"), *"12345")
    fatal = _of_switch(20034, "Fatal, Link 30 LTSSM Fault Up")
    other = _of_switch(12028, "Non-fatal, Link 32 egress non-posted PRIV error (First)")
    use = parse(_output(rows, log=fatal + fatal + other))
    assert use.switches == (
        {
            "address": "0000:05:00.0",
            "sxids": [{"number": 20034, "count": 2, "line": "Fatal, Link 30 LTSSM Fault Up"}],
            "code": "NVSWITCH_ERROR_LOGGED",
        },
    )
    assert len(use.gpus) == 2
    lost = "[ 99.000000] NVRM: Xid (PCI:0000:03:00): 79, pid=7, GPU has fallen off the bus.\n"
    assert parse(_output(rows, log=fatal + lost)).switches == ()


def test_a_failure_is_shown_beside_gpus_that_only_the_kernel_log_names() -> None:
    log = "[ 99.000000] NVRM: Xid (PCI:0000:03:00): 31, pid=7, words\n"
    use = parse(_output("", "124", log=log))
    assert use.error == "nvidia-smi did not end within 30 s"
    assert [gpu["code"] for gpu in use.gpus] == [None]


def test_a_gpu_that_only_the_kernel_log_names() -> None:
    log = "[ 99.000000] NVRM: GPU 0000:83:00.0: GPU has fallen off the bus.\n"
    use = parse(_output(_more(_recorded("nvidia_smi", "query-p100x2"), *"12345"), log=log))
    last = use.gpus[-1]
    assert (last["address"], last["error"]) == ("0000:83:00.0", "nvidia-smi does not list it")
    assert last["code"] == "GPU_ERROR_LOGGED"
    assert [one["number"] for one in last["xids"]] == [79]


def test_pods() -> None:
    rows = _more(_recorded("nvidia_smi", "query-gpu-lost"), *"12345")
    use = parse(_output(rows, checkpoint=_checkpoint(f"{_UUID}::3", f"{_UUID}::4")))
    assert use.gpus[0]["pods"] == [{"uid": "uid-1", "pod": None}]
    assert use.gpus[1]["pods"] == []


def test_a_pod_that_is_gone_has_no_gpu() -> None:
    """The checkpoint has it until the GPU gets another pod, and the kubelet has no folder of it."""
    rows = _more(_recorded("nvidia_smi", "query-gpu-lost"), *"12345")
    stale = _checkpoint(f"{_UUID}::3", pod="uid-gone")
    assert parse(_output(rows, checkpoint=stale, pods="uid-1\nuid-2")).gpus[0]["pods"] == []
    kept = [{"uid": "uid-gone", "pod": None}]
    assert parse(_output(rows, checkpoint=stale, pods="uid-gone")).gpus[0]["pods"] == kept
    # The kubelet's --root-dir moves the folders, and not the checkpoint.
    assert parse(_output(rows, checkpoint=stale)).gpus[0]["pods"] == kept


_FOUR = ("03", "82", "83", "84")
_BUS_OF_FOUR = "\n".join(f"0000:{bus}:00.0 15f8 030200 nvidia" for bus in _FOUR)
_BOUND_OF_FOUR = "\n".join(
    f"0000:{bus}:00.0 GPU UUID: \t GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c0{number}"
    for number, bus in enumerate(_FOUR, 1)
)


def test_the_others_are_shown_where_a_lost_gpu_takes_all_rows() -> None:
    use = parse(
        _output(
            _recorded("nvidia_smi", "unreached-550"),
            "15",
            listing=_recorded("nvidia_smi", "list-unreached"),
            bus=_BUS_OF_FOUR,
            bound=_BOUND_OF_FOUR,
        )
    )
    assert (use.error, use.code) == (None, None)
    assert [gpu["index"] for gpu in use.gpus] == [0, 1, 2, 3]
    assert [gpu["address"] for gpu in use.gpus] == [f"0000:{bus}:00.0" for bus in _FOUR]
    assert [gpu["code"] for gpu in use.gpus] == [None, None, "GPU_FAULTY", None]
    assert [gpu["utilization"] for gpu in use.gpus] == [None] * 4


@pytest.mark.parametrize(
    "lost",
    [("gpu 2", "gpu 3"), ("gpu 0000:83:00.0", "gpu 0000:84:00.0")],
    ids=["by index", "by address"],
)
def test_all_lost_gpus_are_shown_at_their_slots(lost: tuple[str, str]) -> None:
    """The query ends at the first one. Both have the slots in which no other GPU is."""
    others = _recorded("nvidia_smi", "list-unreached").splitlines()[:3]
    lines = [f"Unable to determine the device handle for {one}: Unknown Error" for one in lost]
    use = parse(
        _output(
            _recorded("nvidia_smi", "unreached-550"),
            "255",
            listing="\n".join([*others, *lines]),
            bus=_BUS_OF_FOUR,
            bound=_BOUND_OF_FOUR,
            log="[ 99.000000] NVRM: GPU 0000:84:00.0: GPU has fallen off the bus.\n",
        )
    )
    assert [gpu["address"] for gpu in use.gpus] == [f"0000:{bus}:00.0" for bus in _FOUR]
    assert [gpu["code"] for gpu in use.gpus] == [None, None, "GPU_FAULTY", "GPU_FAULTY"]
    assert [gpu["uuid"] for gpu in use.gpus] == [f"{_UUID[:-1]}{number}" for number in range(1, 5)]
    assert [[one["number"] for one in gpu["xids"]] for gpu in use.gpus] == [[], [], [], [79]]


def test_a_gpu_that_only_the_bus_has() -> None:
    """Where NVML answers with "not found" for a GPU, its row is missing, and the exit code is 0."""
    rows = _more(_recorded("nvidia_smi", "query-p100x2"), *"12345")
    lines = ["0000:03:00.0 15f8 030200 nvidia", "0000:84:00.0 15f8 030200 nvidia"]
    lines += ["0000:85:00.0 15f8 030200 vfio-pci", "0000:86:00.0 1af1 068000 nvidia"]
    bus = "\n".join(["0000:82:00.0 15f8 030200 nvidia", *lines])
    first, second, missing, lent = parse(_output(rows, bus=bus)).gpus
    assert (first["error"], second["error"]) == (None, None)
    assert (missing["address"], missing["model"]) == ("0000:84:00.0", "Tesla P100-PCIE-16GB")
    assert (missing["error"], missing["code"]) == (
        "nvidia-smi does not list it",
        "NVML_COUNT_DIFFERS",
    )
    assert (lent["address"], lent["error"], lent["code"]) == ("0000:85:00.0", None, None)


def test_a_gpu_that_the_driver_could_not_take() -> None:
    rows = _more(_recorded("nvidia_smi", "query-p100x2"), *"12345")
    *_, refused = parse(_output(rows, bus="0000:84:00.0 15f8 030200")).gpus
    assert (refused["address"], refused["code"]) == ("0000:84:00.0", "NVML_COUNT_DIFFERS")


def test_gpus_without_a_driver_that_answers() -> None:
    """The error of the machine says why nothing is known about its GPUs."""
    use = parse(_output("", "124", bus=_BUS_OF_FOUR, bound=_BOUND_OF_FOUR))
    assert (use.error, use.code) == ("nvidia-smi did not end within 30 s", "NVML_UNAVAILABLE")
    assert [(gpu["error"], gpu["code"]) for gpu in use.gpus] == [(None, None)] * 4


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "NODE_NOT_OBSERVED"),
        ("Not allowed\n", "NODE_NOT_OBSERVED"),
        (f"{_MARK} begin 0\n", "NODE_NOT_OBSERVED"),
        ("This account is currently not available.\n", "LOGIN_SHELL_MISSING"),
    ],
)
def test_machine_that_does_not_run_the_script(text: str, code: str) -> None:
    with pytest.raises(Unreadable, match="the machine did not run the script") as refused:
        parse(text)
    assert refused.value.code == code


def _run(programs: dict[str, str], tmp_path: Path, **variables: str) -> Any:
    """Run the script with these programs before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **variables}
    script = gpu_script.SCRIPT
    for path in (gpu_script.BUS, gpu_script.BOUND, gpu_script.PODS, kubelet_devices.CHECKPOINT):
        script = script.replace(path, f"{tmp_path}{path}")  # nothing of this machine
    # Unlike pipes, files do not wait for a process that stays.
    stdout, stderr = tmp_path / "stdout", tmp_path / "stderr"
    with stdout.open("w") as output, stderr.open("w") as errors:
        done = subprocess.run(
            ["sh", "-s"],
            input=script,
            stdout=output,
            stderr=errors,
            text=True,
            check=False,
            env=environment,
            timeout=30,
        )
    return done.returncode, stdout.read_text(), stderr.read_text()


def test_the_script(tmp_path: Path) -> None:
    """It runs in sh, and prints what the parser reads."""
    rows = _more(_recorded("nvidia_smi", "query-p100x2"), "87", "12345", "64", "231.42", "250.00")
    log = _recorded("kernel_log", "application")
    (tmp_path / "rows").write_text(rows + "\n")
    (tmp_path / "log").write_text(log + "[ 99.0] usb 1-1: secret of somebody\n")
    _rc, stdout, stderr = _run(
        {"nvidia-smi": f"cat {tmp_path}/rows", "dmesg": f"cat {tmp_path}/log"}, tmp_path
    )
    assert stderr == ""
    assert "secret of somebody" not in stdout
    use = parse(stdout)
    assert use.error is None
    assert use.gpus[0]["utilization"] == 87
    assert [one["number"] for one in use.gpus[0]["xids"]] == [31]


def test_the_script_without_a_driver(tmp_path: Path) -> None:
    _rc, stdout, _stderr = _run(
        {"nvidia-smi": "echo Driver not loaded >&2; exit 9", "dmesg": "exit 1"}, tmp_path
    )
    assert parse(stdout) == ([], "Driver not loaded", "NVML_UNAVAILABLE", ())


def test_the_script_ends_although_nvidia_smi_hangs(tmp_path: Path) -> None:
    """A process in the driver outlives the signals of timeout(1), and has its output open."""
    pid = tmp_path / "pid"
    program = f"setsid sleep 60 &\necho $! >{pid}\nexit 124"
    try:
        rc, stdout, _stderr = _run({"nvidia-smi": program}, tmp_path)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    assert rc == 0
    use = parse(stdout)
    assert (use.error, use.code) == ("nvidia-smi did not end within 30 s", "NVML_UNAVAILABLE")


def test_the_script_leaves_the_answers_of_plugins_on_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(_checkpoint(_UUID))
    command = next(line for line in gpu_script.SCRIPT.splitlines() if line.startswith("sed"))
    command = command.replace(kubelet_devices.CHECKPOINT, str(path))
    printed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert "c2VjcmV0" not in printed.stdout
    assert json.loads(printed.stdout)["Data"]["PodDeviceEntries"][0]["PodUID"] == "uid-1"


def test_the_script_asks_for_the_list_where_a_gpu_cannot_be_reached(tmp_path: Path) -> None:
    for bus in _FOUR:
        function = tmp_path / gpu_script.BUS[1:] / f"0000:{bus}:00.0"
        function.mkdir(parents=True)
        for name, value in (("vendor", "0x10de"), ("device", "0x15f8"), ("class", "0x030200")):
            (function / name).write_text(f"{value}\n")
        (function / "driver").symlink_to("/sys/bus/pci/drivers/nvidia")
    (tmp_path / gpu_script.BUS[1:] / "0000:00:00.0").mkdir()
    for line in _BOUND_OF_FOUR.splitlines():
        address, _, words = line.partition(" ")
        folder = tmp_path / gpu_script.BOUND[1:] / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t Tesla\n{words}\nDevice Minor: 0\n")
    pod = tmp_path / gpu_script.PODS[1:] / "uid-1"
    pod.mkdir(parents=True)
    path = tmp_path / kubelet_devices.CHECKPOINT[1:]
    path.parent.mkdir(parents=True)
    path.write_text(_checkpoint(_UUID, pod="uid-gone"))
    for name in ("unreached-550", "list-unreached"):
        (tmp_path / name).write_text(_recorded("nvidia_smi", name) + "\n")
    program = f'[ "$1" = -L ] && exec cat {tmp_path}/list-unreached\ncat {tmp_path}/unreached-550\n'
    _rc, stdout, stderr = _run({"nvidia-smi": f"{program}exit 15", "dmesg": "exit 1"}, tmp_path)
    assert stderr == ""
    gpus = parse(stdout).gpus
    assert [gpu["index"] for gpu in gpus] == [0, 1, 2, 3]
    assert [gpu["address"] for gpu in gpus] == [f"0000:{bus}:00.0" for bus in _FOUR]
    assert [gpu["pods"] for gpu in gpus] == [[]] * 4
