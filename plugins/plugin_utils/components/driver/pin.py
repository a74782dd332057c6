# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which versions does apt take for the packages that the driver brings?

Most dependencies accept newer versions, and apt prefers the newest one, of whatever source. So a
file of preferences names the chosen ones. NVIDIA has packages for that, but not for each version.
dnf needs none: the packages for it name exact versions.

Source: apt_preferences(5); tried with apt 2.6.1, 2.8.4 and 3.0.3, see tests/recorded/apt_pins.yml
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import parse_lines
from ansible_collections.metal.gpu.plugins.module_utils.read.version import (
    is_newer,
    upstream_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import (
    DISTRIBUTION,
    NVIDIA,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.packages import (
    is_beside_driver,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.mixed_drivers import (
    is_driver_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, Plan

# The packages of drivers whose names do not have "nvidia" are those of Debian 13's archive.
_PACKAGES = "*nvidia* libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1"
# More than any source has by itself, and than the 600 of NVIDIA's own file of preferences. From
# 1000 on, an upgrade of the system would take a newer driver of the admin back.
_PRIORITY = 999
_OF_NVIDIA = "nvidia-driver-pinning-"


def wanted(node: Node, source: str | None, version: str) -> File | None:
    """Return the file for a driver; None if nothing else could be taken.

    Names in Ubuntu's archive end in `-server`, so NVIDIA's repository has none of them.
    """
    system = systems.supported(node)
    if system.family == systems.REDHAT:
        return None
    if source == NVIDIA:
        pin = f"version {version}-*"
    elif source == DISTRIBUTION and system.id == "debian":
        # Without the codename, it would also prefer packages of unstable, whatever an admin pins.
        pin = f"release o=Debian,n={system.codename}*"
    else:
        return None
    block = f"Package: {_PACKAGES}\nPin: {pin}\nPin-Priority: {_PRIORITY}\n"
    return {"path": own_files.DRIVER_PIN, "block": block}


def plan_pin(plan: Plan[Data], node: Node, choice: Choice) -> None:
    """Plan the file before the installation, or remove what is left of another driver's."""
    file = wanted(node, choice.source, choice.version)
    if file is None:
        plan_removal(plan, node)
        return
    plan.data["pin"] = file
    _refuse_others(plan, node, choice)
    _refuse_newer(plan, node, choice)
    if parse_lines(file["block"]) != node["driver"]["own_pin"]:
        plan.step(steps.PIN, "apt prefers the newest version of what the driver needs")


def plan_again(plan: Plan[Data], node: Node, source: str | None, version: str) -> None:
    """Plan the file of the installed driver again, if somebody has deleted it."""
    file = wanted(node, source, version)
    has_own = any(name.startswith(_OF_NVIDIA) for name in node["driver"]["packages"])
    if file and not has_own and file["path"] not in node["ours"]["files"]:
        plan.data["pin"] = file
        plan.step(steps.PIN, f"{file['path']} has no part of this role")


def plan_removal(plan: Plan[Data], node: Node) -> None:
    """Plan that our part of the file goes."""
    path = own_files.DRIVER_PIN
    if path in node["ours"]["files"]:
        plan.data["pin"] = {"path": path, "block": ""}
        plan.step(steps.REMOVE_PIN, f"this role created {path}")


def _refuse_others(plan: Plan[Data], node: Node, choice: Choice) -> None:
    """Refuse a node with a pin of NVIDIA's for other versions, which is stronger than ours."""
    found = [
        name
        for name in node["driver"]["packages"]
        if name.startswith(_OF_NVIDIA) and name != f"{_OF_NVIDIA}{choice.version}"
    ]
    if found:
        plan.refuse(
            "DRIVER_PIN_TAKEN",
            packages=", ".join(found),
            names=" ".join(found),
            expected=choice.driver,
        )


def _refuse_newer(plan: Plan[Data], node: Node, choice: Choice) -> None:
    """Refuse a node with newer parts of another driver, which apt would keep beside the chosen one.

    An admin who removes a driver can leave its helpers.
    """
    newer = {
        name: version
        for name, version in node["driver"]["packages"].items()
        if not (is_beside_driver(name) or name.startswith(_OF_NVIDIA))
        and _is_newer(upstream_version(version), choice)
    }
    if newer:
        plan.refuse(
            "DRIVER_PARTS_MIXED",
            packages=", ".join(f"{name} {version}" for name, version in newer.items()),
            names=" ".join(newer),
            version=choice.driver,
        )


def _is_newer(version: str, choice: Choice) -> bool:
    """Whether a version of a driver, and not of something else, is newer than the chosen one."""
    # The parts of Debian's own driver need each other, and some have the version of another branch.
    is_exact = "*" not in choice.version
    return is_exact and is_driver_version(version) and is_newer(version, choice.version)
