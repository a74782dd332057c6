# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read.device_files import (
    describe_obstacles,
    outdated,
    parse_majors,
)

ROOT = Path(__file__).parents[5]
RECORDED = yaml.safe_load((ROOT / "tests" / "recorded" / "device_files.yml").read_text())
TEXT = """\
Character devices:
  1 mem
195 nvidia
195 nvidiactl
195 nvidia-modeset
236 nvidia-caps
508 nvidia-uvm

Block devices:
  8 sd
511 nvidia-uvm
"""


def file(path: str, major: int) -> dict[str, Any]:
    return {"path": path, "major": major, "minor": 0, "mode": "0666", "linked": True}


def test_majors() -> None:
    assert parse_majors(TEXT) == {"nvidia": 195, "nvidia-uvm": 508, "nvidia-caps": 236}
    assert parse_majors(TEXT.replace("195 nvidia\n", "195 nvidia-frontend\n")) == {
        "nvidia-frontend": 195,
        "nvidia-uvm": 508,
        "nvidia-caps": 236,
    }
    assert parse_majors("") == {}


@pytest.mark.parametrize("row", RECORDED["numbers"], ids=lambda row: row["name"])
def test_recorded_numbers(row: dict[str, Any]) -> None:
    """A file with another number than its name has in /proc/devices is outdated."""
    major = row["major"] or 300
    majors = parse_majors(f"Character devices:\n{major:3} {row['name']}\n")
    for path in row["files"]:
        path = path.replace("N", "1")
        assert outdated([file(path, major)], majors) == {}
        assert outdated([file(path, 511)], majors) == {
            path: f"{path} has the major number 511, and the driver has {major}"
        }


def test_driver_that_is_not_loaded_has_no_numbers() -> None:
    """And what is known of one module says nothing about the files of another."""
    files = [file("/dev/nvidia-uvm", 510), file("/dev/nvidia-nvswitch0", 234)]
    assert outdated(files, {}) == outdated(files, {"nvidia": 195, "nvidia-caps": 236}) == {}


def test_obstacles_in_words() -> None:
    kinds = ("directory", "file", "link", "other")
    found = [{"path": f"/dev/nvidia{number}", "type": kind} for number, kind in enumerate(kinds)]
    assert describe_obstacles(found) == (
        "/dev/nvidia0 is a directory, /dev/nvidia1 is a plain file, /dev/nvidia2 is a link to no "
        "device, /dev/nvidia3 is no character device"
    )
    assert describe_obstacles([]) == ""
