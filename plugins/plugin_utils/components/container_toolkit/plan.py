# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does this node need so that its engine can pass GPUs to containers?

Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    cdi,
    device_links,
    isolation,
    packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import embedded
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    register_runtime as containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import (
    register_runtime as crio,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    register_runtime as docker,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.state import works
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import reload, runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines, rivals
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    refuse_platform,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import installed
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Plan,
    PlanResult,
    refuse_lost_history,
)

STEPS = tuple(
    dict.fromkeys(
        (
            *packages.STEPS,
            *device_links.STEPS,
            *containerd.STEPS,
            *docker.STEPS,
            *crio.STEPS,
            *cdi.STEPS,
            *isolation.STEPS,
        )
    )
)


class Engine(Protocol):
    """What register_runtime.py in the folder of an engine has."""

    def register_runtime(
        self, plan: Plan[Data], node: Node, desired: runtime.Desired, *, is_toolkit_new: bool
    ) -> None:
        """Plan what the engine needs to have the NVIDIA runtime."""

    def unregister_runtime(self, plan: Plan[Data], node: Node) -> None:
        """Plan to undo it."""


_ENGINES: Mapping[str, Engine] = {
    engines.CONTAINERD: containerd,
    engines.DOCKER: docker,
    engines.CRIO: crio,
}


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan the container runtime."""
    plan = Plan[Data](
        desired["host"], {"rule": device_links.RULE_FILE, "cdi_drop_in": cdi.CDI_DROP_IN}
    )
    refuse_platform(plan, node)
    found = installed(node, packages.PACKAGES)
    # A role that writes the drop-in again needs none.
    drop_ins, left = runtime.without_history(node)
    drop_ins = drop_ins if desired["state"] == "absent" else []
    packages.OURS.refuse_record(plan, node, found, drop_ins=drop_ins, left=left)
    if desired["state"] == "present":
        engines.refuse_distribution(plan, node)
        engines.refuse_stopped_distribution(plan, node)
        engines.refuse(plan, node, desired["engine"])
    if plan.refusals:
        return plan.result()
    if desired["state"] == "present":
        _plan_present(plan, node, desired)
        packages.OURS.notice_sources(plan, node, desired)
    else:
        _plan_absent(plan, node, desired)
    packages.OURS.plan_repair(plan, node, packages.FORMER)
    refuse_lost_history(plan, node, runtime.ROLE)
    refuse_lost_history(plan, node, crio.EDITS)
    return plan.result()


def _plan_present(plan: Plan[Data], node: Node, desired: Desired) -> None:
    plan.data["is_default"] = bool(desired["default"])
    has_driver = works(node) or desired["driver_is_planned"]
    engine = engines.choose(node, desired["engine"])
    specifications = cdi.Specifications.of(node)
    writes_cdi = bool(desired["cdi"] and specifications.reason)
    packages.plan_packages(plan, node, desired, writes_cdi=writes_cdi)
    device_links.plan_device_links(plan, node, has_driver=has_driver)
    isolation.plan_isolation(plan, node, desired, engine)
    rivals.refuse_operator_toolkit(plan, node, engine)
    if engine is not None:
        _ENGINES[engine].register_runtime(
            plan, node, desired, is_toolkit_new=plan.has_step(packages.OURS.install)
        )
    if engine == engines.CONTAINERD:
        rivals.notice_kubespray(plan, node, is_registered_now=plan.has_step(runtime.REGISTER))
    if has_driver and desired["cdi"]:
        cdi.plan_cdi(plan, node, specifications)
    reloading = (packages.OURS.install, packages.FORMER, cdi.DROP_IN)
    permission = "" if desired["restart_ok"] else "nvidia_container_runtime_restart_ok"
    if unlinked := reload.notice_reload(plan, node, *reloading, permission=permission):
        plan.data["links"] = device_links.links(node)
        plan.steps = {device_links.FIRST: unlinked, **plan.steps}


def _plan_absent(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan the removal of what this role did, whichever engine the node uses now."""
    for engine in _ENGINES.values():
        engine.unregister_runtime(plan, node)
    isolation.plan_no_isolation(plan, node)
    cdi.plan_no_drop_in(plan, node)
    device_links.plan_no_rule(plan, node)
    packages.plan_no_packages(plan, node)
    reload.notice_reload(plan, node, packages.OURS.remove, cdi.REMOVE_DROP_IN)
    embedded.plan_forget(plan, node, restart_ok=desired["restart_ok"])
