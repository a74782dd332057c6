# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is persistence mode on, and does it come back after a boot?

The mode is what counts: a daemon that runs can have it off. NVIDIA's units start the daemon with
the mode on. Ubuntu's own unit is static, has --no-persistence-mode, and stops when nothing needs
it. A drop-in of ours turns the mode on after each start, whatever the rest of the unit is.

Source: records of the units in tests/recorded/packages
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import Device
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.verdict.names import name_gpu
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import state, steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, Plan

# A GPU that fails must not stop the daemon, so the exit code of nvidia-smi does not count.
DROP_IN_FILE: File = {
    "path": own_files.PERSISTENCE_DROP_IN,
    "block": (
        "[Unit]\nStopWhenUnneeded=no\n\n[Service]\nExecStartPost=-/usr/bin/nvidia-smi -pm 1\n"
    ),
}
_OF_ADMIN = ("/etc/", "/run/")


def _off(gpus: list[Device]) -> list[Device]:
    """Return the GPUs with persistence mode off. Others may fail, or not support it."""
    return [gpu for gpu in gpus if gpu["error"] is None and gpu["persistence_mode"] is False]


def off_reason(node: Node) -> str | None:
    """Return on which GPUs persistence mode is off."""
    gpus = node["nvml"]["devices"]
    off = _off(gpus)
    if not off:
        return None
    which = ", ".join(f"GPU {gpu['index']}" for gpu in off) if len(off) < len(gpus) else "all GPUs"
    return f"persistence mode is off on {which}"


def notice_off(plan: Plan[Data], node: Node) -> None:
    """Report persistence mode that is off and that the role leaves off."""
    reason = off_reason(node)
    if reason:
        file = node["driver"]["persistence_off"]
        why = f"{file} has --no-persistence-mode" if file else "the role leaves this driver alone"
        plan.notice("PERSISTENCE_OFF", evidence=reason, why=why)


def plan_new(plan: Plan[Data], node: Node) -> None:
    """Plan the daemon that comes with a driver which is about to be installed.

    On Ubuntu, the unit may have the mode off. The drop-in does no harm to one that has not.
    """
    is_lacking = node["os"]["id"] == "ubuntu" and not _has_drop_in(node)
    plan.data["persistence_drop_in"] = DROP_IN_FILE if is_lacking or _needs_drop_in(node) else None
    plan.step(steps.PERSISTENCE, state.persistence_reason(node))


def plan_without_daemon(plan: Plan[Data], node: Node) -> None:
    """Plan persistence mode for a driver to install that has no unit for the daemon."""
    if node["driver"]["persistenced"]["installed"]:
        plan_new(plan, node)
    elif plan.has_step(steps.LOAD):
        plan.data["persistence_gpus"] = [gpu["address"] for gpu in node["pci"]]
        plan.step(steps.PERSISTENCE_MODE, "nvidia-persistenced has no unit")


def plan_working(plan: Plan[Data], node: Node, found: str) -> None:
    """Plan persistence mode for a driver that works.

    A daemon that runs is not restarted: GPUs with the mode on would lose their settings.
    """
    off, daemon = off_reason(node), node["driver"]["persistenced"]
    names = [name_gpu(gpu) for gpu in _off(node["nvml"]["devices"])]
    plan.data["persistence_gpus"] = names
    if not daemon["installed"]:
        plan.notice("PERSISTENCE_MISSING", found=found)
        if plan.has_step(steps.REBOOT):
            # Nothing turns it on at boot.
            gpus = [gpu for gpu in node["nvml"]["devices"] if gpu["error"] is None]
            names = [name_gpu(gpu) for gpu in gpus if gpu["persistence_mode"] is not None]
            plan.data["persistence_gpus"] = names
            off = "the reboot turns it off, and nvidia-persistenced has no unit" if names else None
        plan.step(steps.PERSISTENCE_MODE, off)
        return
    file = node["driver"]["persistence_off"]
    if file and file.startswith(_OF_ADMIN):
        notice_off(plan, node)
        off = None
    needs_drop_in = _needs_drop_in(node)
    plan.data["persistence_drop_in"] = DROP_IN_FILE if needs_drop_in else None
    boot = f"{file} has --no-persistence-mode" if needs_drop_in else None
    # A daemon that starts turns the mode on.
    start = off if not daemon["active"] else None
    reasons = (state.persistence_reason(node), start, boot)
    plan.step(steps.PERSISTENCE, "; ".join(filter(None, reasons)) or None)
    plan.step(steps.PERSISTENCE_MODE, off if daemon["active"] else None)


def _has_drop_in(node: Node) -> bool:
    return own_files.PERSISTENCE_DROP_IN in node["ours"]["files"]


def _needs_drop_in(node: Node) -> bool:
    """Tell whether the package's unit turns the mode off. What the admin wrote stays in force."""
    file = node["driver"]["persistence_off"]
    return bool(file) and not str(file).startswith(_OF_ADMIN) and not _has_drop_in(node)
