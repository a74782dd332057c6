# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""In which state is the driver of a node? Why does it not work, and what does it lack?"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import Driver
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read import pci
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import steps
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import Data
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, Plan

MODULES = ("nvidia", "nvidia_uvm")
# The files that the role writes.
BLACKLIST_FILE: File = {
    "path": own_files.NOUVEAU_BLACKLIST,
    "block": "blacklist nouveau\nblacklist nova_core\nblacklist nova_drm\n"
    "options nouveau modeset=0\n",
}
# Rebuild the initial ramdisks of all kernels.
_REBUILD = {
    "update-initramfs": ["-u", "-k", "all"],
    "dracut": ["--regenerate-all", "--force"],
}
# The driver answers and reports a broken GPU. Another driver would not fix it.
_BROKEN_GPU = ("gpu_lost", "gpu_error", "inforom_corrupted", "insufficient_power")


def works(node: Node) -> bool:
    """Whether a driver answers, whatever its source.

    A driver that shows one GPU works, whatever it reports about the others.
    """
    nvml = node["nvml"]
    return (
        nvml["failure"] is None
        or nvml["failure"]["code"] in _BROKEN_GPU
        or any(gpu["error"] is None for gpu in nvml["devices"])
    )


def is_ours(node: Node) -> bool:
    """Whether this role installed the packages that contain the driver."""
    return bool(driver_packages.carriers(dict.fromkeys(steps.OURS.of_role(node), "")))


def installed_version(node: Node) -> str | None:
    """Return the version of the driver itself, regardless of packages."""
    driver = node["driver"]
    return node["nvml"]["driver_version"] or driver["module_version"] or driver["disk_version"]


def has_module(node: Node) -> bool:
    """Whether the running kernel has a module nvidia that can be read."""
    return bool(node["driver"]["module_files"] and node["driver"]["disk_version"])


def has_usable_modules(node: Node) -> bool:
    """Whether it has modules that can be read: nvidia, and nvidia_uvm for CUDA."""
    return has_module(node) and node["driver"]["uvm_readable"] is not False


def version(node: Node) -> str:
    versions = driver_packages.carriers(node["driver"]["packages"]).values()
    return installed_version(node) or ", ".join(sorted(set(versions))) or "of unknown version"


def error(node: Node) -> str:
    """Return why the driver does not work, as nvidia-smi and DKMS report it."""
    failure = node["nvml"]["failure"]
    error = (failure and failure["message"]) or "nvidia-smi reported no reason"
    dkms = node["driver"]["dkms"]
    if dkms["built"] is not False:
        return error
    words = f": {dkms['error']}" if dkms["error"] else ""
    log = f" (build log: {dkms['log']}{words})" if dkms["log"] else ""
    return f"{error}; DKMS built no module for kernel {node['kernel']['release']}{log}"


def ramdisk_reason(driver: Driver) -> str | None:
    """Return why the initramfs must be rebuilt.

    It could load nouveau before the blacklist, or nvidia without its parameters.
    """
    if driver["initramfs_outdated"] is None:
        return None
    if driver["unblocked"]:
        return "it must contain the blacklist"
    return (
        "a file in modprobe.d is newer than the initramfs" if driver["initramfs_outdated"] else None
    )


def plan_blacklist(plan: Plan[Data], driver: Driver) -> None:
    """Plan that the kernel's own drivers for GPUs are blocked, also in the initramfs."""
    lacking = " and ".join(driver["unblocked"])
    reason = f"no file in modprobe.d blacklists {lacking}" if lacking else None
    plan.step(steps.BLACKLIST, reason)
    if not plan.has_step(steps.INITRAMFS):
        plan_ramdisk(plan, driver, ramdisk_reason(driver))


def plan_ramdisk(plan: Plan[Data], driver: Driver, reason: str | None) -> None:
    """Plan that the initial ramdisks are rebuilt, or refuse a node that cannot do that."""
    if reason and not ramdisk_command(driver):
        plan.refuse("INITRAMFS_PROGRAM_MISSING", reason=reason)
    space = driver["ramdisk_space"]
    # dracut deletes a ramdisk that it could not write.
    if reason and space and space["free"] < space["needed"]:
        free, needed = (f"{size / 2**20:.0f} MiB" for size in (space["free"], space["needed"]))
        plan.refuse("BOOT_FULL", reason=reason, free=free, needed=needed)
    plan.step(steps.INITRAMFS, reason)


def ramdisk_command(driver: Driver) -> list[str] | None:
    """Return the command that rebuilds the initial ramdisks of all kernels."""
    path = driver["initramfs_program"]
    return [path, *_REBUILD[path.rpartition("/")[2]]] if path else None


def modules_load_file(modules: tuple[str, ...]) -> File:
    return {"path": own_files.MODULES_LOAD, "block": "".join(f"{name}\n" for name in modules)}


def boot_reason(node: Node, modules: tuple[str, ...]) -> str | None:
    names = [name for name in modules if name not in node["driver"]["modules_load"]]
    others = [name for name in node["driver"]["own_modules"] if name not in modules]
    if names:
        return f"no file in modules-load.d names {' or '.join(names)}"
    return f"the variables do not ask for {', '.join(others)}" if others else None


def unloaded_reason(node: Node, modules: tuple[str, ...]) -> str | None:
    names = [name for name in modules if name not in node["kernel"]["modules"]]
    return f"{' and '.join(names)} not loaded" if names else None


def rival(node: Node) -> str | None:
    """Return the module of the kernel that drives GPUs in the place of NVIDIA's."""
    if "nouveau" in node["kernel"]["modules"]:
        return "nouveau"
    return next(filter(None, map(pci.rival, node["pci"])), None)


def reboot_reason(node: Node, choice: Choice | None) -> str | None:
    """Return why the modules cannot be loaded without a reboot."""
    if module := rival(node):
        return f"{module} is loaded"
    loaded = node["driver"]["module_version"]
    if choice and loaded and not choice.fits(loaded):
        return f"the module of driver {loaded} is loaded, not {choice.driver}"
    return None


def persistence_reason(node: Node) -> str | None:
    daemon = node["driver"]["persistenced"]
    if not daemon["installed"]:
        return "nvidia-persistenced is not installed"
    lacking = [state for state in ("enabled", "active") if not daemon[state]]
    return f"nvidia-persistenced is not {' and not '.join(lacking)}" if lacking else None
