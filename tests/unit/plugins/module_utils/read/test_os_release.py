# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.os_release import (
    parse_os_release,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            recording("os_release/debian-12.txt"),
            ("debian", "12", "bookworm", "debian", "Debian GNU/Linux 12 (bookworm)"),
            id="debian",
        ),
        pytest.param(
            recording("os_release/rocky-9.txt"),
            ("rocky", "9.4", None, "redhat", "Rocky Linux 9.4 (Blue Onyx)"),
            id="rocky",
        ),
        pytest.param("ID=nixos\n", ("nixos", None, None, "other", None), id="other"),
        pytest.param("", (None, None, None, "other", None), id="no-file"),
    ],
)
def test_parse_os_release(text, expected):
    assert tuple(parse_os_release(text).values()) == expected
