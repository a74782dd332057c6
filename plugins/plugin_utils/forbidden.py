# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does an API server withhold that says 403? No function does I/O.

Our modules and those of kubernetes.core pass its words on, the latter as JSON inside of text, or
inside of the text of a Python value.

Source: kubernetes, staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go
"""

from __future__ import annotations

import re

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

_WORDS = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)"'
    r' in API group "(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]+)")?'
)


def explain_error(error: str, host: str, otherwise: str, **evidence: str) -> dict[str, str]:
    """Return the finding for an error: which permission is withheld, or the code `otherwise`."""
    found = _find(error)
    if found is None:
        return finding(otherwise, host, error=error, **evidence)
    namespace = found["namespace"]
    return finding(
        "CLUSTER_FORBIDDEN",
        host,
        user=found["user"],
        verb=found["verb"],
        resource=".".join(filter(None, (found["resource"], found["group"]))),
        scope=f"in the namespace {namespace}" if namespace else "in the whole cluster",
    )


def _find(error: str) -> re.Match[str] | None:
    return _WORDS.search(re.sub(r'\\+"', '"', error))
