# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the node have a CRI-O that a kubelet can use?

Installs CRI-O if it is missing. An existing CRI-O stays the admin's: the plan only starts it, or
restarts it with a change of this collection that it has not read yet.
"""

from __future__ import annotations

from posixpath import basename

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio.next_start import (
    notice_fatal_boot,
    refuse_fatal_start,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio.packages import (
    OURS,
    PACKAGE,
    packages,
    source,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio.settings import DROP_IN
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio.shapes import Data, Desired
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines.reload import (
    notice_reload,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    refuse_platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import (
    installed,
    notice_unheld,
    refuse_dependants,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Change,
    NoData,
    Plan,
    PlanResult,
    Step,
    unread_change,
    unread_reason,
)

RESTART = Step("restart", "Restart CRI-O")
START = Step("start", "Start CRI-O")

STEPS = (*OURS.steps, RESTART, START)

RESTART_REASON = "CRI-O reads its configuration only when it starts; containers keep running"


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan CRI-O."""
    plan = Plan[Data](desired["host"], {})
    refuse_openshift(plan, node)
    if plan.refusals:  # such a system is not supported for the other reasons, either
        return plan.result()
    refuse_platform(plan, node)
    engines.refuse(plan, node, engines.CRIO)
    if desired["state"] == "present":
        engines.refuse_distribution(plan, node)
    refuse_config(plan, node)
    OURS.refuse_record(plan, node, installed(node, [PACKAGE]))
    if plan.refusals:
        return plan.result()
    if desired["state"] == "absent":
        _plan_absent(plan, node)
    elif node["engines"]["crio"]["installed"]:
        OURS.notice_kept(plan, node, PACKAGE, "crio_version", desired["version"])
        _plan_installed(plan, node)
    else:
        _plan_missing(plan, node, desired)
    if desired["state"] == "present":
        OURS.notice_sources(plan, node, desired)
    OURS.plan_repair(plan, node)
    notice_reload(plan, node, OURS.install, OURS.remove)
    return plan.result()


def refuse_openshift(plan: Plan[NoData], node: Node) -> None:
    """Refuse a CRI-O whose configuration belongs to the operators of OpenShift."""
    if evidence := node["engines"]["crio"]["openshift"]:
        plan.refuse("OPENSHIFT_UNSUPPORTED", evidence=evidence)


def refuse_config(plan: Plan[NoData], node: Node) -> None:
    """Refuse a configuration that CRI-O cannot read."""
    if error := node["engines"]["crio"]["config"]["error"]:
        plan.refuse("CRIO_CONFIG_INVALID", error=error)


def unread(node: Node) -> tuple[Change | None, str | None]:
    """Return our change that CRI-O has not read yet, and why that needs a restart."""
    engine = node["engines"]["crio"]
    reason = unread_reason(engine, drop_in=basename(DROP_IN), name="CRI-O")
    return unread_change(node, engine["changed_since_start"]), reason


def _plan_missing(plan: Plan[Data], node: Node, desired: Desired) -> None:
    system = systems.supported(node)
    OURS.plan_repository(plan, node, desired, source(system, desired["version"]))
    wanted = packages(system, desired["version"])
    ours = OURS.plan_install(plan, node, wanted, "CRI-O is not installed")
    OURS.plan_hold(plan, node, ours)
    plan.step(START, "the package does not start it")


def _plan_installed(plan: Plan[Data], node: Node) -> None:
    engine = node["engines"]["crio"]
    if OURS.of_role(node):
        OURS.plan_hold(plan, node, {PACKAGE: ""})
    else:
        notice_unheld(plan, node, (PACKAGE,))
    if not engine["running"]:
        plan.step(START, "CRI-O is not running")
    else:
        plan.data["change"], reason = unread(node)
        plan.step(RESTART, reason)
    if plan.has_step(START, RESTART):
        refuse_fatal_start(plan, engine)
    else:
        notice_fatal_boot(plan, engine)


def _plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal. The kubelet needs CRI-O, so the admin removes it first."""
    names = OURS.added(node)
    plan.data["packages"] = names
    if names and node["kubelet"]["running"] is not False:
        plan.refuse("CRIO_IN_USE")
    refuse_dependants(plan, node, names)
    if names:
        plan.step(OURS.remove, f"this role installed {PACKAGE}")
    elif node["engines"]["crio"]["installed"]:
        plan.notice("ENGINE_OF_ADMIN", engine="CRI-O")
    OURS.plan_cleanup(plan, node)
