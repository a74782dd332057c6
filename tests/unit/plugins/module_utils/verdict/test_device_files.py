# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.verdict.device_files import (
    judge_device_files,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.hardware import (
    judge_cuda,
    judge_hardware,
)
from ansible_collections.metal.gpu.tests.unit.plugins.module_utils.verdict import test_hardware

MAJORS = {"nvidia": 195, "nvidia-uvm": 509, "nvidia-caps": 236}
UVM = "`nvidia-modprobe -c 0 -u`"


def node(*obstacles: tuple[str, str], **majors: int) -> dict[str, Any]:
    """Return a healthy node, but for obstacles in /dev and files with these major numbers."""
    seen = test_hardware.node(test_hardware.FIRST, test_hardware.SECOND)
    gone = [path for path, _type in obstacles]
    files = [file for file in seen["device_files"] if file["path"] not in gone]
    for file in files:
        file["major"] = 509 if "uvm" in file["path"] else 195
    files += [{"path": "/dev/nvidia-caps/nvidia-cap1", "major": 236}]
    for file in files:
        file["major"] = majors.get(file["path"].rpartition("nvidia")[2], file["major"])
    return {
        **seen,
        "device_files": files,
        "device_obstacles": [{"path": path, "type": kind} for path, kind in obstacles],
        "device_majors": MAJORS,
    }


def judged(seen: dict[str, Any]) -> list[dict[str, str]]:
    return [
        *judge_hardware("gpu-1", seen, None),
        *judge_cuda("gpu-1", seen),
        *judge_device_files("gpu-1", seen),
    ]


def test_healthy() -> None:
    assert judged(node()) == []


@pytest.mark.parametrize(
    ("obstacles", "words", "command"),
    [
        pytest.param(
            [("/dev/nvidia-uvm", "directory")],
            "/dev/nvidia-uvm is a directory, and not the device file of the driver",
            "remove it with `rmdir /dev/nvidia-uvm`, and run again",
            id="directory",
        ),
        pytest.param(
            [("/dev/nvidia0", "file"), ("/dev/nvidia1", "link")],
            "/dev/nvidia0 is a plain file, /dev/nvidia1 is a link to nothing, and not",
            "`rm /dev/nvidia0` and `rm /dev/nvidia1`",
            id="file and link",
        ),
    ],
)
def test_what_stands_in_the_place_of_a_file(
    obstacles: list[tuple[str, str]], words: str, command: str
) -> None:
    """The file is missing as well, but that is no second finding."""
    (found,) = judged(node(*obstacles))
    assert (found["code"], found["severity"]) == ("DEVICE_FILE_BLOCKED", "stop")
    assert words in found["message"]
    assert command in found["remedy"]


def test_driver_that_does_not_answer_for_an_obstacle() -> None:
    failure = test_hardware.failed("unknown", 255, "Unknown Error")
    seen = node(("/dev/nvidiactl", "directory"))
    found = judged({**seen, "nvml": {"devices": [], "failure": failure}})
    assert [one["code"] for one in found] == ["NVML_UNAVAILABLE", "DEVICE_FILE_BLOCKED"]
    assert "does not exist" not in found[0]["message"]


def test_machine_without_gpus_has_no_obstacles() -> None:
    seen = node(("/dev/nvidia-uvm", "directory"))
    assert list(judge_device_files("gpu-1", {**seen, "pci": []})) == []


@pytest.mark.parametrize(
    ("majors", "words", "commands"),
    [
        pytest.param({"-uvm": 510}, "/dev/nvidia-uvm has the major number 510, and the driver has "
                     "509, so programs that open the file fail", [UVM], id="uvm"),
        pytest.param({"0": 200, "1": 200, "ctl": 200}, "/dev/nvidia1 has the major number 200",
                     ["`nvidia-modprobe -c 255`", "`nvidia-modprobe -c 0`",
                      "`nvidia-modprobe -c 1`"], id="GPUs"),
        pytest.param({"-cap1": 510}, "/dev/nvidia-caps/nvidia-cap1 has the major number 510",
                     ["nvidia-modprobe -f {}"], id="capability"),
    ],
)  # fmt: skip
def test_numbers_that_are_outdated(majors: dict[str, int], words: str, commands: list[str]) -> None:
    (found,) = judged(node(**majors))
    assert found["code"] == "DEVICE_FILE_OUTDATED"
    assert words in found["message"]
    assert all(one in found["remedy"] for one in commands)
