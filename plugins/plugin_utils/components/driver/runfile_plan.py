# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does a node need for a driver from NVIDIA's `.run` file?

The installer wants nouveau gone, so a reboot comes before it, and not after it as with packages.
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.packages import RECORDS
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    device_files,
    fabric,
    kernels,
    modules,
    next_boot,
    origin,
    parameters,
    persistence,
    redhat,
    runfile,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.refusals import (
    refuse_broken,
    refuse_elsewhere,
    refuse_reboot,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    arguments,
    install_reason,
    refuse_url,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def plan_runfile(plan: Plan[Data], node: Node, desired: Desired, choice: Choice) -> None:
    """Plan the driver of a `.run` file for a node without a working driver."""
    url = desired["runfile_url"]
    if refuse_url(plan, "the .run file", url):
        return
    found = node["driver"]["installer"]
    place = runfile.Place(
        found["free_mib"], found["runs_programs"], found["displays"], found["stops"]
    )
    if problems := runfile.problems(url, choice.version, place):
        plan.refuse("RUNFILE_UNSUITABLE", version=choice.version, reasons="; ".join(problems))
    # The installer has come to its end before: only a step after it is missing.
    is_installed = origin.origin(node) == "runfile" and choice.fits(found["version"])
    if not is_installed:
        _refuse_present(plan, node)
    node = modules.of_version(node, choice.fits)
    managers = fabric.packages(plan, node, choice)
    reboot = state.reboot_reason(node, choice)
    refuse_reboot(plan, node, desired, reboot)
    origin.plan_leftovers(plan, node, "runfile")
    next_boot.refuse_unbuildable(plan, node, reboot)
    is_lost = origin.is_our_runfile(node) and modules.has_lost_entry(node, choice)
    is_unbuilt = node["driver"]["dkms"]["built"] is False or is_lost
    if not is_installed or is_unbuilt or reboot:
        _plan_tools(plan, node, desired, reboot)
    path = RECORDS.replace("*", steps.ROLE)
    plan.data |= {
        "flavour": choice.flavour,
        "version": choice.driver,
        "arguments": runfile.options(choice.version, choice.flavour),
        "runfile_record": {
            "path": path,
            "packages": {runfile.ENTRY: {"version": choice.version, "before": None}},
        },
    }
    state.plan_blacklist(plan, node["driver"])
    parameters.plan_wanted(plan, node, desired)
    problem = None
    if is_installed:
        is_complete = not plan.has_step(steps.HEADERS)
        problem = modules.plan_build(plan, node, choice, is_new=False, is_complete=is_complete)
    is_ours = not is_installed or origin.is_our_runfile(node)
    if is_ours:
        device_files.plan_rule(plan, node, choice.source)
    plan.step(steps.REBOOT, reboot)
    plan.step(steps.RUNFILE, None if is_installed else f"no driver is installed; {choice.why}")
    loaded = parameters.plan_modules_load(plan, node, desired)
    plan.step(steps.LOAD, None if reboot and is_installed else state.unloaded_reason(node, loaded))
    if is_ours:
        device_files.plan_files(plan, node, choice.source)
    persistence.plan_without_daemon(plan, node)
    fabric.plan_service(plan, node, choice, managers)
    next_boot.refuse_unfit(plan, node, choice, problem, is_built=is_installed)
    if plan.steps:
        parameters.plan_peermem(plan, node, desired)


def _refuse_present(plan: Plan[Data], node: Node) -> None:
    """Refuse a driver that does not work: an installer would remove it, or overwrite its files."""
    found = origin.origin(node)
    if found == "packages":
        refuse_broken(plan, node, state.version(node))
    elif found or state.installed_version(node):
        version = node["driver"]["installer"]["version"] or state.version(node)
        refuse_elsewhere(plan, node, version)


def _plan_tools(plan: Plan[Data], node: Node, desired: Desired, reboot: str | None) -> None:
    """Plan what the installer needs: DKMS, a compiler, and the headers of kernel and libc.

    After a reboot, the installer runs with the kernel that boots next.
    """
    system = systems.supported(node)
    names = driver_packages.compilers(system, node["kernel"]["compiler"])
    if not systems.is_redhat(node):
        names = [*names, *driver_packages.INSTALLER_NEEDS]
    needed = {name: "" for name in ("dkms", *names) if name not in node["packages"]}
    if systems.is_redhat(node):
        redhat.refuse_epel(plan, node, desired)
        needed |= driver_packages.redhat_headers(node)
    else:
        is_left = reboot is not None and node["driver"]["next_kernel"] is not None
        if not (is_left and modules.headers_are_gone(node)):
            needed |= kernels.headers(node)
        following = kernels.following(node, kernels.HEADERS)
        plan.data["following"] = following
        plan.step(steps.FOLLOW, kernels.following_reason(following))
    needed |= next_boot.headers(node, reboot)
    plan.data["headers"] = arguments(node, needed)
    plan.step(steps.HEADERS, install_reason(node, needed) if needed else None)
