# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages has a role of this collection installed on a node?

Neither a repository nor a hold tells: an admin can install from the same repository, before us and
after us, and can hold what he likes. So each role notes what it is about to install, and what was
there before, in a file on the node. A package counts as the role's as long as its version is the
noted one: who has exchanged it since has made it his.

Only what a role has brought goes with `state: absent`; what was there before in another version
stays, and is not held any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.packages import RECORDS
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    is_version,
    packages_gap,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def record(
    plan: Plan, node: Mapping[str, Any], role: str, wanted: Mapping[str, str]
) -> dict[str, str]:
    """Have the step that installs note what it brings: nothing else tells it from the admin's.

    Return the part of the packages that is the role's, or becomes it: what the admin has in the
    wanted version stays the admin's.
    """
    known = _recorded(node, role)
    ours = {
        name: version
        for name, version in wanted.items()
        if name in known or packages_gap(node, {name: version})
    }
    noted = plan.data.setdefault(
        "packages_record", {"path": RECORDS.replace("*", role), "packages": {}}
    )
    noted["packages"] |= {
        name: {"version": version, "before": _before(node, known.get(name), name)}
        for name, version in ours.items()
    }
    return ours


def _before(node: Mapping[str, Any], known: Mapping[str, Any] | None, name: str) -> str | None:
    """Return the version that was there before this role came; what it has replaced is noted."""
    found = node["packages"].get(name)
    before: str | None = known["before"] if known else found and found["version"]
    return before


def _recorded(node: Mapping[str, Any], role: str) -> dict[str, Mapping[str, Any]]:
    """Return what a role has installed, and what still is as it was installed, keyed by name."""
    noted = node["ours"]["packages"].get(role, {}).get("packages", {})
    return {
        name: one
        for name, one in noted.items()
        if (found := node["packages"].get(name)) and is_version(found["version"], one["version"])
    }


def of_role(node: Mapping[str, Any], role: str) -> list[str]:
    """Return the packages that a role has installed, new or in another version."""
    return list(_recorded(node, role))


def brought(node: Mapping[str, Any], role: str) -> list[str]:
    """Return the packages that a role has installed and that were not there before."""
    return [name for name, one in _recorded(node, role).items() if one["before"] is None]


def refuse_record(plan: Plan, node: Mapping[str, Any], role: str) -> None:
    """Refuse a record that cannot be read: nobody knows whose the packages are."""
    noted = node["ours"]["packages"].get(role)
    if noted and noted["error"]:
        plan.refuse("PACKAGE_RECORD_INVALID", path=noted["path"], error=noted["error"])


def plan_forget(
    plan: Plan, node: Mapping[str, Any], role: str, *, release: str, forget: str
) -> None:
    """Plan the steps `release`, for packages that stay and that we hold, and `forget`."""
    staying = [name for name in of_role(node, role) if name not in brought(node, role)]
    held = [name for name in staying if node["packages"][name]["held"]]
    plan.data["release"] = held
    plan.step(release, f"{', '.join(held)} stay, and this role held them" if held else None)
    noted = node["ours"]["packages"].get(role)
    plan.data["packages_record"] = {"path": noted["path"]} if noted else None
    plan.step(forget, f"{noted['path']} is left" if noted else None)
