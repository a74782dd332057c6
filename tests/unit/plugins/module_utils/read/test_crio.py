# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.crio import (
    Effective,
    Runtime,
    parse_effective,
)

CRUN = {"crio": {"runtime": {"default_runtime": "crun", "runtimes": {"crun": {}}}}}
NVIDIA = {
    "crio": {
        "runtime": {
            "runtimes": {
                "nvidia": {
                    "runtime_path": "/usr/bin/nvidia-container-runtime",
                    "runtime_type": "oci",
                }
            }
        }
    }
}


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param([], Effective(None, {}), id="no-file"),
        pytest.param(
            [CRUN, NVIDIA],
            Effective(
                "crun",
                {
                    "crun": Runtime(type=None, binary=None),
                    "nvidia": Runtime(type="oci", binary="/usr/bin/nvidia-container-runtime"),
                },
            ),
            id="drop-in-adds",
        ),
        pytest.param([{"crio": []}], Effective(None, {}), id="nonsense"),
    ],
)
def test_parse_effective(documents, expected):
    assert parse_effective(documents) == expected
