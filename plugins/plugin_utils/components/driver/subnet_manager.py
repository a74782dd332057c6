# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What do NVSwitches behind adapters (B200, B300) need besides Fabric Manager?

The service of Fabric Manager starts nvlsm as well. Its package has a version of its own, a date:
NVIDIA's package nvlink5-580 needs at least one of them and not a certain one, and NVIDIA's own
containers install the newest one. So the role does the same, and holds what it got.

Source: nvidia-fabricmanager-start.sh of Fabric Manager 580.178.04; tests/recorded/fabric.yml
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import (
    ADAPTER_MODULE,
    MAD_MODULE,
    SUBNET_MANAGER,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.fabric import (
    describe_switches,
    is_in_container,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import NVIDIA
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, Plan

# The start script fails without ibstat. Without lspci it does not wait for the adapters at boot.
# They are tools of the system, so a teardown leaves them.
TOOLS = ("infiniband-diags", "pciutils")
# The kernel loads the module of the adapters itself.
MODULES_LOAD: File = {"path": own_files.FABRIC_MODULES_LOAD, "block": f"{MAD_MODULE}\n"}


def packages(plan: Plan[Data], node: Node, choice: Choice) -> dict[str, str]:
    """Return nvlsm in any version, or nothing, or refuse. One of the admin is never replaced."""
    if not node["fabric"]["ports"]:
        return {}
    switches = describe_switches(node)
    if missing := node["fabric"]["missing_modules"]:
        kernel, modules = node["kernel"]["release"], " and ".join(missing)
        plan.refuse("FABRIC_MODULES_MISSING", switches=switches, kernel=kernel, modules=modules)
    if SUBNET_MANAGER in node["packages"]:
        return {SUBNET_MANAGER: ""} if SUBNET_MANAGER in steps.OURS.of_role(node) else {}
    if choice.source == NVIDIA:
        return {SUBNET_MANAGER: ""}
    plan.refuse("SUBNET_MANAGER_MISSING", switches=switches)
    return {}


def tools(node: Node) -> dict[str, str]:
    """Return the tools that the node lacks, in any version."""
    if not node["fabric"]["ports"] or is_in_container(node):
        return {}
    return {name: "" for name in TOOLS if name not in node["packages"]}


def plan_modules(plan: Plan[Data], node: Node) -> None:
    """Plan the modules through which nvlsm reaches the NVSwitches."""
    if not node["fabric"]["ports"]:
        return
    loaded = node["fabric"]["modules"]
    unloaded = [name for name in (ADAPTER_MODULE, MAD_MODULE) if name not in loaded]
    is_named = MAD_MODULE in node["driver"]["modules_load"]
    plan.data |= {
        "fabric_modules": unloaded,
        "fabric_modules_load": None if is_named else MODULES_LOAD,
    }
    reasons = [f"{' and '.join(unloaded)} not loaded"] if unloaded else []
    if not is_named:
        reasons.append(f"no file in modules-load.d names {MAD_MODULE}")
    plan.step(steps.FABRIC_MODULES, "; ".join(reasons) or None)
