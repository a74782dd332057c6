# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What only Red Hat's family needs: dkms from EPEL, the module stream, and holds of all packages.

With `best=True`, as the system has it, `dnf upgrade` fails for the whole machine if one package
cannot get its newest version. The packages of a driver need each other in one version. So it is not
enough to hold those that the role asks for: the others are held in the same version, whatever their
names are.

Source: dnf.conf(5); nvidia-driver.spec of NVIDIA/yum-packaging-nvidia-driver, state of 570
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import is_enabled
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

_DNF_MODULE = "nvidia-driver"
_NAMES = "*nvidia*"  # of all packages of a driver in NVIDIA's repositories


def plan_sources(
    plan: Plan[Data], node: Node, desired: Desired, version: str, stream: str | None
) -> None:
    """Plan what the packages of a driver need besides their repository."""
    refuse_epel(plan, node, desired)
    enabled = node["module_streams"].get(_DNF_MODULE)
    if stream and enabled not in (None, stream):
        plan.refuse("MODULE_STREAM_TAKEN", found=enabled, version=version, expected=stream)
    elif stream and not enabled:
        plan.step(steps.STREAM, "each driver branch has its own stream")


def refuse_epel(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Refuse a node without dkms and without a repository that has it.

    The sources of an admin can have it under any name, and dnf says what they lack.
    """
    if not desired["repository"] or "dkms" in node["packages"]:
        return
    if not any(
        is_enabled(found) for name, found in node["repositories"].items() if name.startswith("epel")
    ):
        plan.refuse("EPEL_MISSING")


def held_alike(node: Node, packages: Mapping[str, str]) -> list[str]:
    """Return patterns of what else has to be held with packages that are to be installed.

    A plan does not know the names: dnf brings these packages as dependencies.
    """
    if not systems.is_redhat(node):
        return []
    carriers = driver_packages.carriers(packages)
    return [f"{_NAMES}-{version}-*" for version in dict.fromkeys(carriers.values())]


def companions(node: Node, names: Iterable[str]) -> dict[str, str]:
    """Return the other packages of the driver, which have the version of these."""
    if not systems.is_redhat(node):
        return {}
    found = node["driver"]["packages"]
    own = {name: found[name] for name in names if name in found}
    versions = {*driver_packages.carriers(own).values()}
    return {
        name: version
        for name, version in found.items()
        if version in versions and name not in own and name in node["packages"]
    }
