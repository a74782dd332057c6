# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does a node with NVSwitches need besides the driver? Nothing for any other node.

Fabric Manager configures the NVSwitches. It has to have exactly the driver's version. In NVIDIA's
repositories its package has no relation to the driver's, and Ubuntu's needs the kernel side of the
driver. So the role installs, holds and removes both together.

Source: NVIDIA's repositories and Ubuntu's archive, as the records have them (tests/recorded)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import Fabric
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import (
    has_state,
    is_manager_package,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.module_utils.verdict.fabric import (
    PARTITIONS,
    describe_switches,
    is_in_container,
    is_needed,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    distribution,
    state,
    steps,
    subnet_manager,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import NVIDIA, RUNFILE
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import archive, systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    arguments,
    install_reason,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, Plan

# After a boot, pods must not start before the fabric is ready. Fabric Manager's unit says nothing
# about the kubelet. The kubelet starts as well if Fabric Manager fails.
DROP_IN: File = {
    "path": own_files.FABRIC_DROP_IN,
    "block": "[Unit]\nBefore=kubelet.service docker.service\n",
}
# Since this branch, the names of the packages have no branch number.
_RENAMED = 580
_NAME = "nvidia-fabricmanager"
# The component of Ubuntu's archive that has nvidia-fabricmanager-BRANCH.
_MULTIVERSE = "multiverse"
# The names of older branches that somebody has seen.
_OLDER_NAMES = {
    ("debian", "12"): {branch: f"{_NAME}-{branch}" for branch in (550, 570, 575)},
    ("rhel", "9"): dict.fromkeys((570, 575), "nvidia-fabric-manager"),
}


def package_name(system: System, branch: int) -> str | None:
    """Return the name in NVIDIA's repository; None if nobody has seen it."""
    if branch >= _RENAMED:
        return _NAME
    distribution = "rhel" if system.family == systems.REDHAT else system.id
    return _OLDER_NAMES.get((distribution, system.version), {}).get(branch)


def packages(plan: Plan[Data], node: Node, choice: Choice) -> dict[str, str]:
    """Return Fabric Manager with its version, or nothing, or refuse.

    A Fabric Manager that an admin installed is never replaced, and neither is one in a container.
    """
    if not is_needed(node) or is_in_container(node):
        return {}
    ours = steps.OURS.of_role(node)
    found = {name: one for name, one in managers(node).items() if name not in ours}
    if others := _unfit(found, choice):
        versions = ", ".join(f"{name} {one}" for name, one in others.items())
        names = " ".join(others)
        plan.refuse("FABRIC_MANAGER_TAKEN", found=versions, expected=choice.driver, names=names)
        return {}
    manager = {} if found else _recorded(plan, node, choice)
    if not (found or manager):
        return {}
    return manager | subnet_manager.packages(plan, node, choice)


def _unfit(found: Mapping[str, str], choice: Choice) -> dict[str, str]:
    return {name: one for name, one in found.items() if not choice.fits(upstream_version(one))}


def _recorded(plan: Plan[Data], node: Node, choice: Choice) -> dict[str, str]:
    system = systems.supported(node)
    name = package_name(system, choice.branch)
    if choice.source == RUNFILE:
        reason = "it installs none for the driver of a .run file"
    elif distribution.is_ubuntus(node, choice.source):
        name = f"{_NAME}-{choice.branch}"
        if not archive.lacking(node, system, (_MULTIVERSE,), ""):
            return {name: distribution.ubuntu_version(choice)}
        reason = (
            f"{name} is in the component {_MULTIVERSE} of Ubuntu's archive, which no source of the "
            f"node has: add {_MULTIVERSE} to your file of the archive, and run again"
        )
    elif choice.source != NVIDIA:
        reason = f"nobody recorded one for the driver of the archive of {system.name}"
    elif name is None:
        reason = f"nobody recorded the name of its package for branch {choice.branch}"
    else:
        is_rpm = system.family == systems.REDHAT
        return {name: choice.version if is_rpm else f"{choice.version}-*"}
    switches = describe_switches(node)
    plan.refuse("FABRIC_PACKAGES_UNKNOWN", switches=switches, driver=choice.driver, reason=reason)
    return {}


def managers(node: Node) -> dict[str, str]:
    """Return the installed packages of Fabric Manager, with their versions."""
    found = node["fabric"]["packages"]
    return {name: version for name, version in found.items() if is_manager_package(name)}


def plan_beside_driver(
    plan: Plan[Data], node: Node, desired: Desired, choice: Choice
) -> dict[str, str]:
    """Plan Fabric Manager for a driver that works. Return the packages to hold.

    The driver of an admin may come from another repository than ours, so its Fabric Manager is the
    admin's as well. What the role would refuse for a new driver is left to verify.
    """
    if not state.is_ours(node):
        return {}
    wanted = packages(Plan[Data](desired["host"], {}), node, choice)
    if not wanted:
        return {}
    needed = wanted | subnet_manager.tools(node)
    if reason := install_reason(node, needed):
        plan.data["fabric_packages"] = arguments(node, needed)
        # One that is there is ours, and held by us.
        plan.data["fabric_replaces"] = any(name in node["packages"] for name in wanted)
        if choice.source == NVIDIA:
            steps.OURS.plan_repository(plan, node, desired, systems.supported(node).driver)
        plan.step(steps.FABRIC_PACKAGES, f"{reason}; the node has {describe_switches(node)}")
    return steps.OURS.record(plan, node, wanted)


def plan_service(plan: Plan[Data], node: Node, choice: Choice, wanted: Mapping[str, str]) -> None:
    """Plan the service, of our Fabric Manager or of the admin's that fits the driver."""
    unit = node["fabric"]["manager"]
    is_fit = bool(wanted) or not _unfit(managers(node), choice)
    is_installed = bool(wanted) or bool(unit and unit["installed"])
    if not is_needed(node) or not is_installed or not is_fit or is_in_container(node):
        return
    # In mode 1, another program activates the partitions of the GPUs, some time later.
    is_later = node["fabric"]["mode"] == PARTITIONS
    plan.data["fabric_awaited"] = not is_later and any(map(has_state, node["pci"]))
    if DROP_IN["path"] not in node["ours"]["files"]:
        plan.step(steps.FABRIC_ORDER, "pods that start before it cannot use CUDA")
    subnet_manager.plan_modules(plan, node)
    lacking = [name for name in ("enabled", "active") if not (unit and unit[name])]
    plan.step(steps.FABRIC, f"{_NAME} is not {' and not '.join(lacking)}" if lacking else None)


def plan_stop(plan: Plan[Data], node: Node, removed: Sequence[str]) -> None:
    """Plan to stop and disable our Fabric Manager. Another one is a user of the driver like others.

    Whether its package removes systemd's link to the unit is not recorded.
    """
    unit = node["fabric"]["manager"]
    is_ours = any(name in removed for name in managers(node))
    if unit and is_ours and (unit["active"] or unit["enabled"]):
        plan.step(steps.STOP_FABRIC, "Fabric Manager uses the driver")


def without(found: Fabric, removed: Collection[str]) -> Fabric:
    """Return what is left of Fabric Manager after packages are removed."""
    staying = {name: one for name, one in found["packages"].items() if name not in removed}
    if any(name in removed and is_manager_package(name) for name in found["packages"]):
        return {**found, "packages": staying, "manager": None, "process": False}
    return {**found, "packages": staying}


def plan_no_drop_in(plan: Plan[Data], node: Node) -> None:
    path = DROP_IN["path"]
    is_ours = path in node["ours"]["files"]
    plan.step(steps.REMOVE_FABRIC_ORDER, f"this role created {path}" if is_ours else None)
