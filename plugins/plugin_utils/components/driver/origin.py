# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where does the driver of a node come from, whose is it, and what removes it?

A driver comes from packages, or from NVIDIA's `.run` file. One never replaces the other while it is
installed: their files would overwrite each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import dkms, nvidia_smi
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    distribution,
    fabric,
    pin,
    redhat,
    security,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import (
    AUTO,
    DISTRIBUTION,
    NVIDIA,
    RUNFILE,
    Wished,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.runfile import ENTRY
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import orphans
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

Origin = Literal["packages", "runfile"]
Maker = Literal["nvidia", "distribution", "runfile", "other"]
_OF_SOURCE: dict[str, Origin] = {NVIDIA: "packages", DISTRIBUTION: "packages", RUNFILE: "runfile"}
# Each module may be used by the modules before it. Other modules, such as nvidia_peermem, use these
# and are used by none, so they are unloaded first.
_UNLOADED_LAST = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")


def origin(node: Node) -> Origin | None:
    """Return where the driver comes from; None if there is none, or nothing tells it.

    Packages have precedence: the installer leaves its list of files behind if they replace it.
    """
    if driver_packages.carriers(node["driver"]["packages"]):
        return "packages"
    installer = node["driver"]["installer"]
    return "runfile" if installer["version"] and installer["uninstaller"] else None


def maker(node: Node) -> Maker | None:
    """Return which source the installed driver is from, by its packages; None if nothing tells it.

    Its version does not show that: NVIDIA's repository and Ubuntu's archive have the same ones.
    """
    found = driver_packages.carriers(node["driver"]["packages"])
    if not found:
        return "runfile" if origin(node) == "runfile" else None
    if any(map(driver_packages.is_of_others, found)):
        return "other"
    is_own = distribution.has_made(systems.supported(node), found)
    return "distribution" if is_own else "nvidia"


def is_of(node: Node, choice: Choice, source: Wished) -> bool:
    """Whether the installed driver is from the chosen source.

    With `auto`, an admin's driver may be from any.
    """
    found = maker(node)
    is_any = found is None or (source == AUTO and not state.is_ours(node))
    return is_any or found == choice.source


def is_our_runfile(node: Node) -> bool:
    """Whether this role installed the driver of the `.run` file, which still has that version."""
    record = node["ours"]["packages"].get(steps.ROLE)
    entry = record["packages"].get(ENTRY) if record else None
    found = node["driver"]["installer"]["version"]
    return origin(node) == "runfile" and entry is not None and entry["version"] == found


def differs(node: Node, desired: Desired) -> bool:
    """Whether the driver comes from another source than the one that is asked for by name."""
    expected, found = _OF_SOURCE.get(desired["source"]), origin(node)
    return bool(expected and found and expected != found)


def is_switched(node: Node, desired: Desired) -> bool:
    """Whether the driver of another source has to go first, and is allowed to."""
    return bool(desired["switch_ok"]) and differs(node, desired)


def plan_unload(plan: Plan[Data], node: Node) -> None:
    """Plan what has to happen before the files of the driver go. A driver in use stops the run."""
    loaded = [name for name in node["kernel"]["modules"] if name.startswith("nvidia")]
    is_active = node["driver"]["persistenced"]["active"]
    plan.data |= {"modules": sorted(loaded, key=_unload_place), "persistence": is_active}
    if is_active:
        plan.step(steps.STOP_PERSISTENCE, "the persistence daemon uses the driver")
    elif any(gpu["persistence_mode"] for gpu in node["nvml"]["devices"]):
        plan.step(steps.NO_PERSISTENCE_MODE, "it keeps the driver in use")
    plan.step(steps.UNLOAD, f"{', '.join(loaded)} loaded" if loaded else None)


def removable(node: Node, added: Iterable[str]) -> list[str]:
    """Return the packages of our driver, with the dependencies that are useless without it.

    Dependencies are libraries and firmware. dnf removes them itself: clean_requirements_on_remove
    in dnf.conf(5).
    """
    others = set(node["driver"]["packages"]).difference(steps.OURS.of_role(node))
    return sorted([*added, *orphans(node, added, others)])


def plan_switch(plan: Plan[Data], node: Node) -> Node:
    """Plan the removal of the driver of another source. Return the node as it is after that."""
    fabric.plan_stop(plan, node, steps.OURS.added(node))
    plan_unload(plan, node)
    packages: list[str] = []
    if origin(node) == "runfile":
        plan.step(steps.UNINSTALL, "nvidia_driver_switch_ok is true")
    else:
        added = steps.OURS.added(node)
        is_ours = bool(driver_packages.carriers(dict.fromkeys(added, "")))
        packages = removable(node, added) if is_ours else _removable_of_admin(node)
        steps.OURS.plan_remove(plan, node, packages)
        # The configuration files of an admin's packages may have the admin's settings.
        plan.data["former_purged"] = is_ours
        notice_kept(plan, node, packages)
    plan.data["former"] = packages
    plan.data["former_held"] = list(redhat.companions(node, packages))
    return _without_driver(node, packages)


def _removable_of_admin(node: Node) -> list[str]:
    """Return the packages of an admin's driver, with the dependencies that are useless without it.

    Packages of one release have one version. Those that only use the driver stay.
    """
    installed = node["driver"]["packages"]
    found = driver_packages.carriers(installed)
    versions = driver_packages.versions(installed)
    own = {name for name in installed if not driver_packages.is_beside_driver(name)}
    added = [name for name in own if name in found or upstream_version(installed[name]) in versions]
    return sorted([*added, *orphans(node, added, own)])


def notice_kept(plan: Plan[Data], node: Node, removed: Iterable[str]) -> None:
    """Report which NVIDIA packages stay. On Red Hat's systems, dnf decides about dependencies."""
    kept = sorted(set(node["driver"]["packages"]).difference(removed))
    if kept and not systems.is_redhat(node):
        command = " ".join(("apt-get purge", *kept))
        plan.notice("DRIVER_PACKAGES_KEPT", packages=", ".join(kept), command=command)


def plan_leftovers(plan: Plan[Data], node: Node, expected: Origin) -> None:
    """Plan to remove what this role has left of another source: its record and its repository."""
    record = node["ours"]["packages"].get(steps.ROLE)
    names = record["packages"] if record else {}
    has_others = any((name == ENTRY) != (expected == "runfile") for name in names)
    if expected == "runfile":
        pin.plan_removal(plan, node)
        if has_others or steps.OURS.has_repository(node):
            security.plan_removal(plan, node)
            steps.OURS.plan_cleanup(plan, node)
    elif has_others and record:
        plan.step(steps.OURS.forget, f"this role wrote {record['path']}")


def _without_driver(node: Node, packages: list[str]) -> Node:
    """Return a node whose driver is removed and unloaded, to plan another one for it."""
    driver, kernel = node["driver"], node["kernel"]
    newer = driver["next_kernel"]
    modules = [name for name in kernel["modules"] if not name.startswith("nvidia")]
    gone = {*packages, *(driver["packages"] if systems.is_redhat(node) else ())}
    staying = {name: one for name, one in driver["packages"].items() if name not in gone}
    return {
        **node,
        "kernel": {**kernel, "modules": modules},
        "packages": {
            name: one
            for name, one in node["packages"].items()
            if name not in packages and not (packages and _may_go(node, name))
        },
        "driver": {
            **driver,
            "packages": staying,
            "module_version": None,
            "disk_version": None,
            "module_files": [],
            "uvm_readable": False,
            "flavour": None,
            "dkms": dkms.join({}),
            "persistenced": {"installed": False, "enabled": False, "active": False},
            "installer": {
                **driver["installer"],
                "version": None,
                "uninstaller": False,
                "stops": driver["installer"]["stops"] and not packages,
            },
            "next_kernel": {**newer, "module": False} if newer else None,
        },
        "fabric": fabric.without(node["fabric"], packages),
        "nvml": {
            "driver_version": None,
            "complete": False,
            "devices": [],
            "bound": {},
            "failure": nvidia_smi.NOT_INSTALLED.failure,
        },
    }


def _may_go(node: Node, name: str) -> bool:
    """Whether dnf may remove a package with the driver, because nothing else needs it."""
    return systems.is_redhat(node) and (name == "dkms" or name.startswith("kernel-devel"))


def _unload_place(module: str) -> int:
    return _UNLOADED_LAST.index(module) if module in _UNLOADED_LAST else -1
