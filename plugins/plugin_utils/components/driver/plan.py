# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does this node need for a working NVIDIA driver?

A working driver is kept, whatever its version. A replacement stops the node's pods, and the run may
have been started for another purpose.

Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import state, steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.absent import plan_absent
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.flavour import (
    choose_flavour,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.observed import Driver
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.refusals import (
    refuse_broken,
    refuse_installation,
    refuse_node,
    refuse_pin,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    refuse_platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    arguments,
    failed,
    install_reason,
    notice_unheld,
    unfinished_evidence,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    is_enabled,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, PlanResult

_INITRAMFS = {
    systems.DEBIAN: ["/usr/sbin/update-initramfs", "-u", "-k", "all"],
    systems.REDHAT: ["/usr/bin/dracut", "--force"],
}
DNF_MODULE = "nvidia-driver"
STEPS = steps.ALL


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan the driver."""
    is_missing = desired["state"] == "present" and not state.works(node)
    plan = Plan[Data](
        desired["host"],
        {
            "blacklist": state.BLACKLIST_FILE,
            "modules_load": state.MODULES_LOAD_FILE,
            "is_missing": is_missing,
            "initramfs": _INITRAMFS.get(node["os"]["family"]),
        },
    )
    refuse_platform(plan, node)
    steps.OURS.refuse_record(plan, node)
    if plan.refusals:
        return plan.result()
    if desired["state"] == "absent":
        plan_absent(plan, node)
    elif not node["pci"]:
        plan.refuse("NO_GPU")
    elif is_missing:
        _plan_present(plan, node, desired)
    else:
        _plan_working(plan, node, desired)
    steps.OURS.plan_repair(plan, node, steps.STREAM, steps.PIN, steps.HEADERS)
    return plan.result()


def _plan_working(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Keep a working driver, and hold it if this role installed it.

    A driver of the desired version is set up to load at boot. Other versions are left alone.
    """
    found = state.version(node)
    packages = driver_packages.carriers(node["driver"]["packages"])
    # A pinning package needs no hold.
    ours = [name for name in steps.OURS.of_role(node) if "-pinning-" not in name]
    if not packages:
        plan.notice("DRIVER_WITHOUT_PACKAGE", found=found)
    if failed(node):
        plan.notice("DRIVER_UNFINISHED", found=found, **unfinished_evidence(node))
    notice_unheld(plan, node, [name for name in packages if name not in ours])
    if found != desired["version"]:
        plan.notice("DRIVER_KEPT", found=found, expected=desired["version"])
        return
    _plan_blacklist(plan, node["driver"])
    versions = {name: node["packages"][name]["version"] for name in ours}
    steps.OURS.plan_hold(plan, node, versions)
    plan.step(steps.MODULES_LOAD, state.boot_reason(node))
    plan.step(steps.LOAD, state.unloaded_reason(node))
    if node["driver"]["persistenced"]["installed"]:
        plan.step(steps.PERSISTENCE, state.persistence_reason(node))
    else:
        plan.notice("PERSISTENCE_MISSING", found=found)


def _plan_present(plan: Plan[Data], node: Node, desired: Desired) -> None:
    version, driver = desired["version"], node["driver"]
    system = systems.supported(node)
    flavour = choose_flavour(plan, node, desired)
    refuse_node(plan, node, desired)
    if flavour is None:
        return
    chosen = driver_packages.choose(system, version, flavour)
    if chosen is None:
        plan.refuse("DRIVER_PACKAGES_UNKNOWN", found=system.name, version=version)
        return
    packages, pinning = chosen.packages, chosen.pinning
    kernel = node["kernel"]
    headers = [] if kernel["headers"] else [f"{chosen.headers}{kernel['release']}"]
    compilers = driver_packages.compilers(system, kernel["compiler"])
    lacking = headers + [name for name in compilers if name not in node["packages"]]
    # In one transaction, rpm may build the module before the headers are installed, and NVIDIA's
    # package ignores a failed build. dpkg unpacks all packages before it builds.
    # Source: %post in dkms-open-nvidia.spec of NVIDIA/yum-packaging-dkms-nvidia
    separate = lacking if systems.is_redhat(node) else []
    plan.data |= {
        "flavour": flavour,
        "stream": chosen.stream,
        "pinning": arguments(node, pinning),
        "headers": separate,
        "packages": arguments(node, packages) + ([] if separate else lacking),
    }
    steps.OURS.record(plan, node, pinning)
    ours = steps.OURS.record(plan, node, packages)
    reason = install_reason(node, packages)
    pin_reason = install_reason(node, pinning)
    lacking_reason = f"not installed: {', '.join(lacking)}" if lacking else None
    refuse_installation(plan, node, desired, packages, reason or pin_reason)
    if pin_reason:
        refuse_pin(plan, node, pinning)
    if lacking and not separate:
        reason = "; ".join(filter(None, (reason, lacking_reason)))
    if reason or pin_reason:
        steps.OURS.plan_repository(plan, node, desired, system.driver)
    if reason and systems.is_redhat(node):
        _plan_redhat(plan, node, version, chosen.stream)
    plan.step(steps.PIN, pin_reason)
    plan.step(steps.HEADERS, lacking_reason if separate else None)
    _plan_blacklist(plan, driver)
    plan.step(steps.OURS.install, reason)
    steps.OURS.plan_hold(plan, node, ours)
    plan.step(steps.MODULES_LOAD, state.boot_reason(node))
    has_failed = _plan_build(plan, node, version, is_complete=not (reason or lacking))
    reboot = state.reboot_reason(node, desired["version"])
    plan.step(steps.REBOOT, reboot)
    plan.step(steps.LOAD, None if reboot else state.unloaded_reason(node))
    plan.step(steps.PERSISTENCE, state.persistence_reason(node))
    if has_failed or not (plan.steps or plan.refusals):
        refuse_broken(plan, node, version)


def _plan_build(plan: Plan[Data], node: Node, version: str, *, is_complete: bool) -> bool:
    """Plan the build of the module. Return whether it cannot succeed without an admin."""
    dkms = node["driver"]["dkms"]
    if dkms["built"] is not False:
        return False
    sources = [one for one in dkms["sources"] if one.endswith(f"/{version}")]
    plan.data["source"] = sources[0] if sources else None
    if is_complete and (dkms["log"] or not sources):
        return True
    if sources:
        plan.step(steps.BUILD, f"DKMS built no module for kernel {node['kernel']['release']}")
    return False


def _plan_blacklist(plan: Plan[Data], driver: Driver) -> None:
    is_blocked = driver["nouveau_blacklisted"]
    plan.step(steps.BLACKLIST, None if is_blocked else "no file in modprobe.d blacklists nouveau")
    plan.step(steps.INITRAMFS, state.ramdisk_reason(driver))


def _plan_redhat(plan: Plan[Data], node: Node, version: str, stream: str | None) -> None:
    """Plan what only Red Hat's distributions need: dkms from EPEL, and the module stream."""
    if "dkms" not in node["packages"] and not any(
        is_enabled(found) for name, found in node["repositories"].items() if name.startswith("epel")
    ):
        plan.refuse("EPEL_MISSING")
    enabled = node["module_streams"].get(DNF_MODULE)
    if stream and enabled not in (None, stream):
        plan.refuse("MODULE_STREAM_TAKEN", found=enabled, version=version, expected=stream)
    elif stream and not enabled:
        plan.step(steps.STREAM, "each driver branch has its own stream")
