# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages did a role of this collection install on a node?

Neither a repository nor a hold shows it: an admin can install from the same repository and can hold
any package. So each role records in a file on the node what it is about to install, and the version
that was there before. A package counts as the role's while it has the recorded version. An admin
who changes the version takes the package over.

A package manager that removes a package also removes the packages that depend on it. So an admin
who changes one package of a role takes all of them over.

`state: absent` removes only packages that the role added. A package that was there before in
another version stays, and its hold is released.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    install_reason,
    is_version,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import Entry
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node


# Packages on which no other package of their role depends. A change of one concerns no other.
_INDEPENDENT = ("cri-dockerd", "nvidia-driver-pinning-*", "nvidia-fabric*manager*", "nvlsm")
# The packages that depend on a package, by role. A removal of the package removes them too.
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


def entries(node: Node, role: str, desired: Mapping[str, str]) -> dict[str, Entry]:
    """Return what to record before the installation: nothing else tells these from the admin's.

    A package that the admin installed in the desired version stays the admin's.
    """
    recorded, ours_before = _recorded(node, role), _of_role(node, role)
    return {
        name: {
            "version": version
            or (node["packages"][name]["version"] if name in ours_before else ""),
            "before": _before(node, ours_before.get(name), name),
        }
        for name, version in desired.items()
        # A package that the admin took over is recorded again, with the admin's version as the one
        # before. Otherwise the old entry would claim it after the installation.
        if name in recorded or install_reason(node, {name: version})
    }


def _before(node: Node, recorded: Entry | None, name: str) -> str | None:
    """Return the version that was there before the role's first installation."""
    observed = node["packages"].get(name)
    return recorded["before"] if recorded else observed and observed["version"]


def _recorded(node: Node, role: str) -> Mapping[str, Entry]:
    """Return the entries of a role's record, keyed by name."""
    record = node["ours"]["packages"].get(role)
    return record["packages"] if record else {}


def _has_recorded_version(node: Node, name: str, entry: Entry) -> bool:
    """Tell whether a package has the recorded version; an entry without one matches none."""
    observed, recorded = node["packages"].get(name), entry["version"]
    return observed is not None and recorded != "" and is_version(observed["version"], recorded)


def unchanged(node: Node, role: str) -> Mapping[str, Entry]:
    """Return the entries of the packages that still have the recorded version, keyed by name."""
    return {
        name: entry
        for name, entry in _recorded(node, role).items()
        if _has_recorded_version(node, name, entry)
    }


def changed(node: Node, role: str) -> list[str]:
    """Return the packages whose versions the admin changed after the role installed them.

    A package that still has its version from before was never installed: that run was interrupted.
    """
    return [
        name
        for name, entry in _recorded(node, role).items()
        if not _is_independent(name)
        and name in node["packages"]
        and not _has_recorded_version(node, name, entry)
        and node["packages"][name]["version"] != entry["before"]
    ]


def _is_independent(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _INDEPENDENT)


def _of_role(node: Node, role: str) -> Mapping[str, Entry]:
    """Return the entries of the role's packages, keyed by name.

    If the admin changed a package of the role, only the independent packages are the role's.
    """
    is_changed = bool(changed(node, role))
    return {
        name: entry
        for name, entry in unchanged(node, role).items()
        if not is_changed or _is_independent(name)
    }


def of_role(node: Node, role: str) -> list[str]:
    """Return the packages that a role installed, new or in another version."""
    return list(_of_role(node, role))


def added(node: Node, role: str) -> list[str]:
    """Return the packages that a role installed and that were not there before.

    Packages that a staying package depends on are left out.
    """
    going = [name for name, entry in _of_role(node, role).items() if entry["before"] is None]
    needed_by = _NEEDED_BY.get(role, {})
    while needed := [
        name
        for name in going
        if any(one in node["packages"] and one not in going for one in needed_by.get(name, ()))
    ]:
        going = [name for name in going if name not in needed]
    return going
