# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is missing in a node's repositories and packages? Used by every plan that installs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.packages import UNPACKED
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import (
    FILES,
    KEY_FILE,
    Repository,
    file_problem,
    is_ours,
    repository_gap,
    unsigned_sources,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.systems import DEBIAN, is_redhat

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

REPAIR = "Finish the interrupted package operation"


def plan_repository(
    plan: Plan,
    node: Mapping[str, Any],
    wanted: Repository,
    now: datetime,
    *,
    prepare: str,
    add: str,
) -> None:
    """Plan the steps `prepare` and `add`, by which the repository gets onto the node.

    The tasks find the repository in the plan's data. What `now` is decides about its key.
    """
    gap = repository_gap(node, wanted, now)
    plan.data["repository"] = {**wanted._asdict(), "new": gap is not None}
    unsigned = [f"{file} ({option})" for file, option in unsigned_sources(node, wanted).items()]
    if unsigned:
        plan.refuse("REPOSITORY_UNSIGNED", url=wanted.url, files=", ".join(unsigned))
    problem = file_problem(node, wanted.name) if gap else None
    if problem:
        path = FILES[node["os"]["family"]].format(wanted.name)
        plan.refuse("REPOSITORY_FILE_FOREIGN", path=path, error=problem)
    if gap and not wanted.fingerprint:
        plan.refuse("KEY_UNKNOWN", key=wanted.key)
    if gap and node["os"]["family"] == DEBIAN and "python3-debian" not in node["packages"]:
        plan.step(prepare, "deb822_repository needs it on the node")
    plan.step(add, gap)


def packages_gap(node: Mapping[str, Any], wanted: Mapping[str, str]) -> str | None:
    """Return why packages have to be installed, or None where each has the wanted version."""
    missing = [name for name in wanted if name not in node["packages"]]
    others = [
        f"{name} is {found['version']}, not {version}"
        for name, version in wanted.items()
        if (found := node["packages"].get(name)) and not is_version(found["version"], version)
    ]
    if missing:
        others.append(f"not installed: {', '.join(missing)}")
    return "; ".join(others) or None


def is_version(found: str, wanted: str) -> bool:
    """Whether a version is the wanted one; dnf takes one without its release, apt a pattern."""
    return not wanted or fnmatchcase(found, wanted) or found.startswith(f"{wanted}-")


def arguments(node: Mapping[str, Any], wanted: Mapping[str, str]) -> list[str]:
    """Return packages as the node's package manager takes them; without version, any."""
    sign = "-" if is_redhat(node) else "="
    return [f"{name}{sign}{version}" if version else name for name, version in wanted.items()]


def hold_arguments(node: Mapping[str, Any], wanted: Mapping[str, str]) -> list[str]:
    """Return packages as what holds them takes them: apt by name, dnf with the version."""
    return arguments(node, wanted) if is_redhat(node) else list(wanted)


def hold_gap(node: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return why packages have to be held, or None where all of them are."""
    loose = _loose(node, names)
    return f"not held, so an upgrade would change them: {', '.join(loose)}" if loose else None


def notice_unheld(plan: Plan, node: Mapping[str, Any], names: Iterable[str]) -> None:
    """Say which installed packages of the admin nobody holds: we hold what we have installed."""
    loose = _loose(node, installed(node, names))
    if loose:
        command = "dnf versionlock add" if is_redhat(node) else "apt-mark hold"
        words = " ".join((command, *loose))
        plan.notice("PACKAGES_UNHELD", packages=", ".join(loose), command=words)


def _loose(node: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    return [name for name in names if not node["packages"].get(name, {}).get("held")]


def plan_repair(plan: Plan, node: Mapping[str, Any], *using: str) -> None:
    """Let dpkg finish, before the first step that needs it, what it was cut off from.

    What it has tried to finish and could not fails again, and every other step with it.
    """
    if not any(step["name"] in using for step in plan.steps):
        return
    unfinished = node["package_manager"]["unfinished"]
    if node["package_manager"]["interrupted"]:
        reason = "dpkg has changes that it noted and did not make"
    elif failed(node):
        plan.refuse("PACKAGES_UNFINISHED", **unfinished_evidence(node))
        return
    elif unfinished:
        reason = f"dpkg unpacked {', '.join(unfinished)}, and did not configure them"
    else:
        return
    plan.step(REPAIR, reason)
    plan.steps.insert(0, plan.steps.pop())


def failed(node: Mapping[str, Any]) -> list[str]:
    """Return the packages that dpkg has tried to install and could not, by its own account."""
    unfinished = node["package_manager"]["unfinished"]
    return [name for name, one in unfinished.items() if one["state"] != UNPACKED]


def unfinished_evidence(node: Mapping[str, Any]) -> dict[str, str]:
    """Return what findings name about packages that dpkg could not install."""
    unfinished = node["package_manager"]["unfinished"]
    states = [f"{name} {one['version']} is {one['state']}" for name, one in unfinished.items()]
    if log := node["driver"]["dkms"]["log"]:
        states.append(f"the log of the kernel module's build is {log}")
    return {"packages": "; ".join(states), "names": " ".join(unfinished)}


def plan_no_repository(plan: Plan, node: Mapping[str, Any], name: str, *, remove: str) -> None:
    """Plan the step `remove`, by which the repository goes from the node."""
    plan.data["repository"] = {"name": name, "key_file": KEY_FILE.format(name)}
    if not is_ours(node, name):
        return
    path = node["repositories"][name]["path"]
    problem = file_problem(node, name)
    if problem:
        plan.refuse("REPOSITORY_FILE_FOREIGN", path=path, error=problem)
    plan.step(remove, f"this collection wrote {path}")


def installed(node: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return those of the packages that are installed."""
    return [name for name in names if name in node["packages"]]
