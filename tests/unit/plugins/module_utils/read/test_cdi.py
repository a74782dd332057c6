# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.cdi import (
    parse_devices,
    parse_drivers,
    parse_majors,
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            {"kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}]},
            ["nvidia.com/gpu=0", "nvidia.com/gpu=all"],
            id="gpus",
        ),
        pytest.param({"kind": "nvidia.com/gpu"}, [], id="no-devices"),
        pytest.param({"kind": "a/b", "devices": "x"}, [], id="no-list"),
        pytest.param({"kind": "a/b", "devices": ["x"]}, [], id="no-mappings"),
        pytest.param({}, [], id="empty"),
    ],
)
def test_parse_devices(document, expected):
    assert parse_devices(document) == expected


def test_parse_majors():
    """Of all devices, and of single ones; a path in the container can be another one."""
    edits = {"deviceNodes": [{"path": "/dev/nvidia-uvm", "major": 510, "minor": 0, "type": "c"}]}
    of_gpu = [{"path": "/dev/dri/a", "hostPath": "/dev/nvidia0", "major": 195}, {"path": "/dev/x"}]
    document = {
        "containerEdits": edits,
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": of_gpu}}, "x"],
    }
    assert parse_majors(document) == {"/dev/nvidia-uvm": 510, "/dev/nvidia0": 195}


@pytest.mark.parametrize(
    "document", [None, {}, {"containerEdits": []}, {"containerEdits": {"deviceNodes": {}}}]
)
def test_documents_without_majors(document):
    assert parse_majors(document) == {}


def test_versions_of_the_drivers_libraries() -> None:
    """Of all devices, and of single ones; other libraries have no version of the driver."""
    folder = "/usr/lib/x86_64-linux-gnu"

    def mounts(*names: str) -> dict[str, object]:
        return {"mounts": [{"hostPath": f"{folder}/{name}"} for name in names]}

    document = {
        "containerEdits": mounts("libcuda.so.580.178.04", "libnvidia-ml.so.580.178.04"),
        "devices": [
            {"name": "0", "containerEdits": mounts("nvidia/current/libcuda.so.575.57")},
            {"name": "1", "containerEdits": mounts("libcuda.so.1", "libdrm.so.2.4", "firmware")},
            "x",
        ],
    }
    assert parse_drivers(document) == ["580.178.04", "575.57"]


@pytest.mark.parametrize("document", [None, {}, {"containerEdits": {"mounts": ["x", {}]}}])
def test_documents_without_libraries(document):
    assert parse_drivers(document) == []
