# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages did a role of this collection install on a node?

Neither a repository nor a hold shows it: an admin can install from the same repository and can hold
any package. So each role records in a file on the node what it is about to install, and the version
that was there before. A package counts as the role's while it has the recorded version. An admin
who changes the version takes the package over.

`state: absent` removes only packages that the role added. A package that was there before in
another version stays, and its hold is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.packages import RECORDS
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    install_reason,
    is_version,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def record(
    plan: Plan, node: Mapping[str, Any], role: str, desired: Mapping[str, str]
) -> dict[str, str]:
    """Let the installing step record its packages: nothing else tells them from the admin's.

    Return the packages that are the role's or become the role's. A package that the admin installed
    in the desired version stays the admin's.
    """
    recorded = _recorded(node, role)
    ours = {
        name: version
        for name, version in desired.items()
        if name in recorded or install_reason(node, {name: version})
    }
    new = plan.data.setdefault(
        "packages_record", {"path": RECORDS.replace("*", role), "packages": {}}
    )
    new["packages"] |= {
        name: {"version": version, "before": _before(node, recorded.get(name), name)}
        for name, version in ours.items()
    }
    return ours


def _before(node: Mapping[str, Any], recorded: Mapping[str, Any] | None, name: str) -> str | None:
    """Return the version that was there before the role's first installation."""
    observed = node["packages"].get(name)
    before: str | None = recorded["before"] if recorded else observed and observed["version"]
    return before


def _recorded(node: Mapping[str, Any], role: str) -> dict[str, Mapping[str, Any]]:
    """Return the role's packages that still have the recorded version, keyed by name."""
    packages = node["ours"]["packages"].get(role, {}).get("packages", {})
    return {
        name: one
        for name, one in packages.items()
        if (found := node["packages"].get(name)) and is_version(found["version"], one["version"])
    }


def of_role(node: Mapping[str, Any], role: str) -> list[str]:
    """Return the packages that a role installed, new or in another version."""
    return list(_recorded(node, role))


def added(node: Mapping[str, Any], role: str) -> list[str]:
    """Return the packages that a role installed and that were not there before."""
    return [name for name, one in _recorded(node, role).items() if one["before"] is None]


def refuse_record(plan: Plan, node: Mapping[str, Any], role: str) -> None:
    """Refuse an unreadable record: it does not show which packages are the role's."""
    record = node["ours"]["packages"].get(role)
    if record and record["error"]:
        plan.refuse("PACKAGE_RECORD_INVALID", path=record["path"], error=record["error"])


def plan_forget(
    plan: Plan, node: Mapping[str, Any], role: str, *, release: str, forget: str
) -> None:
    """Plan the steps `release`, for held packages that stay, and `forget`."""
    staying = [name for name in of_role(node, role) if name not in added(node, role)]
    held = [name for name in staying if node["packages"][name]["held"]]
    plan.data["release"] = held
    plan.step(release, f"packages that stay installed: {', '.join(held)}" if held else None)
    record = node["ours"]["packages"].get(role)
    plan.data["packages_record"] = {"path": record["path"]} if record else None
    plan.step(forget, f"this role wrote {record['path']}" if record else None)
