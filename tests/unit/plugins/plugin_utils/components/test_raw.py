# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components import raw

PATHS = ("/a/b.conf", "/a/.conf", "/a/b/c.conf", "/a/b.conf.d", "/ab.conf", "", "/a/[b].conf")


@pytest.mark.parametrize(
    "pattern",
    [
        "/a/*.conf",
        "*.conf",
        "/a/*",
        "*",
        "/a/b.conf",
        "*/b*.conf",
        "/a/[b].conf",
        "/a/?.conf",
        "/a*a",
    ],
)
def test_patterns_match_as_those_of_fnmatch(pattern: str) -> None:
    for path in PATHS:
        assert raw._matches(path, pattern) is fnmatchcase(path, pattern)
