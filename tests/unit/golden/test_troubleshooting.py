# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generated part of docs/troubleshooting.md: the index by code.

To write it anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE, DOCUMENT
from ansible_collections.metal.gpu.tests.unit.golden.documents import assert_documented, table
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT


def codes() -> Iterator[list[str]]:
    """Yield the rows of the index."""
    yield ["code", "severity"]
    for code in sorted(CATALOGUE):
        yield [f"[{code}](#{code.lower()})", CATALOGUE[code].severity]


def test_codes_are_documented(is_update: bool) -> None:
    assert_documented(ROOT / DOCUMENT, "codes", table(codes()), is_update=is_update)
