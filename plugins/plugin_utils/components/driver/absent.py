# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does `state: absent` remove from a node?"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    security,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    orphans,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

# Each module may be used by the modules before it. Other modules, such as nvidia_peermem, use these
# and are used by none, so they are unloaded first.
_UNLOADED_LAST = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")


def plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of our files, and of the driver if this role installed it.

    Unload first: modules in use stop the run before anything is removed. The record is removed near
    the end. It shows that the role installed the driver, so an interrupted run can continue.
    """
    driver = node["driver"]
    added = steps.OURS.added(node)
    is_ours = bool(driver_packages.carriers(dict.fromkeys(added, "")))
    # Dependencies, such as libraries and firmware, are useless without the driver. dnf removes them
    # itself: clean_requirements_on_remove in dnf.conf(5).
    others = set(driver["packages"]).difference(steps.OURS.of_role(node))
    packages = sorted([*added, *orphans(node, added, others)]) if is_ours else added
    loaded = [name for name in node["kernel"]["modules"] if name.startswith("nvidia")]
    files = [
        file["path"]
        for file in (state.BLACKLIST_FILE, state.MODULES_LOAD_FILE)
        if file["path"] in node["ours"]["files"]
    ]
    plan.data |= {
        "modules": sorted(loaded, key=_unload_place),
        "persistence": driver["persistenced"]["active"],
        "files": files,
    }
    if is_ours:
        if driver["persistenced"]["active"]:
            plan.step(steps.STOP_PERSISTENCE, "the persistence daemon uses the driver")
        plan.step(steps.UNLOAD, f"{', '.join(loaded)} loaded" if loaded else None)
        _notice_kept(plan, node, packages)
    elif driver_packages.carriers(driver["packages"]) or state.installed_version(node):
        plan.notice("DRIVER_OF_ADMIN", found=state.version(node))
    steps.OURS.plan_remove(plan, node, packages)
    plan.step(steps.REMOVE_FILES, f"this role created {', '.join(files)}" if files else None)
    if files or steps.ROLE in node["ours"]["packages"]:
        plan.step(steps.INITRAMFS, "it may contain removed files")
    steps.OURS.plan_cleanup(plan, node)
    security.plan_removal(plan, node)


def _notice_kept(plan: Plan[Data], node: Node, removed: Iterable[str]) -> None:
    """Report which NVIDIA packages stay. On Red Hat's systems, dnf decides about dependencies."""
    kept = sorted(set(node["driver"]["packages"]).difference(removed))
    if kept and not systems.is_redhat(node):
        command = " ".join(("apt-get purge", *kept))
        plan.notice("DRIVER_PACKAGES_KEPT", packages=", ".join(kept), command=command)


def _unload_place(module: str) -> int:
    return _UNLOADED_LAST.index(module) if module in _UNLOADED_LAST else -1
