# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parts of documents that are generated, between comments with their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def assert_documented(path: Path, name: str, generated: str, *, is_update: bool) -> None:
    """Assert that the part of a document with this name is up to date, or write it anew."""
    pattern = re.compile(
        rf"(?<=<!-- begin of {re.escape(name)} -->\n).*?(?=<!-- end of {re.escape(name)} -->)",
        re.DOTALL,
    )
    document = path.read_text()
    if is_update:
        document = pattern.sub(lambda old: generated, document)
        path.write_text(document)
    (documented,) = pattern.findall(document)
    assert documented == generated


def table(rows: Iterable[Iterable[str]]) -> str:
    """Return rows, of which the first is the heading, as a table."""
    heading, *others = (list(row) for row in rows)
    lines = [heading, ["---"] * len(heading), *others]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
