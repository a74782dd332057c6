# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.cdi import (
    parse_devices,
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
