# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does `state: absent` remove from a node?"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    fabric,
    origin,
    pin,
    redhat,
    security,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.record import Record
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of our files, and of the driver if this role installed it.

    Unload first: modules in use stop the run before anything is removed. The record is removed near
    the end. It shows that the role installed the driver, so an interrupted run can continue.
    """
    driver = node["driver"]
    added = steps.OURS.added(node)
    is_ours = bool(driver_packages.carriers(dict.fromkeys(added, "")))
    packages = origin.removable(node, added) if is_ours else added
    files = [path for path in own_files.OF_DRIVER if path in node["ours"]["files"]]
    # What the role holds, and dnf removes as a dependency, if at all.
    beside = list(redhat.companions(node, Record.of(node, steps.ROLE).unchanged))
    plan.data |= {"former": packages, "former_held": beside, "files": files}
    fabric.plan_stop(plan, node, added)
    if is_ours:
        origin.plan_unload(plan, node)
        origin.notice_kept(plan, node, packages)
    elif origin.is_our_runfile(node):
        origin.plan_unload(plan, node)
        plan.step(steps.UNINSTALL, "this role installed it")
    elif driver_packages.carriers(driver["packages"]) or state.installed_version(node):
        plan.notice("DRIVER_OF_ADMIN", found=state.version(node))
    steps.OURS.plan_remove(plan, node, packages)
    plan.step(steps.REMOVE_FILES, f"this role created {', '.join(files)}" if files else None)
    fabric.plan_no_drop_in(plan, node)
    # Without an initial ramdisk, nothing contains them.
    if (files or steps.ROLE in node["ours"]["packages"]) and (
        driver["initramfs_program"] or driver["initramfs_outdated"] is not None
    ):
        state.plan_ramdisk(plan, driver, "it may contain removed files")
    security.plan_removal(plan, node)
    pin.plan_removal(plan, node)
    steps.OURS.plan_cleanup(plan, node, () if packages else beside)
