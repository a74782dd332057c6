# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.verdict.device_files import (
    corrections,
    judge_device_files,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.hardware import (
    judge_cuda,
    judge_hardware,
)
from ansible_collections.metal.gpu.tests.unit.plugins.module_utils.verdict import test_hardware

ROOT = Path(__file__).parents[5]
RECORDED = yaml.safe_load((ROOT / "tests" / "recorded" / "device_files.yml").read_text())
MAJORS = {"nvidia": 195, "nvidia-uvm": 509, "nvidia-caps": 236}
UVM = "`nvidia-modprobe -c 0 -u`"
CAPS = "`nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/config`"


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
            "/dev/nvidia0 is a plain file, /dev/nvidia1 is a link to no device, and not",
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


@pytest.mark.parametrize("name", ["nvidia7", "nvidia2", "nvidia-uvm-tools"])
def test_what_no_gpu_of_the_node_needs_blocks_nothing(name: str) -> None:
    assert judged(node((f"/dev/{name}", "directory"))) == []


@pytest.mark.parametrize("silent", ["devices", "minors"])
def test_files_of_gpus_whose_numbers_are_unknown(silent: str) -> None:
    """The driver counts them from 0."""
    seen = node(*((f"/dev/nvidia{number}", "file") for number in (0, 1, 2)))
    unnumbered = [{**gpu, "minor": None} for gpu in seen["nvml"]["devices"]]
    seen["nvml"]["devices"] = unnumbered if silent == "minors" else []
    (found,) = judge_device_files("gpu-1", seen)
    assert found["message"].startswith(
        "gpu-1: /dev/nvidia0 is a plain file, /dev/nvidia1 is a plain file, and not"
    )


def test_numbers_of_the_gpus_count_if_the_driver_says_them() -> None:
    seen = node(("/dev/nvidia1", "file"), ("/dev/nvidia4", "file"))
    seen["nvml"]["devices"][1] = {**seen["nvml"]["devices"][1], "minor": 4}
    (found,) = judge_device_files("gpu-1", seen)
    assert "/dev/nvidia4 is a plain file, and not" in found["message"]
    assert "/dev/nvidia1" not in found["message"]


@pytest.mark.parametrize("row", RECORDED["numbers"], ids=lambda row: row["name"])
def test_commands_create_what_is_recorded(row: dict[str, Any]) -> None:
    """Each file has a program that creates it, according to the records."""
    programs = {one["program"]: one["files"] for one in RECORDED["programs"]}
    for path in row["files"]:
        (command,) = corrections([path.replace("N", "7")])
        words = re.sub(" (?:7|255)$", " N", re.sub(r"/proc/\S+", "FILE", " ".join(command)))
        (program,) = (one for one in programs if words.endswith(one))
        assert path in programs[program] or path == "/dev/nvidiactl"


@pytest.mark.parametrize(
    ("majors", "words", "commands"),
    [
        pytest.param({"-uvm": 510}, "/dev/nvidia-uvm has the major number 510, and the driver has "
                     "509, so programs that open the file fail", [UVM], id="uvm"),
        pytest.param({"0": 200, "1": 200, "ctl": 200}, "/dev/nvidia1 has the major number 200",
                     ["`nvidia-modprobe -c 255`", "`nvidia-modprobe -c 0`",
                      "`nvidia-modprobe -c 1`"], id="GPUs"),
        pytest.param({"-cap1": 510}, "/dev/nvidia-caps/nvidia-cap1 has the major number 510",
                     [CAPS], id="capability"),
    ],
)  # fmt: skip
def test_numbers_that_are_outdated(majors: dict[str, int], words: str, commands: list[str]) -> None:
    (found,) = judged(node(**majors))
    assert found["code"] == "DEVICE_FILE_OUTDATED"
    assert words in found["message"]
    assert all(one in found["remedy"] for one in commands)
