# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to be right on the controller before a node is touched. No function does I/O."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.version import release

CONTROLLER = "controller"

# The oldest versions that work; meta/ee-requirements.txt has the reasons.
REQUIRED = {"kubernetes": "24.2.0"}

# With these, a task ends on all hosts before the next begins, and `run_once` runs it once. The name
# can have a collection before it.
_IN_STEP = ("linear", "debug", "mitogen_linear")


def refuse_strategy(strategy: str) -> list[dict[str, str]]:
    """Return a refusal where hosts do not go through the tasks of the play together."""
    if strategy.rpartition(".")[2] in _IN_STEP:
        return []
    return [finding("STRATEGY_UNSUPPORTED", CONTROLLER, strategy=strategy)]


def refuse_packages(python: str, versions: Mapping[str, str | None]) -> list[dict[str, str]]:
    """Return a refusal for each package that an interpreter does not have, or not new enough.

    `versions` has what is installed of each package, None for nothing.
    """
    return [
        finding(
            "CONTROLLER_PACKAGE_MISSING",
            CONTROLLER,
            python=python,
            package=package,
            found=f"has version {version} of" if version else "does not have",
            minimum=REQUIRED[package],
        )
        for package, version in versions.items()
        if version is None or release(version) < release(REQUIRED[package])
    ]
