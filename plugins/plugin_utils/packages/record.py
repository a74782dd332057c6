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

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Record:
    """Which packages a role installed. Entries are keyed by the names of packages."""

    entries: Mapping[str, Entry]
    unchanged: Mapping[str, Entry]  # of packages that still have the recorded version
    changed: list[str]  # packages whose versions the admin changed after the role installed them
    ours: Mapping[str, Entry]  # of packages that are the role's, new or in another version
    added: list[str]  # packages that were not there before, and on which none depends that stays

    @classmethod
    def of(cls, node: Node, role: str) -> Record:
        record = node["ours"]["packages"].get(role)
        entries = record["packages"] if record else {}
        found = {
            name: node["packages"][name]["version"] for name in entries if name in node["packages"]
        }
        unchanged = {
            name: entry
            for name, entry in entries.items()
            if name in found and entry["version"] and is_version(found[name], entry["version"])
        }
        # One that still has its version from before was never installed: that run was interrupted.
        changed = [
            name
            for name, version in found.items()
            if not _is_independent(name)
            and name not in unchanged
            and version != entries[name]["before"]
        ]
        # If the admin changed a package of the role, only the independent packages are the role's.
        ours = {
            name: entry for name, entry in unchanged.items() if not changed or _is_independent(name)
        }
        going = [name for name, entry in ours.items() if entry["before"] is None]
        needed_by = _NEEDED_BY.get(role, {})
        while needed := [
            name
            for name in going
            if any(one in node["packages"] and one not in going for one in needed_by.get(name, ()))
        ]:
            going = [name for name in going if name not in needed]
        return cls(entries, unchanged, changed, ours, going)

    def to_write(self, node: Node, desired: Mapping[str, str]) -> dict[str, Entry]:
        """Return what to record before the installation: nothing else tells these from the admin's.

        A package that the admin installed in the desired version stays the admin's.
        """
        found = {name: package["version"] for name, package in node["packages"].items()}
        return {
            name: {
                "version": version or (found[name] if name in self.ours else ""),
                # That before the role's first installation.
                "before": self.ours[name]["before"] if name in self.ours else found.get(name),
            }
            for name, version in desired.items()
            # A package that the admin took over is recorded again, with the admin's version as the
            # one before. Otherwise the old entry would claim it after the installation.
            if name in self.entries or install_reason(node, {name: version})
        }


def _is_independent(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _INDEPENDENT)
