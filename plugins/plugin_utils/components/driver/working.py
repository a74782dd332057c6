# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does a node with a working NVIDIA driver need?

The driver is kept, whatever its version. A replacement stops the node's pods, and the run may have
been started for another purpose.
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.verdict import machine
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    device_files,
    distribution,
    fabric,
    kernels,
    modules,
    origin,
    parameters,
    persistence,
    pin,
    redhat,
    secure_boot,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import PRESENT
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.refusals import (
    choice_for,
    wish_for,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import (
    Choice,
    is_unclear,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.follow import left_out
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    failed,
    notice_unheld,
    unfinished_evidence,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def plan_working(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Keep a working driver, and hold it if this role installed it.

    A driver of the desired version is set up to load at boot. Other versions are left alone, and so
    is everything with source `present`.
    """
    found = state.version(node)
    if machine.is_vgpu_guest(node):
        _leave_alone(plan, node)
        return
    carriers = driver_packages.carriers(node["driver"]["packages"])
    # Without the driver itself, what the role installed is only beside an admin's.
    ours = steps.OURS.of_role(node) if state.is_ours(node) else []
    if not carriers and not origin.is_our_runfile(node):
        plan.notice("DRIVER_WITHOUT_PACKAGE", found=found)
    if any(not driver_packages.is_beside_driver(name) for name in failed(node)):
        plan.notice("DRIVER_UNFINISHED", found=found, **unfinished_evidence(node))
    # Dependencies of what the role holds keep their version with it.
    dependencies = node["package_manager"]["automatic"] if ours else []
    companions = redhat.companions(node, ours)
    named = (*carriers, *fabric.managers(node))
    others = [name for name in named if name not in {*ours, *dependencies, *companions}]
    notice_unheld(plan, node, others)
    answer = choice_for(node, desired)
    choice = answer if isinstance(answer, Choice) else None
    is_ours = bool(ours) and desired["source"] != PRESENT
    is_of_source = choice is None or origin.is_of(node, choice, desired["source"])
    is_chosen = choice is not None and is_of_source and choice.fits(found)
    secure_boot.notice_untrusted(plan, modules.of_version(node, lambda one: one == found))
    _plan_next_kernel(plan, node, may_install=is_ours and is_chosen)
    if not ours:
        pin.plan_removal(plan, node)
    if desired["source"] == PRESENT or (is_unclear(answer) and not ours):
        _leave_alone(plan, node)
        return
    if ours:
        pin.plan_again(plan, node, origin.maker(node), found)
    parameters.plan_wanted(plan, node, desired)
    is_other = origin.differs(node, desired) or not is_of_source
    if choice:
        fits, expected = is_chosen, choice.driver
    else:
        fits, expected = _is_wished(found, desired), wish_for(desired).driver
    if is_other:
        source = choice.source if choice else desired["source"]
        expected = f"{expected} of the source {source}".strip()
    if node["driver"]["flavour"] not in (None, desired["flavour"]) and desired["flavour"] != "auto":
        fits, expected = False, f"{expected or found} with the {desired['flavour']} module"
    if is_other or not fits:
        parameters.plan_loaded(plan, node, desired)
        _leave_alone(plan, node)
        if expected not in ("", found):
            plan.notice("DRIVER_KEPT", found=found, expected=expected)
        return
    state.plan_blacklist(plan, node["driver"])
    managers: dict[str, str] = {}
    if choice:
        managers = fabric.plan_beside_driver(plan, node, desired, choice)
        if ours:
            _notice_left(plan, node, choice)
    held = {name: node["packages"][name]["version"] for name in distribution.holdable(ours)}
    steps.OURS.plan_hold(plan, node, held | companions | managers)
    loaded = parameters.plan_modules_load(plan, node, desired)
    is_own = bool(ours) or origin.is_our_runfile(node)
    modules.plan_next(plan, node, choice, is_ours=is_own)
    if is_own:
        device_files.plan_rule(plan, node, origin.maker(node))
    parameters.plan_loaded(plan, node, desired)
    if not plan.has_step(steps.REBOOT):
        plan.step(steps.LOAD, state.unloaded_reason(node, loaded))
    if is_own:
        device_files.plan_files(plan, node, origin.maker(node))
    persistence.plan_working(plan, node, found)
    if choice:
        fabric.plan_service(plan, node, choice, managers)
    parameters.plan_peermem(plan, node, desired)


def _plan_next_kernel(plan: Plan[Data], node: Node, *, may_install: bool) -> None:
    """Plan Ubuntu's signed modules of a newer installed kernel, or report that it has none.

    A driver that works is not updated for them: pods use it.
    """
    found = node["signed_modules"]
    if found is None:
        return
    if not may_install or found["error"]:
        error = f": {found['error']}" if found["error"] else ""
        plan.notice("KERNEL_WITHOUT_MODULES", package=found["package"], error=error)
        return
    plan.data["following"] = [found["package"]]
    steps.OURS.record(plan, node, distribution.recorded([found["package"]]))
    plan.step(steps.FOLLOW, kernels.following_reason([found["package"]]))


def _is_wished(found: str, desired: Desired) -> bool:
    """Tell whether a working driver is the one to have where no source has one.

    The refusal has told the admin to install one.
    """
    wish = wish_for(desired)
    if wish.version:
        return found == wish.version
    return not wish.branch or found.startswith(f"{wish.branch}.")


def _leave_alone(plan: Plan[Data], node: Node) -> None:
    """Report what threatens the GPUs of a driver that the role does not change."""
    modules.plan_next(plan, node, None)
    persistence.notice_off(plan, node)


def _notice_left(plan: Plan[Data], node: Node, choice: Choice) -> None:
    """Report that an upgrade of the kernel brings nothing for the role's own driver."""
    chosen = distribution.packages_for(node, choice)
    missing = kernels.following(node, chosen.following) if chosen else []
    if missing:
        plan.notices.append(left_out(plan.host, missing[0].partition("=")[0]))
