# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The components of the driver in the archive of Debian's security updates.

Debian 12 has a newer driver there than in its point release. The parts of a driver need each other
in one version, and they are in several components. So both archives need the same components. With
those of an installation, which has non-free-firmware in both and non-free in none, and non-free
added to one archive only, apt finds no solution.

Source: the indexes of bookworm and bookworm-security, and apt's simulation with them, 2026-11-23
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import archive
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    FILES,
    KEY_FILE,
    file_problem,
    is_ours,
    repository_reason,
    unsigned_sources,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

FILE = "metal-gpu-nvidia-driver-security"


def plan_source(
    plan: Plan[Data], node: Node, system: System, components: Iterable[str], now: datetime
) -> None:
    """Plan a source of our own, if the admin has one for security updates that lacks components."""
    if system.id != "debian":
        return  # Ubuntu's updates are in the archive itself
    path = FILES[system.family].format(FILE)
    found = archive.security(node, system)
    lacking = archive.lacking_in(found, components, path)
    theirs = [one for one in found if one["path"] != path]
    if not theirs or not lacking:
        return
    source = theirs[0]
    words = " ".join(lacking)
    if problem := archive.problem(source):
        evidence = {"url": source["url"], "components": words, "path": source["path"]}
        plan.refuse("COMPONENTS_MISSING", **evidence, error=problem)
        return
    desired = archive.repository(FILE, source, source["suite"], lacking)
    reason = repository_reason(node, desired, now)
    plan.data["security"] = {**desired._asdict(), "new": reason is not None}
    if unsigned := unsigned_sources(node, desired):
        files = ", ".join(f"{file} ({option})" for file, option in unsigned.items())
        plan.refuse("REPOSITORY_UNSIGNED", url=desired.url, files=files)
    if reason is None:
        return
    if problem := file_problem(node, FILE):
        plan.refuse("REPOSITORY_FILE_FOREIGN", path=path, error=problem)
    if "python3-debian" not in node["packages"] and not plan.has_step(steps.OURS.python_debian):
        plan.step(steps.OURS.python_debian, "deb822_repository needs it on the node")
    plan.step(steps.SECURITY, reason)


def plan_removal(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of our file."""
    plan.data["security"] = {"name": FILE, "key_file": KEY_FILE.format(FILE)}
    if not is_ours(node, FILE):
        return
    path = node["repositories"][FILE]["path"]
    if problem := file_problem(node, FILE):
        plan.refuse("REPOSITORY_FILE_FOREIGN", path=path, error=problem)
    plan.step(steps.REMOVE_SECURITY, f"this collection wrote {path}")
