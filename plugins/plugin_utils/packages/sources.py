# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which sources have the packages of an installation, and which one wins? No function does I/O.

The texts are those of apt 2.4 to 3.0 and dnf 4, in the locale C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import DEBIAN
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.unusable import root_of

# The answers about sources, by the name under which rehearsal.py asks for them.
POLICY, OFFERS = "policy", "offers"
OFFERS_FORMAT = "%{name} %{evr} %{repoid}"  # of `dnf repoquery`
_VERSION = re.compile(r"^ (?:\*\*\*|   ) (?P<version>\S+) -?\d+(?: \(.*\))?$")
# The suite is empty if it is "/", as in NVIDIA's repositories.
_SOURCE = re.compile(r"^ {8} *-?\d+ (?P<url>\w+:/\S+) (?P<suite>\S*) ")
_INSTALLS = re.compile(r"^Inst (?P<name>\S+)(?: \[[^\]]*\])? \((?P<version>\S+)", re.MULTILINE)

# A row that is too long goes on in lines that start with more blanks.
_TRANSACTION = re.compile(
    r"^(?:Installing|Upgrading|Downgrading|Reinstalling)[^\n]*:\n(?P<rows>(?: [^\n]*(?:\n|$))*)",
    re.MULTILINE,
)

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
    host: str,
    family: str,
    names: Iterable[str],
    url: str | None,
    answers: Mapping[str, str],
    simulated: str,
) -> list[dict[str, str]]:
    """Return notices about packages that several sources have.

    `answers` and `simulated` are what the package manager said.
    """
    if family == DEBIAN:
        return of_apt(host, names, url, answers.get(POLICY, ""), simulated)
    return of_dnf(host, names, answers.get(OFFERS, ""), simulated)


def installs(simulated: str) -> dict[str, str]:
    """Return the version of each package that apt's simulation would install, by name."""
    return {match["name"]: match["version"] for match in _INSTALLS.finditer(simulated)}


def of_apt(
    host: str, names: Iterable[str], url: str | None, policy: str, simulated: str
) -> list[dict[str, str]]:
    """Return notices about packages that the role's repository and other sources have.

    `names` are without versions. Without the `url` of a repository, any two sources compete.
    """
    table = parse_policy(policy)
    chosen = installs(simulated)
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        versions = table.get(name, {})
        sources = dict.fromkeys(one for found in versions.values() for one in found)
        winners = versions.get(chosen.get(name, ""), [])
        is_ours = [one.partition(" ")[0] == root_of(url) for one in sources] if url else []
        several = any(is_ours) and not all(is_ours) if url else len(sources) > 1
        if winners and several:
            groups.setdefault((", ".join(sources), winners[0]), []).append(name)
    return _notices(host, "apt", groups)


def parse_offers(text: str) -> dict[str, list[str]]:
    """Parse `dnf repoquery` with OFFERS_FORMAT: repositories by package, each once."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[2] not in found.setdefault(words[0], []):
            found[words[0]].append(words[2])
    return found


def parse_transaction(printed: str) -> dict[str, str]:
    """Return the repository from which dnf would take each package, by name."""
    found = {}
    for match in _TRANSACTION.finditer(printed):
        rows = re.sub(r"\n {2,}", "  ", match["rows"])
        for words in map(str.split, rows.splitlines()):
            if len(words) > 3:  # name, architecture, version, repository
                found[words[0]] = words[3]
    return found


def of_dnf(host: str, names: Iterable[str], offers: str, simulated: str) -> list[dict[str, str]]:
    """Return notices about packages that several repositories have; dnf knows them by their ids."""
    table, chosen = parse_offers(offers), parse_transaction(simulated)
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        sources = table.get(name, [])
        if name in chosen and len(sources) > 1:
            groups.setdefault((", ".join(sources), chosen[name]), []).append(name)
    return _notices(host, "dnf", groups)


def _notices(
    host: str, manager: str, groups: Mapping[tuple[str, str], Iterable[str]]
) -> list[dict[str, str]]:
    """Return one notice for packages with the same sources."""
    return [
        finding(
            "PACKAGE_SOURCES",
            host,
            packages=", ".join(names),
            sources=sources,
            manager=manager,
            winner=winner,
        )
        for (sources, winner), names in groups.items()
    ]
