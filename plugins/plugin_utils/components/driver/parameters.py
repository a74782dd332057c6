# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which parameters and additional modules do the variables ask for, and are they in force?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    modules,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

PEERMEM = "nvidia_peermem"
_NAME = re.compile(r"NVreg_\w+", re.ASCII)
_VALUE = re.compile(r"[\w.,:;=/+-]+", re.ASCII)
# modprobe.d knows a module by the name of its file, and Debian's files have other names.
_DEBIANS_NAMES = ("nvidia-current", "nvidia-current-open", "nvidia-tesla-470")
_32_BITS = 2**32
_OCTAL = re.compile(r"0[0-7]+", re.ASCII)
# /proc/driver/nvidia/params shows one parameter under another name, and some not at all.
# Source: nv-reg.h of NVIDIA/open-gpu-kernel-modules, 2026-11-23; see tests/recorded/parameters.yml
_SHOWN_AS = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
_NEVER_SHOWN = ("NVreg_EnableNonblockingOpen", "NVreg_RmNvlinkBandwidth")


def plan_wanted(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan the file that sets the parameters at the next load of the module."""
    _refuse_invalid(plan, desired)
    _plan_file(plan, node, desired)


def plan_modules_load(plan: Plan[Data], node: Node, desired: Desired) -> tuple[str, ...]:
    """Plan the file that loads the modules at boot. Return the modules to load now."""
    # nvidia_peermem is in our file only after the kernel has loaded it.
    has_peermem = desired["peermem"] and PEERMEM in node["driver"]["own_modules"]
    at_boot = (*state.MODULES, PEERMEM) if has_peermem else state.MODULES
    plan.data |= {"modules_load": state.modules_load_file(at_boot), "load": [*state.MODULES]}
    plan.step(steps.MODULES_LOAD, state.boot_reason(node, at_boot))
    return state.MODULES


def plan_peermem(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan to load nvidia_peermem, last: the kernel may refuse it, and GPUs work without it."""
    if not desired["peermem"]:
        return
    if state.works(node) and not node["driver"]["peermem"]:
        plan.notice("PEERMEM_MISSING", kernel=node["kernel"]["release"])
        return
    plan.data["peermem"] = state.modules_load_file((*state.MODULES, PEERMEM))
    is_named = PEERMEM in node["driver"]["modules_load"]
    reason = None if is_named else f"no file in modules-load.d names {PEERMEM}"
    plan.step(steps.PEERMEM, state.unloaded_reason(node, (PEERMEM,)) or reason)


def _refuse_invalid(plan: Plan[Data], desired: Desired) -> None:
    for name, value in desired["module_parameters"].items():
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(_text(value))):
            plan.refuse(
                "VARIABLE_INVALID",
                name="nvidia_driver_module_parameters",
                found=f"{name}={value}",
                expected="names such as NVreg_EnableStreamMemOPs, and values without blanks",
                role=steps.ROLE,
            )


def _plan_file(plan: Plan[Data], node: Node, desired: Desired) -> None:
    wanted = _lines(node, desired)
    block = "".join(f"{line}\n" for line in wanted)
    plan.data["parameters"] = {"path": own_files.MODULE_PARAMETERS, "block": block}
    if wanted == node["driver"]["own_parameters"]:
        return
    names = ", ".join(desired["module_parameters"])
    reason = f"nvidia_driver_module_parameters sets {names}" if names else "it sets none"
    plan.step(steps.PARAMETERS, reason)
    # With Ubuntu's hook framebuffer-nvidia, the initramfs has the module, and loads it with the
    # parameters of the time when it was built.
    has_ramdisk = node["driver"]["initramfs_outdated"] is not None
    if has_ramdisk and not plan.has_step(steps.INITRAMFS):
        why = "it may contain the module and its parameters"
        state.plan_ramdisk(plan, node["driver"], why)


def plan_loaded(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan the reboot that parameters need, or report that they are not in force.

    A reboot must not cost the GPUs, and what the module does not show is no reason for one.
    """
    # A reboot that has not helped once does not help.
    can_help = plan.has_step(steps.PARAMETERS) or node["driver"]["parameters_are_new"]
    _notice_unknown(plan, node, desired, can_help=can_help)
    pending = _pending(node["driver"]["parameters"], desired["module_parameters"])
    if not pending:
        return
    lost = modules.lost_by_reboot(plan, node) or modules.lost_now(plan, node)
    if can_help and desired["reboot_ok"] and not lost:
        engines.refuse_distribution(plan, node)
        plan.step(steps.REBOOT, f"the loaded module has {', '.join(pending)}")
        return
    when = "they need a reboot" if can_help else "the node has rebooted since"
    if can_help and lost:
        when += f", and kernel {lost}, which boots next, has no module of the driver"
    plan.notice("PARAMETERS_PENDING", evidence=", ".join(pending), when=when)


def _lines(node: Node, desired: Desired) -> list[str]:
    names = ("nvidia", *(_DEBIANS_NAMES if node["os"]["id"] == "debian" else ()))
    return [
        f"options {module} {name}={_text(value)}"
        for module in names
        for name, value in desired["module_parameters"].items()
    ]


def _notice_unknown(plan: Plan[Data], node: Node, desired: Desired, *, can_help: bool) -> None:
    """Report parameters that the loaded module does not show."""
    loaded = node["driver"]["parameters"]
    names = [name for name in desired["module_parameters"] if _shown(loaded, name) is None]
    if not can_help:
        names = [name for name in names if name not in _NEVER_SHOWN]
    if loaded and names:
        when = "the next reboot applies them" if can_help else "the node has rebooted since"
        plan.notice("PARAMETERS_UNKNOWN", names=", ".join(names), when=when)


def _pending(loaded: Mapping[str, str], desired: Mapping[str, object]) -> list[str]:
    """Return what the loaded module has instead."""
    values = {name: _shown(loaded, name) for name in desired}
    return [
        f"{name}={value}"
        for name, value in values.items()
        if value is not None and _number(value) != _number(_text(desired[name]))
    ]


def _shown(loaded: Mapping[str, str], name: str) -> str | None:
    """Return the value of a parameter of the loaded module; None if the module does not show it."""
    name = name.removeprefix("NVreg_")
    return loaded.get(name, loaded.get(_SHOWN_AS.get(name, name)))


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _number(text: str) -> int | str:
    """Return a number as the kernel reads it; any other text as it is.

    The module prints numbers without a sign. Those that begin with 0 are octal.
    """
    try:
        return int(text, 8 if _OCTAL.fullmatch(text) else 0) % _32_BITS
    except ValueError:
        return text
