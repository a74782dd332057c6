# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does a node with Ubuntu's signed modules keep its GPUs after the next boot?"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    distribution,
    kernels,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def plan_next_kernel(plan: Plan[Data], node: Node, *, may_install: bool) -> None:
    """Plan the modules of a newer installed kernel, or report that it has none.

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
