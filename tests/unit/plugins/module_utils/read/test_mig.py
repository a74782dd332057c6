# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import cdi, mig

RECORD = yaml.safe_load((Path(__file__).parents[4] / "recorded/mig.yml").read_text())
LISTED = "".join(f"{row['name']} {row['minor']}\n" for row in RECORD["minors"])


def test_recorded_minors() -> None:
    found = mig.parse_minors(LISTED)
    common = {"config", "monitor"}
    rows = {row["name"]: row["minor"] for row in RECORD["minors"] if row["name"] not in common}
    assert found == rows


@pytest.mark.parametrize(
    ("numbers", "files"),
    [
        pytest.param((0, 7, 0), [66, 67], id="listed"),
        pytest.param((0, 8, 0), [], id="not-the-compute-instance"),
        pytest.param((None, 7, 0), [], id="gpu-unknown"),
        pytest.param((0, None, 0), [], id="instance-unknown"),
        pytest.param((0, 7, None), [], id="compute-instance-unknown"),
    ],
)
def test_files(numbers: tuple[Any, Any, Any], files: list[int]) -> None:
    found = mig.instance_files(mig.parse_minors(LISTED), *numbers)
    assert found == [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in files]


@pytest.mark.parametrize("row", RECORD["minors"], ids=lambda row: row["name"])
def test_files_of_instances(row: dict[str, Any]) -> None:
    path = f"/dev/nvidia-caps/nvidia-cap{row['minor']}"
    assert mig.is_of_instance(path) is row["name"].startswith("gpu")


@pytest.mark.parametrize("path", ["/dev/nvidia0", "/dev/nvidia-caps-imex-channels/channel66", ""])
def test_other_files(path: str) -> None:
    assert not mig.is_of_instance(path)


@pytest.mark.parametrize("row", RECORD["names"], ids=lambda row: row["strategy"])
def test_recorded_names(row: dict[str, Any]) -> None:
    has_number = row["strategy"] != "uuid"
    assert cdi.gpu_number(row["gpu"]) == ("0" if has_number else None)
    assert cdi.gpu_number(row["instance"]) == ("0" if has_number else None)
    assert cdi.part_number(row["instance"]) == ("0:1" if has_number else None)
    assert cdi.part_number(row["gpu"]) is None


def test_files_of_the_devices_of_a_specification() -> None:
    files = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"]
    nodes = [{"path": path, "major": 1} for path in files]
    document = {
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": "0:0", "containerEdits": {"deviceNodes": nodes}},
            {"name": "1", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia1"}, "x"]}},
            {"name": "2", "containerEdits": []},
            "x",
        ],
    }
    assert cdi.parse_parts(document) == {"nvidia.com/gpu=0:0": files[1:]}
    assert cdi.parse_parts({"devices": {}}) == cdi.parse_parts(None) == {}
