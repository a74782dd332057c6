# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What prevents the installation of the driver on a node?"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import branch
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import state, steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def refuse_node(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Refuse a node whose driver or loaded modules the role must not replace."""
    if node["secure_boot"]:
        plan.refuse("SECURE_BOOT_ON")
    packages = driver_packages.carriers(node["driver"]["packages"])
    found = state.installed_version(node)
    if not packages and found:
        plan.refuse("DRIVER_FROM_ELSEWHERE", found=found, error=state.error(node))
        return
    others = {upstream_version(version) for version in packages.values()} - {desired["version"]}
    reboot = state.reboot_reason(node, desired["version"])
    if others:
        plan.refuse("DRIVER_BROKEN", found=" and ".join(sorted(others)), error=state.error(node))
    elif reboot and not desired["reboot_ok"]:
        code = "NOUVEAU_LOADED" if "nouveau" in node["kernel"]["modules"] else "REBOOT_NEEDED"
        reboot_ok = "not set" if desired["reboot_ok"] is None else "false"
        plan.refuse(code, evidence=reboot, reboot_ok=reboot_ok)
    elif reboot:
        # The role drains only nodes whose kubelet runs as kubelet.service.
        engines.refuse_distribution(plan, node)


def refuse_installation(
    plan: Plan[Data],
    node: Node,
    desired: Desired,
    packages: Mapping[str, str],
    reason: str | None,
) -> None:
    """Refuse packages that no repository has, or that would replace a driver of the admin.

    A driver that does not answer may work, and pods may use it.
    """
    if not reason:
        return
    version, system = desired["version"], systems.supported(node)
    if branch(version) < system.first_branch and not desired["repository_url"]:
        plan.refuse(
            "DRIVER_BRANCH_MISSING",
            version=version,
            found=system.name,
            branch=system.first_branch,
        )
    failure = node["nvml"]["failure"]
    is_silent = failure is not None and failure["code"] == "timeout"
    is_loaded = node["driver"]["module_version"] == version
    installed = driver_packages.carriers(node["driver"]["packages"])
    missing = [name for name in driver_packages.carriers(packages) if name not in node["packages"]]
    is_of_admin = steps.ROLE not in node["ours"]["packages"] and installed and missing
    if (is_silent and is_loaded) or is_of_admin:
        refuse_broken(plan, node, version)


def refuse_broken(plan: Plan[Data], node: Node, version: str) -> None:
    if all(refusal["code"] != "DRIVER_BROKEN" for refusal in plan.refusals):
        plan.refuse("DRIVER_BROKEN", found=version, error=state.error(node))


def refuse_pin(plan: Plan[Data], node: Node, pinning: Mapping[str, str]) -> None:
    """Refuse to replace a pin of the admin: only one such package can be installed.

    The pin of a whole branch also allows versions newer than the desired one.
    Source: Conflicts and Replaces of nvidia-driver-pinning-580 in NVIDIA's repository
    """
    ours = steps.OURS.of_role(node)
    found = [
        name
        for name in node["driver"]["packages"]
        if "-pinning-" in name and name not in pinning and name not in ours
    ]
    if found:
        plan.refuse(
            "DRIVER_PIN_TAKEN",
            packages=", ".join(found),
            names=" ".join(found),
            expected=", ".join(pinning),
        )
