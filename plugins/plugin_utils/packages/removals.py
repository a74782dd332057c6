# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages would a transaction remove? No function does I/O.

The texts are those of apt 2.4 to 3.0 and dnf 4, in the locale C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import REDHAT

# What the package managers say if they may not remove a package. They have changed nothing then.
_APT_FORBIDDEN = re.compile(r"Packages need to be removed but remove is disabled")
_DNF_CONFLICTS = re.compile(
    r"problem with installed package (?P<name>\S+?)-[^\s-]+-[^\s-]+\n"
    r"(?=(?: +- .*\n)*? +- .* conflicts with )"
)
_APT_SIMULATES = re.compile(r"^(?:Remv|Purg) (?P<name>[^\s:]+)", re.MULTILINE)
_APT_LISTS = re.compile(
    r"^(?:The following packages will be REMOVED|REMOVING):\n(?P<names>(?:  .*(?:\n|$))+)",
    re.MULTILINE,
)
# A long name has its other columns on the next line, which starts with more blanks.
_DNF_LISTS = re.compile(r"^Removing[^\n]*:\n(?P<rows>(?: [^\n]*(?:\n|$))*)", re.MULTILINE)
_DNF_NEEDS = re.compile(
    r"^Removing dependent packages:\n(?P<rows>(?: [^\n]*(?:\n|$))*)", re.MULTILINE
)
_DNF_REPLACES = re.compile(r"^ +replacing +(?P<name>\S+?)\.\w+ ", re.MULTILINE)


def removed(printed: str) -> list[str]:
    """Return the packages that a transaction would remove, as apt or dnf announces it."""
    found = [match["name"] for match in _APT_SIMULATES.finditer(printed)]
    for match in _APT_LISTS.finditer(printed):
        found += [name.rstrip("*").partition(":")[0] for name in match["names"].split()]
    for match in _DNF_LISTS.finditer(printed):
        rows = [row.split() for row in match["rows"].splitlines() if not row.startswith("  ")]
        found += [row[0] for row in rows if row]
    found += [match["name"] for match in _DNF_REPLACES.finditer(printed)]
    return list(dict.fromkeys(found))


def needing(family: str, printed: str) -> list[str]:
    """Return the packages that a removal would take along.

    dnf also removes what it installed for them and nothing needs any more, if dnf.conf(5) lets it.
    """
    if family != REDHAT:
        return removed(printed)
    rows = "".join(match["rows"] for match in _DNF_NEEDS.finditer(printed))
    return [row.split()[0] for row in rows.splitlines() if not row.startswith("  ")]


def besides(printed: str, allowed: Iterable[str]) -> list[str]:
    """Return the packages that a transaction would remove, but may not; patterns allow some."""
    return others(removed(printed), allowed)


def others(names: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """Return the names that no pattern allows."""
    patterns = [*allowed]
    return [name for name in names if not any(fnmatchcase(name, one) for one in patterns)]


def in_the_way(error: str, printed: str) -> list[str]:
    """Return the packages that the package manager would have to remove, but may not."""
    if _APT_FORBIDDEN.search(error):
        return removed(printed)
    return list(dict.fromkeys(match["name"] for match in _DNF_CONFLICTS.finditer(f"{error}\n")))


def displaced(host: str, names: Iterable[str], gone: Iterable[str]) -> dict[str, str]:
    """Return the finding about packages that would go, and that the plan does not name."""
    packages = ", ".join(gone)
    return finding("PACKAGES_DISPLACED", host, packages=packages, installed=", ".join(names))
