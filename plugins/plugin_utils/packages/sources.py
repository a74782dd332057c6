# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which sources have the packages of an installation, and which one wins? No function does I/O.

The texts are those of apt 2.4 to 3.0, in the locale C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.unusable import root_of

_VERSION = re.compile(r"^ (?:\*\*\*|   ) (?P<version>\S+) -?\d+$")
# The suite is empty if it is "/", as in NVIDIA's repositories.
_SOURCE = re.compile(r"^ {8} *-?\d+ (?P<url>\w+:/\S+) (?P<suite>\S*) ")
_INSTALLS = re.compile(r"^Inst (?P<name>\S+)(?: \[[^\]]*\])? \((?P<version>\S+)", re.MULTILINE)

Table = dict[str, dict[str, list[str]]]  # addresses, the winning one first, by package and version


def parse_policy(text: str) -> Table:
    """Parse `apt-cache policy PACKAGE...`."""
    table: Table = {}
    versions: dict[str, list[str]] = {}
    sources: list[str] = []
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            versions = table.setdefault(line[:-1], {})
        elif version := _VERSION.match(line):
            sources = versions.setdefault(version["version"], [])
        elif source := _SOURCE.match(line):
            sources.append(f"{root_of(source['url'])} {source['suite']}".rstrip())
    return table


def competing(
    host: str, names: Iterable[str], url: str, policy: str, simulated: str
) -> list[dict[str, str]]:
    """Return notices about packages that the role's repository and other sources have.

    `names` are without versions. `policy` and `simulated` are what apt said about them.
    """
    table = parse_policy(policy)
    chosen = {match["name"]: match["version"] for match in _INSTALLS.finditer(simulated)}
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        versions = table.get(name, {})
        sources = dict.fromkeys(one for found in versions.values() for one in found)
        winners = versions.get(chosen.get(name, ""), [])
        is_ours = [one.partition(" ")[0] == root_of(url) for one in sources]
        if winners and any(is_ours) and not all(is_ours):
            groups.setdefault((", ".join(sources), winners[0]), []).append(name)
    return [
        finding("PACKAGE_SOURCES", host, packages=", ".join(found), sources=sources, winner=winner)
        for (sources, winner), found in groups.items()
    ]
