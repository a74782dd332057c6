# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does this node need for a working NVIDIA driver? About a node that has one: working.py.

Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.verdict import machine
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    device_files,
    distribution,
    fabric,
    kernels,
    modules,
    next_boot,
    origin,
    parameters,
    persistence,
    pin,
    redhat,
    security,
    state,
    steps,
    subnet_manager,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.absent import plan_absent
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import (
    DISTRIBUTION,
    PRESENT,
    RUNFILE,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.refusals import (
    BROKEN,
    choice_for,
    choose,
    refuse_installation,
    refuse_node,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.runfile_plan import (
    plan_runfile,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.working import (
    plan_working,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines.reload import (
    notice_reload,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    refuse_platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    arguments,
    install_reason,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, PlanResult, Step

STEPS = steps.ALL


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan the driver."""
    is_switched = origin.is_switched(node, desired) and not machine.is_vgpu_guest(node)
    is_missing = desired["state"] == "present" and (is_switched or not state.works(node))
    plan = Plan[Data](
        desired["host"],
        {
            "blacklist": state.BLACKLIST_FILE,
            "fabric_drop_in": fabric.DROP_IN,
            "is_missing": is_missing,
            "initramfs": state.ramdisk_command(node["driver"]),
        },
    )
    refuse_platform(plan, node)
    packages = node["driver"]["packages"]
    # Others may have been there before an installation that did not begin.
    found = [*packages] if driver_packages.carriers(packages) else []
    found += filter(None, [node["driver"]["installer"]["version"]])
    steps.OURS.refuse_record(plan, node, found, (own_files.DRIVER_PIN, own_files.DEVICE_RULE))
    if plan.refusals:
        return plan.result()
    if desired["state"] == "absent":
        plan_absent(plan, node)
    elif not node["pci"]:
        plan.refuse("NO_GPU")
    elif machine.is_driven_by_others(node):
        plan.refusals += machine.judge_holders(plan.host, node)
        return plan.result()
    elif is_missing:
        _plan_present(plan, node, desired)
    else:
        plan_working(plan, node, desired)
    if desired["state"] == "present":
        steps.OURS.notice_sources(plan, node, desired, [security.FILE])
    separate = (steps.STREAM, steps.HEADERS, steps.FOLLOW, steps.FABRIC_PACKAGES)
    steps.OURS.plan_repair(plan, node, *separate)
    is_permitted = desired["state"] == "absent" or desired["reboot_ok"]
    permission = "" if is_permitted else "nvidia_driver_reboot_ok"
    notice_reload(plan, node, *_reloading(plan), permission=permission)
    return plan.result()


def _reloading(plan: Plan[Data]) -> list[Step]:
    """Return the steps that reload systemd: units come with packages, and drop-ins are files."""
    with_drop_in = [steps.PERSISTENCE] if plan.data.get("persistence_drop_in") else []
    drop_ins = {own_files.PERSISTENCE_DROP_IN, own_files.FABRIC_DROP_IN}
    with_files = [steps.REMOVE_FILES] if drop_ins & {*plan.data.get("files", ())} else []
    packages = (steps.OURS.install, steps.FABRIC_PACKAGES, steps.OURS.remove)
    return [*packages, *with_drop_in, steps.FABRIC_ORDER, *with_files, steps.REMOVE_FABRIC_ORDER]


def _plan_present(plan: Plan[Data], node: Node, desired: Desired) -> None:
    found = choice_for(node, desired)
    planned = found.version if isinstance(found, Choice) else None
    plan.refusals += machine.judge_words(plan.host, node, planned)
    if plan.refusals:
        return
    if origin.is_switched(node, desired):
        node = origin.plan_switch(plan, node)
    choice = choose(plan, node, desired)
    if choice and choice.source == RUNFILE:
        plan_runfile(plan, node, desired, choice)
        return
    if desired["source"] != PRESENT:
        refuse_node(plan, node, desired, choice)
    if any(one["code"] in BROKEN for one in plan.refusals):
        return
    chosen = (
        distribution.packages_for(next_boot.as_started(node, choice), choice) if choice else None
    )
    if choice is None or chosen is None:
        return
    node = modules.of_version(node, choice.fits)
    reboot = state.reboot_reason(node, choice)
    origin.plan_leftovers(plan, node, "packages")
    managers = fabric.packages(plan, node, choice)
    packages = {**chosen.packages, **managers}
    tools = subnet_manager.tools(node)
    reason = install_reason(node, packages | tools)
    booted = None
    if chosen.headers and modules.headers_are_gone(node) and not node["driver"]["dkms"]["built"]:
        booted = modules.next_for(plan, node, desired)
        node = modules.as_running(node, booted) if booted else node
    elif chosen.headers:
        next_boot.refuse_unbuildable(plan, node, reboot)
    headers = _headers(node, chosen, is_incomplete=reason is not None, reboot=reboot)
    needed = {**headers, **_compilers(node, chosen)}
    # In one transaction, rpm may build the module before the headers are installed, and NVIDIA's
    # package ignores a failed build. dpkg unpacks all packages before it builds.
    # Source: %post in dkms-open-nvidia.spec of NVIDIA/yum-packaging-dkms-nvidia
    separate = arguments(node, needed) if systems.is_redhat(node) else []
    together = [] if separate else arguments(node, needed)
    lacking = install_reason(node, needed)
    following = kernels.following(node, chosen.following) if reason or lacking else []
    plan.data |= {
        "flavour": choice.flavour,
        "version": choice.driver,
        "stream": chosen.stream,
        "headers": separate,
        "packages": arguments(node, distribution.asked(node, choice, packages) | tools) + together,
        "newest": (newest := distribution.is_update(packages, steps.OURS.of_role(node))),
        "following": following,
    }
    ours = steps.OURS.record(plan, node, {**packages, **distribution.recorded(following)})
    if newest:
        plan.data["may_remove"] = [*plan.data["may_remove"], distribution.OF_OLDER_KERNELS]
    refuse_installation(plan, node, choice, packages, reason)
    # What the role only adds to an admin's driver follows that driver. Fabric Manager does not.
    is_ours = bool(driver_packages.carriers(ours))
    is_pinned = is_ours and reason is not None
    if not separate:
        reason = "; ".join(filter(None, (reason, lacking))) or None
    if reason:
        _plan_repository(plan, node, desired, choice)
    if reason and systems.is_redhat(node):
        redhat.plan_sources(plan, node, desired, choice.driver, chosen.stream)
    plan.step(steps.HEADERS, lacking if separate else None)
    if is_pinned:
        pin.plan_pin(plan, node, choice)
    state.plan_blacklist(plan, node["driver"])
    parameters.plan_wanted(plan, node, desired)
    plan.step(steps.OURS.install, f"{reason}; {choice.why}" if reason else None)
    plan.step(steps.FOLLOW, kernels.following_reason(following))
    held = distribution.holdable(ours if is_ours else {*ours}.intersection(managers))
    again = "an update of them ends the hold" if newest and reason else None
    steps.OURS.plan_hold(plan, node, {name: ours[name] for name in held}, again)
    plan.data["hold_alike"] = redhat.held_alike(node, ours)
    loaded = parameters.plan_modules_load(plan, node, desired)
    is_new, is_complete = bool(reason and chosen.headers), not (reason or lacking)
    problem = modules.plan_build(
        plan, node, choice, is_new=is_new, is_complete=is_complete, booted=booted
    )
    if booted and not reboot:
        reboot = f"kernel {booted['release']} has headers, and the running one has none"
    if is_ours:
        device_files.plan_rule(plan, node, choice.source)
    plan.step(steps.REBOOT, reboot)
    plan.step(steps.LOAD, None if reboot else state.unloaded_reason(node, loaded))
    if is_ours:
        device_files.plan_files(plan, node, choice.source)
    persistence.plan_new(plan, node)
    fabric.plan_service(plan, node, choice, managers)
    next_boot.refuse_unfit(plan, node, choice, problem, is_built=bool(chosen.headers))
    if plan.steps:
        parameters.plan_peermem(plan, node, desired)


def _headers(
    node: Node,
    chosen: driver_packages.DriverPackages,
    *,
    is_incomplete: bool,
    reboot: str | None,
) -> dict[str, str]:
    """Return the headers that DKMS needs, if something is to be installed at all."""
    if not chosen.headers:
        return {}
    of_next = next_boot.headers(node, reboot)
    if node["kernel"]["headers"] and not is_incomplete:
        return of_next if reboot else {}
    if systems.is_redhat(node):
        return {**driver_packages.redhat_headers(node), **of_next}
    return {**kernels.headers(node), **of_next}


def _compilers(node: Node, chosen: driver_packages.DriverPackages) -> dict[str, str]:
    """Return the compilers that a node lacks, if DKMS builds a module there, in any version."""
    if not chosen.headers:
        return {}
    names = driver_packages.compilers(systems.supported(node), node["kernel"]["compiler"])
    return {name: "" for name in names if name not in node["packages"]}


def _plan_repository(plan: Plan[Data], node: Node, desired: Desired, choice: Choice) -> None:
    system = systems.supported(node)
    if choice.source != DISTRIBUTION:
        steps.OURS.plan_repository(plan, node, desired, system.driver)
    elif desired["repository"]:
        components = distribution.components(system)
        steps.OURS.plan_components(plan, node, system, components, desired["now"])
        security.plan_source(plan, node, system, components, desired["now"])
