# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generated parts of documents, between comments with their names, and texts of systems."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS, System

REBUILDS = ("rocky", "almalinux")  # of RHEL


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


def file_name(system: System) -> str:
    return f"{system.id}-{system.version}.txt"


def assert_text(
    folder: Path, system: System, make: Callable[[System], str], *, is_update: bool
) -> None:
    """Assert that the text of a system is as written down, or write it anew.

    A rebuild of RHEL has only the lines in which it differs from RHEL, after - and +.
    """
    text, path = make(system), folder / file_name(system)
    if system.id in REBUILDS:
        rhel = next(one for one in SYSTEMS if (one.id, one.version) == ("rhel", system.version))
        lines = [*difflib.unified_diff(make(rhel).splitlines(), text.splitlines(), n=0)][2:]
        text = "".join(f"{line}\n" for line in lines if not line.startswith("@@"))
    if is_update:
        path.write_text(text)
    assert text == path.read_text()
