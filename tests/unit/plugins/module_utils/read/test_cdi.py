# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.cdi import parse_devices


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
