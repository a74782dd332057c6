# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does each kernel that the node runs or boots next have the driver's module, and who builds it?

Which kernel boots next is a heuristic: see module_utils/read/kernels.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import dkms as dkms_state
from ansible_collections.metal.gpu.plugins.module_utils.read.kernels import Kernel
from ansible_collections.metal.gpu.plugins.module_utils.verdict.driver_causes import build_remedy
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    distribution,
    secure_boot,
    state,
    steps,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.other_drivers import (
    other_drivers,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

_HEADERS = ("linux-headers-", "kernel-devel-")
_BY_PACKAGES = "install the headers of this kernel or its package of the module, and run again"


def headers_are_gone(node: Node) -> bool:
    """Whether the running kernel has no headers, and apt has none for it either."""
    available = node["driver"]["headers_available"]
    if node["kernel"]["headers"] or available is None:
        return False
    return node["kernel"]["release"] not in available


def next_for(plan: Plan[Data], node: Node, desired: Desired) -> Kernel | None:
    """Return the kernel to boot because nothing can be built for the running one.

    Refuse the node if there is none, or if it may not reboot.
    """
    release, newer = node["kernel"]["release"], node["driver"]["next_kernel"]
    is_skipped = node["driver"]["next_kernel_skipped"]
    can_boot = newer is not None and can_be_built(node, newer) and not is_skipped
    if newer is not None and can_boot and desired["reboot_ok"]:
        engines.refuse_distribution(plan, node)
        return newer
    found = "no newer kernel is installed"
    if newer is not None:
        problem = ", without headers" if not can_boot else ""
        found = f"kernel {newer['release']} boots next{problem}"
        if is_skipped:
            found = f"kernel {newer['release']} has the module, but the last boot did not start it"
    refuse_headers_gone(plan, str(release), found)
    return None


def refuse_headers_gone(plan: Plan[Data], release: str, found: str) -> None:
    plan.refuse("KERNEL_HEADERS_GONE", kernel=release, found=found)


def can_be_built(node: Node, kernel: Kernel) -> bool:
    """Whether a kernel has headers, or apt has them."""
    return kernel["headers"] or kernel["release"] in (node["driver"]["headers_available"] or [])


def as_running(node: Node, kernel: Kernel) -> Node:
    """Return the node as it is after it booted a kernel."""
    running = {**node["kernel"], "release": kernel["release"], "headers": kernel["headers"]}
    driver = {**node["driver"], "next_kernel": None}
    return {**node, "kernel": running, "driver": driver}  # type: ignore[typeddict-item]


def of_version(node: Node, fits: Callable[[str], bool]) -> Node:
    """Return the node without what drivers of other versions have left in DKMS.

    Their builds stay in the list: what failed there before is no other driver to propose.
    """
    found = node["driver"]["dkms"]
    kept = {name: one for name, one in found["builds"].items() if fits(_version(name))}
    trees = [one for one in found["addable"] if fits(_version(one))]
    if len(kept) == len(found["builds"]) and trees == found["addable"]:
        return node
    dkms = {**dkms_state.join(kept, trees), "builds": found["builds"]}
    driver = {**node["driver"], "dkms": dkms}
    return {**node, "driver": driver}  # type: ignore[typeddict-item]


def _version(source: str) -> str:
    return source.rpartition("/")[2]


def plan_build(
    plan: Plan[Data],
    node: Node,
    choice: Choice,
    *,
    is_new: bool,
    is_complete: bool,
    booted: Kernel | None = None,
) -> str | None:
    """Plan the builds that the packages do not do themselves. Return the code of what prevents it.

    `node` comes from of_version. `is_new`: packages that bring the source are installed in this
    run. `is_complete`: nothing that a build needs is missing. `booted`: a kernel that counts as the
    running one already.
    """
    dkms, release = node["driver"]["dkms"], str(node["kernel"]["release"])
    sources = [one for one in dkms["sources"] if choice.fits(_version(one))]
    is_lost = not is_new and has_lost_entry(node, choice)
    if is_lost:
        sources = dkms["addable"]
    plan.data["source"] = sources[0] if sources else None
    version = re.escape(choice.version).replace(r"\*", ".*")
    plan.data["source_pattern"] = f"[^/]+/{version}$"
    kernels = [release] if is_lost or (sources and is_damaged(node)) else []
    if dkms["built"] is False:
        is_failed = has_failed(node, release)
        if is_complete and (is_failed or not sources):
            return "DKMS_BUILD_FAILED" if is_failed else "DRIVER_BROKEN"
        kernels = [release] if sources else []
    newer = booted or node["driver"]["next_kernel"]
    if newer and not newer["module"] and newer["release"] not in kernels:
        can_build = can_be_built(node, newer) or _gets_headers(plan, newer)
        if (
            (sources or is_new)
            and can_build
            and not secure_boot.refuses_next(node)
            and not has_failed(node, newer["release"], by_name=True)
        ):
            kernels.append(newer["release"])
    _plan_kernels(plan, node, choice, kernels)
    if is_new and systems.is_redhat(node) and release not in kernels:
        # NVIDIA's rpm ignores a failed build. The task builds what DKMS has not built by then.
        _name_kernels(plan, node, choice, [release, *kernels])
    return None


def is_damaged(node: Node) -> bool:
    """Whether DKMS built a module for the running kernel that is not there, or cannot be read.

    DKMS 3.0.10 does not notice if the disk is full when it stores or installs the module.
    """
    return bool(node["driver"]["dkms"]["built"]) and not state.has_usable_modules(node)


def has_lost_entry(node: Node, choice: Choice) -> bool:
    """Whether DKMS has neither the driver nor a module, and its source is there to be added again.

    `dkms remove` for the last kernel also removes the entry. A run can end before `dkms install`.
    Ubuntu's own driver has its source there, too, and modules that Ubuntu built.
    """
    dkms = node["driver"]["dkms"]
    is_lost = dkms["built"] is None and bool(dkms["addable"]) and not state.has_usable_modules(node)
    return is_lost and not distribution.is_ubuntus(node, choice.source)


def plan_next(
    plan: Plan[Data], node: Node, choice: Choice | None, *, is_ours: bool = False
) -> None:
    """Plan the modules that a working driver lacks: nvidia_uvm, and those of the kernel that boots
    next, or report that this one has none.

    `choice` is None if the role leaves the driver alone. Only a module of the role's own driver is
    built again: a build begins with the removal of what DKMS has.
    """
    works = node["nvml"]["driver_version"]
    node = of_version(node, choice.fits if choice else lambda one: works in (one, None))
    newer, dkms = node["driver"]["next_kernel"], node["driver"]["dkms"]
    if node["signed_modules"]:
        return  # see working.py
    sources = dkms["sources"]
    if choice and has_lost_entry(node, choice):
        sources = dkms["addable"]
    kernels = _without_uvm(node) if is_ours else []
    if sources and kernels and secure_boot.refuses_next(node):
        secure_boot.refuse(plan, node, f"nvidia_uvm of kernel {kernels[0]} must be built again")
    is_failed = newer is not None and has_failed(node, newer["release"], by_name=True)
    if newer and newer["headers"] and not (newer["module"] or is_failed):
        kernels.append(newer["release"])
    if choice and sources and kernels and not secure_boot.refuses_next(node):
        plan.data |= {"source": sources[0], "version": choice.driver}
        _plan_kernels(plan, node, choice, kernels)
    if newer is None or newer["module"] or newer["release"] in plan.data.get("kernels", []):
        return
    why, way = "nothing on the node builds one", _BY_PACKAGES
    source = next(iter(dkms["sources"]), "MODULE/VERSION")
    by_dkms = f"run `dkms install {source} -k {newer['release']}` on the node, and run again"
    if is_failed:
        why = f"DKMS could not build it: {dkms['error'] or dkms['log']}"
        way = f"remove the cause, {by_dkms}" if newer["headers"] else way
    elif dkms["sources"] and not newer["headers"]:
        why = "it has no headers"
    elif dkms["sources"] and secure_boot.refuses_next(node):
        why, way = secure_boot.distrust(node), secure_boot.way_out(node)
    elif dkms["sources"]:
        why, way = "the role leaves this driver alone", by_dkms
    plan.notice("KERNEL_PENDING", kernel=newer["release"], why=why, way=way)


def _without_uvm(node: Node) -> list[str]:
    """Return the running kernel if its nvidia_uvm is not loaded, and cannot be, but can be built.

    nvidia-smi needs only the module nvidia, so the driver works without it.
    """
    release = str(node["kernel"]["release"])
    is_lacking = node["driver"]["uvm_readable"] is False
    is_loaded = "nvidia_uvm" in node["kernel"]["modules"]
    can_build = node["kernel"]["headers"] and not has_failed(node, release)
    return [release] if is_lacking and not is_loaded and can_build else []


def lost_by_reboot(plan: Plan[Data], node: Node) -> str | None:
    """Return the kernel that boots next, if it has no module then, not even by this plan."""
    newer = node["driver"]["next_kernel"]
    if newer is None or newer["module"] or newer["release"] in plan.data.get("kernels", []):
        return None
    # Ubuntu's signed modules; see working.py.
    coming = plan.data.get("following", []) if plan.has_step(steps.FOLLOW) else []
    has_signed = any(one.endswith(f"-{newer['release']}") for one in coming)
    return None if has_signed else newer["release"]


def lost_now(plan: Plan[Data], node: Node) -> str | None:
    """Return the running kernel if the driver that works in it is no longer on the disk.

    This is for working drivers. Before an installation, every kernel is without one.
    """
    release = str(node["kernel"]["release"])
    will_be = release in plan.data.get("kernels", [])
    return None if node["driver"]["next_kernel"] or state.has_module(node) or will_be else release


def refuse_unbuilt(
    plan: Plan[Data], node: Node, choice: Choice, release: str | None = None
) -> None:
    """Refuse a driver whose module DKMS could not build, for the running kernel or another one."""
    dkms = node["driver"]["dkms"]
    plan.refuse(
        "DKMS_BUILD_FAILED",
        version=choice.driver,
        kernel=release or node["kernel"]["release"],
        error=dkms["error"] or "the log has no known words of an error",
        log=dkms["log"],
        way=build_remedy(node, dkms["error"]) or "remove the cause",
        source=plan.data.get("source") or "MODULE/VERSION",
        others=other_drivers(node, choice.version, release),
    )


def _plan_kernels(plan: Plan[Data], node: Node, choice: Choice, kernels: list[str]) -> None:
    dkms = node["driver"]["dkms"]
    _name_kernels(plan, node, choice, kernels)
    # DKMS has something for them, and no module that could be loaded.
    plan.data["rebuild"] = [
        one for one in kernels if one in (*dkms["kernels"], *dkms["unfinished"])
    ]
    which = " and ".join(f"kernel {release}" for release in kernels)
    plan.step(steps.BUILD, f"no module for {which}" if kernels else None)


def _name_kernels(plan: Plan[Data], node: Node, choice: Choice, kernels: list[str]) -> None:
    """Name the kernels to build for, and what an admin can do if that fails."""
    plan.data["kernels"] = kernels
    if kernels:
        plan.data["others"] = other_drivers(node, choice.version, kernels[0])


def _gets_headers(plan: Plan[Data], kernel: Kernel) -> bool:
    """Whether this plan installs the headers of a kernel."""
    names = [*plan.data.get("headers", []), *plan.data.get("packages", [])]
    return any(one.startswith(_HEADERS) and one.endswith(f"-{kernel['release']}") for one in names)


def has_failed(node: Node, release: str, *, by_name: bool = False) -> bool:
    """Whether a build for a kernel failed. Without `by_name`, a log of an unknown one counts."""
    dkms = node["driver"]["dkms"]
    return dkms["log"] is not None and dkms["failed"] in (release, *(() if by_name else (None,)))
