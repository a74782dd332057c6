# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check the controller before any node is touched. No function does I/O."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

CONTROLLER = "controller"

# The oldest versions that work; meta/ee-requirements.txt has the reasons.
REQUIRED = {"kubernetes": "24.2.0"}

# With these strategies, a task ends on all hosts before the next one starts, and `run_once` runs it
# once. The name can have a collection as its prefix.
_IN_STEP = ("linear", "debug", "mitogen_linear")


def refuse_strategy(strategy: str) -> list[dict[str, str]]:
    """Return a refusal if hosts do not run the tasks of the play in step."""
    if strategy.rpartition(".")[2] in _IN_STEP:
        return []
    return [finding("STRATEGY_UNSUPPORTED", CONTROLLER, strategy=strategy)]


def refuse_packages(python: str, versions: Mapping[str, str | None]) -> list[dict[str, str]]:
    """Return a refusal for each package that an interpreter lacks, or has in an old version.

    `versions` has the installed version of each package; None: not installed.
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
