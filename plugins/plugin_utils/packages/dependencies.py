# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages do the packages of an operation need that no repository has? No function does I/O.

The texts are those of dnf 4. apt's words name both already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

_NOTHING_PROVIDES = re.compile(
    r"nothing provides (?P<what>\S+(?: [<=>]+ \S+)?) needed by (?P<by>\S+)"
)

# What the roles ask for by name, and what Red Hat's distributions and NVIDIA's repository lack.
# EPEL has it: tests/recorded/packages/systems.yml.
OF_EPEL = {"dkms": "which builds the driver's module"}


def of_epel(host: str, names: Iterable[str]) -> list[dict[str, str]]:
    """Return a finding about each package of EPEL that no repository has."""
    needs = [f"{name}, {OF_EPEL[name]}" for name in names]
    return [finding("DEPENDENCY_MISSING", host, needed=needed) for needed in needs]


def lacking(host: str, error: str) -> list[dict[str, str]]:
    """Return a finding about everything that dnf finds in no repository."""
    found = dict.fromkeys(
        f"{match['what']}, which {match['by']} needs" for match in _NOTHING_PROVIDES.finditer(error)
    )
    return [finding("DEPENDENCY_MISSING", host, needed="; ".join(found))] if found else []
