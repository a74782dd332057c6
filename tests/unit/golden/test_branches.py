# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages and streams of the branches that a user can ask for has nobody recorded?

The golden texts show the default branches only. To write the table of docs/support.md anew:
`python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import known, packages
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS, System
from ansible_collections.metal.gpu.tests.unit.golden.documents import assert_documented
from ansible_collections.metal.gpu.tests.unit.golden.judged import name_of_driver
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT
from ansible_collections.metal.gpu.tests.unit.support import records

SUPPORT = ROOT / "docs" / "support.md"
TABLE = re.compile(r"(?<=<!-- begin of branches -->\n).*(?=<!-- end of branches -->)", re.DOTALL)


def items(system: System, version: str, flavour: str) -> Iterator[records.Item]:
    chosen = packages.choose(system, version, flavour)
    assert chosen, f"{system.name}: known.py offers {version}, and nothing has its packages"
    yield from (records.Item("package", name) for name in chosen.packages)
    if chosen.stream:
        yield records.Item("stream", chosen.stream)


def table() -> str:
    """Return the rows: what is not confirmed, and on which systems for which branches."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for system in SYSTEMS:
        for branch, version in known.repository(system).seen.items():
            for flavour in known.flavours(branch):
                for item in items(system, version, flavour):
                    if records.judge(name_of_driver(system), item).state != records.RECORDED:
                        systems = found.setdefault((item.what, item.value), {})
                        branches = systems.setdefault(system.name, [])
                        branches += [] if branch in branches else [branch]
    lines = ["| what | system and branches |", "| --- | --- |"]
    for (what, name), systems in found.items():
        places = [f"{one}: {', '.join(map(str, branches))}" for one, branches in systems.items()]
        lines.append(f"| {what} `{name}` | {'; '.join(places)} |")
    return "".join(f"{line}\n" for line in lines)


def test_unproven_names_of_all_branches_are_documented(is_update: bool) -> None:
    assert_documented(SUPPORT, TABLE, table(), is_update=is_update)
