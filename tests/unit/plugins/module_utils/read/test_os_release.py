# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.os_release import (
    OsRelease,
    parse_os_release,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            recording("os_release/debian-12.txt"),
            OsRelease("debian", "12", "bookworm", "debian", "Debian GNU/Linux 12 (bookworm)"),
            id="debian",
        ),
        pytest.param(
            recording("os_release/rocky-9.txt"),
            OsRelease("rocky", "9.4", None, "redhat", "Rocky Linux 9.4 (Blue Onyx)"),
            id="rocky",
        ),
        pytest.param("ID=nixos\n", OsRelease("nixos", None, None, "other", None), id="other"),
        pytest.param("", OsRelease(None, None, None, "other", None), id="no-file"),
    ],
)
def test_parse_os_release(text, expected):
    assert parse_os_release(text) == expected
