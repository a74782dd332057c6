# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages has a role of this collection installed on a node?

Neither a repository nor a hold tells: an admin can install from the same repository, before us and
after us, and can hold what he likes. So each role notes what it is about to install, and what was
there before, in a file on the node. A package counts as the role's as long as its version is the
noted one: who has exchanged it since has made it his. Package managers remove along with a package
what depends on it. So who has exchanged one package of a role has made all of them his.

Only what a role has brought goes with `state: absent`; what was there before in another version
stays, and is not held any more.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.packages import RECORDS
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    is_version,
    packages_gap,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


# Packages that are exchanged by themselves, and that no other package of their role depends on.
_ALONE = ("cri-dockerd", "nvidia-driver-pinning-*")
# Packages that depend on each one, by role: to remove it takes them along.
# Source: deb/common/control of docker/docker-ce-packaging and of Mirantis/cri-dockerd at v0.4.3;
# the toolkit's packages of NVIDIA's repository.
_NEEDED_BY = {
    "docker_ce": {
        "docker-ce-cli": ("docker-ce",),
        "containerd.io": ("docker-ce", "cri-dockerd"),
    },
    "nvidia_container_runtime": {
        "nvidia-container-toolkit-base": ("nvidia-container-toolkit",),
        "libnvidia-container-tools": ("nvidia-container-toolkit",),
        "libnvidia-container1": ("nvidia-container-toolkit", "libnvidia-container-tools"),
    },
}


def record(
    plan: Plan, node: Mapping[str, Any], role: str, wanted: Mapping[str, str]
) -> dict[str, str]:
    """Have the step that installs note what it brings: nothing else tells it from the admin's.

    Return the part of the packages that is the role's, or becomes it: what the admin has in the
    wanted version stays the admin's.
    """
    known, noted_before = _recorded(node, role), _noted(node, role)
    ours = {
        name: version
        for name, version in wanted.items()
        # What was noted and is the admin's by now is noted as such: the record would claim it.
        if name in noted_before or packages_gap(node, {name: version})
    }
    noted = plan.data.setdefault(
        "packages_record", {"path": RECORDS.replace("*", role), "packages": {}}
    )
    noted["packages"] |= {
        name: {
            "version": version or (node["packages"][name]["version"] if name in known else ""),
            "before": _before(node, known.get(name), name),
        }
        for name, version in ours.items()
    }
    return ours


def _before(node: Mapping[str, Any], known: Mapping[str, Any] | None, name: str) -> str | None:
    """Return the version that was there before this role came; what it has replaced is noted."""
    found = node["packages"].get(name)
    before: str | None = known["before"] if known else found and found["version"]
    return before


def _noted(node: Mapping[str, Any], role: str) -> dict[str, Mapping[str, Any]]:
    """Return what the record of a role has, keyed by name."""
    noted: dict[str, Mapping[str, Any]] = node["ours"]["packages"].get(role, {}).get("packages", {})
    return noted


def _is_noted(node: Mapping[str, Any], name: str, one: Mapping[str, Any]) -> bool:
    """Whether a package is there in the version that was noted; no version is none of them."""
    found = node["packages"].get(name)
    return bool(found and one["version"]) and is_version(found["version"], one["version"])


def _unchanged(node: Mapping[str, Any], role: str) -> dict[str, Mapping[str, Any]]:
    """Return what a role has installed, and what still is as it was installed, keyed by name."""
    noted = _noted(node, role)
    return {name: one for name, one in noted.items() if _is_noted(node, name, one)}


def exchanged(node: Mapping[str, Any], role: str) -> list[str]:
    """Return the packages that somebody has exchanged since a role has installed them.

    One that is as it was before the role came was never installed: that run was cut off.
    """
    return [
        name
        for name, one in _noted(node, role).items()
        if not _is_alone(name)
        and name in node["packages"]
        and not _is_noted(node, name, one)
        and node["packages"][name]["version"] != one["before"]
    ]


def _is_alone(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _ALONE)


def _recorded(node: Mapping[str, Any], role: str) -> dict[str, Mapping[str, Any]]:
    """Return what is a role's, keyed by name; where one was exchanged, only what is alone."""
    is_admins = bool(exchanged(node, role))
    unchanged = _unchanged(node, role)
    return {name: one for name, one in unchanged.items() if not is_admins or _is_alone(name)}


def of_role(node: Mapping[str, Any], role: str) -> list[str]:
    """Return the packages that a role has installed, new or in another version."""
    return list(_recorded(node, role))


def brought(node: Mapping[str, Any], role: str) -> list[str]:
    """Return the packages that a role has installed and that were not there before.

    Without those that a package depends on that stays.
    """
    going = [name for name, one in _recorded(node, role).items() if one["before"] is None]
    needed_by = _NEEDED_BY.get(role, {})
    while needed := [
        name
        for name in going
        if any(one in node["packages"] and one not in going for one in needed_by.get(name, ()))
    ]:
        going = [name for name in going if name not in needed]
    return going


def refuse_record(plan: Plan, node: Mapping[str, Any], role: str) -> None:
    """Refuse a record that cannot be read: nobody knows whose the packages are."""
    noted = node["ours"]["packages"].get(role)
    if noted and noted["error"]:
        plan.refuse("PACKAGE_RECORD_INVALID", path=noted["path"], error=noted["error"])


def plan_forget(
    plan: Plan, node: Mapping[str, Any], role: str, *, release: str, forget: str
) -> None:
    """Plan the steps `release`, for packages that stay and that we hold, and `forget`."""
    staying = [name for name in _unchanged(node, role) if name not in brought(node, role)]
    others = exchanged(node, role)
    if others and staying:
        found = ", ".join(f"{name} {node['packages'][name]['version']}" for name in others)
        plan.notice("PACKAGES_EXCHANGED", packages=found, staying=", ".join(staying))
    held = [name for name in staying if node["packages"][name]["held"]]
    plan.data["release"] = held
    plan.step(release, f"{', '.join(held)} stay, and this role held them" if held else None)
    noted = node["ours"]["packages"].get(role)
    plan.data["packages_record"] = {"path": noted["path"]} if noted else None
    plan.step(forget, f"{noted['path']} is left" if noted else None)
