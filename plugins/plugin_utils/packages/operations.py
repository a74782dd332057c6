# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which modules does a package operation run, and with which arguments?

apt.py and dnf.py have a function for each operation. tests/unit/golden/packages has their results
for every system. No function does I/O.
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.packages import apt, dnf, runfile
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    Call,
    Request,
    Steps,
    bare_names,
    command,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import DEBIAN, REDHAT

_OPERATIONS = {DEBIAN: apt.OPERATIONS, REDHAT: dnf.OPERATIONS}
_QUESTIONS = {DEBIAN: apt.QUESTIONS, REDHAT: dnf.QUESTIONS}


class OperationUnknown(ValueError):
    """The package manager of this family has no such operation."""


def steps(operation: str, family: str, request: Request) -> Steps:
    """Return the modules that carry out an operation. Raises OperationUnknown."""
    do = _OPERATIONS[family].get(operation) or runfile.OPERATIONS.get(operation)
    if do is None:
        raise OperationUnknown(f"no operation {operation} on systems of the family {family}")
    return do(request)


def questions(family: str, names: list[str]) -> dict[str, Call]:
    """Return what to ask the package manager after a failure: do the repositories answer, and
    which versions do they have?
    """
    update, versions = _QUESTIONS[family]
    bare = bare_names(names, family)
    asked = {"update": update, **({"versions": [*versions, *bare]} if bare else {})}
    return {about: command(*argv, changes=False) for about, argv in asked.items()}
