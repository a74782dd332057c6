# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages do the packages of an operation need that no repository has? No function does I/O.

The texts are those of dnf 4. apt's words name both already.
"""

from __future__ import annotations

import re

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

_NOTHING_PROVIDES = re.compile(
    r"nothing provides (?P<what>\S+(?: [<=>]+ \S+)?) needed by (?P<by>\S+)"
)


def lacking(host: str, error: str) -> list[dict[str, str]]:
    """Return a finding about everything that dnf finds in no repository."""
    found = dict.fromkeys(
        f"{match['what']}, which {match['by']} needs" for match in _NOTHING_PROVIDES.finditer(error)
    )
    return [finding("DEPENDENCY_MISSING", host, needed="; ".join(found))] if found else []
