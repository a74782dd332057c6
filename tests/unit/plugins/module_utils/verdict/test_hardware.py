# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.verdict.hardware import (
    judge_cuda,
    judge_hardware,
)
from ansible_collections.metal.gpu.tests.unit.support import done

SLOTS = ["0000:03:00.0", "0000:82:00.0"]


def gpu(index: int | None, address: str | None, uuid: str | None, **more: Any) -> dict[str, Any]:
    return {
        "index": index,
        "pci_address": address,
        "uuid": uuid,
        "minor": None,
        "error": None,
        **more,
    }


FIRST, SECOND = gpu(0, SLOTS[0], "GPU-a", minor=0), gpu(1, SLOTS[1], "GPU-b", minor=1)
LOST = {"error": "GPU is lost"}


def node(*devices: dict[str, Any], failure: Any = None, slots: list[str] = SLOTS) -> dict[str, Any]:
    return done.node(
        pci=done.bus(slots),
        nvml={"devices": list(devices), "failure": failure},
        kernel_log={"events": []},
        device_files=[
            {"path": f"/dev/nvidia{name}", "major": 195} for name in ("ctl", "-uvm", 0, 1)
        ],
        device_majors={},
    )


@pytest.mark.parametrize(
    ("failure", "words", "not_words"),
    [
        (
            {"code": "not_installed", "exit_code": None, "message": "nvidia-smi is not installed"},
            "run `ansible-playbook metal.gpu.site --limit gpu-1`, or `metal.gpu.docker_hosts`",
            "run `nvidia-smi`",
        ),
        (
            {"code": "driver_not_loaded", "exit_code": 9, "message": "no driver"},
            "read `dmesg | grep -iE 'nvrm|nvidia|module'` on the node",
            "ansible-playbook",
        ),
    ],
)
def test_remedy_asks_only_a_program_that_is_there(
    failure: dict[str, Any], words: str, not_words: str
) -> None:
    (found,) = judge_hardware("gpu-1", node(failure=failure), None)
    assert found["remedy"].startswith(words)
    assert not_words not in found["remedy"]


def failed(code: str, exit_code: int | None, message: str) -> dict[str, Any]:
    return {"code": code, "exit_code": exit_code, "message": message}


@pytest.mark.parametrize(
    ("seen", "messages"),
    [
        pytest.param(node(FIRST, SECOND), [], id="healthy"),
        pytest.param(
            node(FIRST, SECOND, failure=failed("inforom_corrupted", 14, "WARNING: infoROM")),
            ["nvidia-smi shows GPUs, but reports a problem: WARNING: infoROM"
             " (exit code 14, inforom_corrupted)"],
            id="rows, and an exit code",
        ),
        pytest.param(
            node(FIRST, SECOND, failure=failed("timeout", None, "did not end within 30 s")),
            ["nvidia-smi shows GPUs, but reports a problem: did not end within 30 s"],
            id="rows, and no end",
        ),
        pytest.param(
            node(failure=failed("driver_not_loaded", 9, "no driver")),
            ["the driver does not answer: no driver (exit code 9, driver_not_loaded)"],
            id="no row",
        ),
        pytest.param(
            {**node(failure=failed("unknown", 255, "Unknown Error")), "device_files": []},
            ["the driver does not answer: Unknown Error (exit code 255, unknown);"
             " /dev/nvidiactl does not exist"],
            id="the control device is gone",
        ),
        pytest.param(
            node(FIRST, gpu(1, SLOTS[1], "GPU-b", **LOST),
                 failure=failed("gpu_lost", 15, "GPU is lost")),
            ["GPU 1 (0000:82:00.0, GPU-b) reports: GPU is lost"],
            id="one is lost",
        ),
        pytest.param(
            node(gpu(0, SLOTS[0], None, **LOST), gpu(None, SLOTS[1], None, **LOST),
                 failure=failed("gpu_lost", 15, "GPU is lost")),
            ["GPU 0 (0000:03:00.0), the GPU 0000:82:00.0 report: GPU is lost"],
            id="two in the same way",
        ),
        pytest.param(
            node(FIRST, gpu(1, SLOTS[1], "GPU-b", **LOST),
                 failure=failed("inforom_corrupted", 14, "WARNING: infoROM")),
            ["GPU 1 (0000:82:00.0, GPU-b) reports: GPU is lost",
             "nvidia-smi shows GPUs, but reports a problem: WARNING: infoROM"
             " (exit code 14, inforom_corrupted)"],
            id="one is lost, another corrupted",
        ),
        pytest.param(
            node(FIRST),
            ["the PCI bus has 2 GPUs, but the driver shows 1; missing: 0000:82:00.0;"
             " the kernel logged nothing about them"],
            id="one is not shown",
        ),
        pytest.param(
            node(FIRST, gpu(1, None, "GPU-b")),
            ["the PCI bus has 2 GPUs, but the driver shows 1; missing: 0000:82:00.0;"
             " the kernel logged nothing about them",
             "nvidia-smi contradicts itself or the PCI bus: GPU 1 (GPU-b) has no PCI address"],
            id="one is shown nowhere",
        ),
        pytest.param(
            node(FIRST, SECOND, gpu(2, "0000:99:00.0", "GPU-c")),
            ["nvidia-smi contradicts itself or the PCI bus:"
             " GPU 2 (0000:99:00.0, GPU-c) is not on the PCI bus"],
            id="one more than there are",
        ),
        pytest.param(
            node(FIRST, gpu(0, SLOTS[1], "GPU-a")),
            ["nvidia-smi contradicts itself or the PCI bus: 2 rows have the index 0;"
             " 2 rows have the UUID GPU-a"],
            id="one twice, with the address of the other",
        ),
        pytest.param(
            node(FIRST, gpu(1, SLOTS[0], "GPU-b")),
            ["the PCI bus has 2 GPUs, but the driver shows 1; missing: 0000:82:00.0;"
             " the kernel logged nothing about them",
             "nvidia-smi contradicts itself or the PCI bus:"
             " 2 rows have the address 0000:03:00.0"],
            id="two in one slot",
        ),
        pytest.param(
            node(FIRST, slots=[]),
            ["the PCI bus has no NVIDIA GPU (vendor 10de, class 0300 or 0302)",
             "nvidia-smi contradicts itself or the PCI bus:"
             " GPU 0 (0000:03:00.0, GPU-a) is not on the PCI bus"],
            id="a row without any GPU on the bus",
        ),
    ],
)  # fmt: skip
def test_hardware(seen: dict[str, Any], messages: list[str]) -> None:
    found = [one["message"].removeprefix("gpu-1: ") for one in judge_hardware("gpu-1", seen, None)]
    assert found == messages


@pytest.mark.parametrize(
    ("modules", "names", "evidence"),
    [
        pytest.param(["nvidia", "nvidia_uvm"], ["-uvm", 0, 1], None, id="complete"),
        pytest.param(
            ["nvidia"], [0, 1],
            "the kernel module nvidia_uvm is not loaded, /dev/nvidia-uvm does not exist",
            id="no UVM",
        ),
        pytest.param(
            ["nvidia"], ["-uvm", 0, 1], "the kernel module nvidia_uvm is not loaded",
            id="a device file without a module",
        ),
        pytest.param(
            ["nvidia", "nvidia_uvm"], ["-uvm", 0], "/dev/nvidia1 does not exist", id="no GPU file"
        ),
    ],
)  # fmt: skip
def test_cuda(modules: list[str], names: list[Any], evidence: str | None) -> None:
    files = [{"path": f"/dev/nvidia{name}"} for name in names]
    seen = {**node(FIRST, SECOND), "device_files": files}
    seen["kernel"]["modules"] = modules
    found = [one["message"] for one in judge_cuda("gpu-1", seen)]
    assert found == ([f"gpu-1: programs cannot use CUDA: {evidence}"] if evidence else [])


@pytest.mark.parametrize(
    ("names", "commands"),
    [
        pytest.param([0, 1], "`nvidia-modprobe -c 0 -u` on", id="uvm"),
        pytest.param(["-uvm", 0], "`nvidia-modprobe -c 1` on", id="one GPU"),
        pytest.param(
            [],
            "`nvidia-modprobe -c 0 -u` and `nvidia-modprobe -c 0` and `nvidia-modprobe -c 1` on",
            id="all",
        ),
    ],
)  # fmt: skip
def test_remedy_names_what_creates_the_missing_files(names: list[Any], commands: str) -> None:
    files = [{"path": f"/dev/nvidia{name}"} for name in names]
    (found,) = judge_cuda("gpu-1", {**node(FIRST, SECOND), "device_files": files})
    assert f"as root, run {commands} the node" in found["remedy"]
    assert "`nvidia-smi` as root, and then reboot" in found["remedy"]


def test_gpus_without_minor_numbers_are_reported() -> None:
    """Because a missing device file of these GPUs would go unnoticed."""
    unnumbered = [{**FIRST, "minor": None}, {**SECOND, "minor": None}]
    (found,) = judge_cuda("gpu-1", node(*unnumbered))
    assert found["code"] == "CUDA_UNAVAILABLE"
    assert found["message"].endswith(
        "the device files of GPU 0 (0000:03:00.0, GPU-a), GPU 1 (0000:82:00.0, GPU-b) are unknown, "
        "because /proc/driver/nvidia/gpus does not have the minor numbers"
    )


@pytest.mark.parametrize("devices", [(), ({**FIRST, **LOST},)], ids=["no GPU", "a lost one"])
def test_cuda_is_not_judged_without_a_gpu(devices: Any) -> None:
    seen = {**node(*devices), "kernel": {"modules": []}, "device_files": []}
    assert list(judge_cuda("gpu-1", seen)) == []
