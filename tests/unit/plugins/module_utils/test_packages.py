# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.packages import Package, parse_packages
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "packages/dpkg-query.txt",
            {
                "python3-minimal": Package("3.11.2-1+b1", False),
                "sudo": Package("1.9.13p3-1+deb12u4", True),
            },
            id="dpkg",
        ),
        pytest.param(
            "packages/rpm.txt",
            {
                "nvidia-driver-cuda": Package("3:580.178.04-1.el9", None),
                "libnvidia-ml": Package("3:580.178.04-1.el9", None),
                "kmod": Package("28-10.el9", None),
            },
            id="rpm",
        ),
    ],
)
def test_parse_packages(name, expected):
    assert parse_packages(recording(name)) == expected
