# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does the kernel need that a planned reboot starts?

A new driver needs a reboot if nouveau is loaded. That reboot starts the newest installed kernel,
which may be another one than the running one: see module_utils/read/kernels.py.
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.kernels import Kernel
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    kernels,
    modules,
    secure_boot,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.refusals import (
    refuse_broken,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def as_started(node: Node, choice: Choice) -> Node:
    """Return the node as it is after the reboot that the driver needs, if it needs one."""
    newer = _without_module(node) if state.reboot_reason(node, choice) else None
    return modules.as_running(node, newer) if newer else node


def headers(node: Node, reboot: str | None) -> dict[str, str]:
    """Return the headers of the kernel that boots next, if it lacks them.

    Without a reboot, they are wanted and no condition, so only what apt certainly has counts. With
    one, the package manager decides, before anything is changed.
    """
    newer = _without_module(node)
    if not reboot or newer is None:
        return kernels.next_headers(node)
    if newer["headers"]:
        return {}
    if systems.is_redhat(node):
        return driver_packages.redhat_next_headers(newer["release"])
    if node["driver"]["headers_available"] is None:
        return {f"{kernels.HEADERS}{newer['release']}": ""}
    return kernels.next_headers(node)


def refuse_unbuildable(plan: Plan[Data], node: Node, reboot: str | None) -> None:
    """Refuse a reboot into a kernel for which nothing can be built."""
    newer = _without_module(node)
    if reboot and newer and not newer["headers"] and not headers(node, reboot):
        found = f"this kernel boots next, and the driver needs a reboot: {reboot}"
        modules.refuse_headers_gone(plan, newer["release"], found)


def refuse_unfit(
    plan: Plan[Data], node: Node, choice: Choice, problem: str | None, *, is_built: bool
) -> None:
    """Refuse a plan that does not lead to a driver, as a whole or after its reboot.

    `problem` is that of modules.plan_build. `is_built`: DKMS builds the module before the reboot.
    """
    if problem == "DKMS_BUILD_FAILED":
        modules.refuse_unbuilt(plan, node, choice)
    elif problem or not (plan.steps or plan.refusals):
        refuse_broken(plan, node, choice.driver)
    elif is_built:
        _refuse_lost(plan, node, choice)


def _refuse_lost(plan: Plan[Data], node: Node, choice: Choice) -> None:
    """Refuse a reboot into a kernel that has no module then, for any other reason."""
    lost = modules.lost_by_reboot(plan, node) if plan.has_step(steps.REBOOT) else None
    if not lost or plan.refusals:
        return
    if modules.has_failed(node, lost, by_name=True):
        modules.refuse_unbuilt(plan, node, choice, lost)
    elif node["driver"]["dkms"]["sources"] and secure_boot.refuses_next(node):
        found = f"the driver needs a reboot, and the module of kernel {lost}, which boots next"
        secure_boot.refuse(plan, node, f"{found}, must be built")
    else:
        refuse_broken(plan, node, choice.driver)


def _without_module(node: Node) -> Kernel | None:
    newer = node["driver"]["next_kernel"]
    return newer if newer and not newer["module"] else None
