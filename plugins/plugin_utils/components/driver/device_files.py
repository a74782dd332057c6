# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Do the files in /dev work that CUDA needs, now and after each boot?

Loading a module creates none. NVML creates /dev/nvidiactl and the files of the GPUs when a program
of root uses it, and nothing for CUDA. Of the packages, only Ubuntu's own have rules of udev that
create all of them. For the others, the role writes one.

Source: tests/recorded/device_files.yml
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read.device_files import UVM, outdated
from ansible_collections.metal.gpu.plugins.module_utils.verdict.device_files import (
    blocking,
    corrections,
    obstacle_evidence,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import distribution, steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, Plan

_PROGRAM = "/usr/bin/nvidia-modprobe"
_NUMBERS = "sed -n s/^Device.Minor:/-c/p /proc/driver/nvidia/gpus/*/information"
# nvidia-modprobe takes a module for loaded that is still initializing: it would not find the number
# of the file. modprobe waits for the module. Kernels since 5.11 send the event only after that, so
# there it returns at once; an older kernel of an admin needs it.
# $$ is udev's way to write $.
RULE_FILE: File = {
    "path": own_files.DEVICE_RULE,
    "block": (
        f'ACTION=="add", SUBSYSTEM=="module", KERNEL=="nvidia_uvm", TEST=="{_PROGRAM}", \\\n'
        '  RUN+="/sbin/modprobe nvidia_uvm", \\\n'
        f'  RUN+="{_PROGRAM} -c 0 -u", \\\n'
        f"  RUN+=\"/bin/sh -c 'exec {_PROGRAM} -c 255 $$({_NUMBERS})'\"\n"
    ),
}


def plan_rule(plan: Plan[Data], node: Node, source: str | None) -> None:
    """Plan the rule for a driver of this role, before a reboot and before the modules are loaded.

    `source` is the one that the driver comes from.
    """
    if distribution.is_ubuntus(node, source):
        return
    plan.data["device_rule"] = RULE_FILE
    plan.step(steps.DEVICE_RULE, _rule_reason(node))


def _rule_reason(node: Node) -> str | None:
    if RULE_FILE["path"] not in node["ours"]["files"]:
        return "loading the modules creates no file in /dev"
    if node["driver"]["own_device_rule"] != RULE_FILE["block"].splitlines():
        return f"{RULE_FILE['path']} has another text than this role writes"
    return None


def plan_files(plan: Plan[Data], node: Node, source: str | None) -> None:
    """Plan the files themselves, after a reboot and after the modules are loaded.

    What stands in their place belongs to somebody else. A boot starts without it.
    """
    reboots = plan.has_step(steps.REBOOT)
    obstacles = [] if reboots else blocking(node)
    if obstacles:
        plan.refuse("DEVICE_FILE_BLOCKED", **obstacle_evidence(obstacles))
    if distribution.is_ubuntus(node, source):
        return
    # A boot starts without files. After a load, the number of an old one can be wrong.
    reasons = {} if reboots else outdated(node["device_files"], node["device_majors"])
    if not any(file["path"] == UVM for file in node["device_files"]):
        reasons[UVM] = f"{UVM} does not exist"
    elif reboots or plan.has_step(steps.RUNFILE) or plan.has_step(steps.LOAD):
        reasons.setdefault(UVM, f"{UVM} is that of the modules that are loaded now")
    if reasons:
        plan.data["device_commands"] = corrections(reasons)
    plan.step(steps.DEVICE_FILES, ", ".join(reasons.values()) or None)
