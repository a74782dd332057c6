# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parts of documents that are generated."""

from __future__ import annotations

from pathlib import Path
from re import Pattern


def assert_documented(
    path: Path, pattern: Pattern[str], generated: str, *, is_update: bool
) -> None:
    """Assert that the part of a document that a pattern finds is up to date, or write it anew."""
    document = path.read_text()
    if is_update:
        document = pattern.sub(lambda old: generated, document)
        path.write_text(document)
    (documented,) = pattern.findall(document)
    assert documented == generated
