# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can break. A fault changes the machine (and outlives reboots) or its running kernel."""

from __future__ import annotations

from collections.abc import Callable

from . import boot, kmod
from .state import Kernel, Machine, Node

Fault = Callable[[Node, Machine, Kernel, list[str]], None]


class FaultError(Exception):
    """Why a fault cannot be provoked."""


def _gpu(machine: Machine, arguments: list[str]) -> str:
    """Address of the GPU that the first argument counts, in bus order; the first without one."""
    number = int(arguments[0]) if arguments else 0
    if not 0 <= number < len(machine.all_gpus):
        raise FaultError(f"GPU {number} does not exist, only 0 to {len(machine.all_gpus) - 1}")
    return str(machine.all_gpus[number]["address"])


def lose_gpu(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it is gone from the PCI bus."""
    address = _gpu(machine, arguments)
    machine.add_fault("lose-gpu", address=address)
    kernel.forget(address)


def gpu_lost(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it has fallen off the bus while in use; NVML calls it lost."""
    machine.add_fault("gpu-lost", address=_gpu(machine, arguments))


def xid(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [XID]]: the driver reports a critical error of it, 79 if not said otherwise."""
    number = int(arguments[1]) if len(arguments) > 1 else 79
    machine.add_fault("xid", address=_gpu(machine, arguments), xid=number)


def nouveau(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """The kernel has nouveau, and it has all GPUs."""
    machine.add_fault("nouveau")
    kmod.evict_nvidia(kernel)
    kmod.load(node, machine, kernel, "nouveau")


def secure_boot(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """Secure Boot is on: the kernel takes no module that is not signed."""
    machine.add_fault("secure-boot")
    kmod.evict_nvidia(kernel)


def library_mismatch(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[VERSION]: the loaded module is of another version than the libraries; a reboot heals it."""
    if not kernel.driver:
        raise FaultError("the nvidia module is not loaded")
    kernel.driver.version = arguments[0] if arguments else _older(kernel.driver.version)


def _older(version: str) -> str:
    """580.178.04 -> 580.178.03"""
    head, _dot, last = version.rpartition(".")
    return f"{head}.{max(int(last) - 1, 0):0{len(last)}}"


def vfio(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it is reserved for virtual machines, bound to vfio-pci."""
    address = _gpu(machine, arguments)
    machine.add_fault("vfio", address=address)
    boot.bind_vfio(machine, kernel, address)


def remove_all_gpus(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """There is no GPU in the machine."""
    machine.add_fault("remove-all-gpus")
    kmod.evict_nvidia(kernel)
    for gpu in machine.all_gpus:
        kernel.forget(gpu["address"])


def os_unknown(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """os-release names an operating system that nobody knows."""
    machine.add_fault("os-unknown")


def restore(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """All faults are gone, and the drivers that they threw out are back."""
    machine.content["faults"] = []
    modules = [module for module in kernel.modules if module in kmod.NVIDIA_MODULES]
    modules = [*kernel.evicted, *modules]
    kernel.modules, kernel.driver, kernel.evicted = [], None, []
    kernel.bound, kernel.minors = {}, {}
    boot.coldplug(node, machine, kernel)
    for module in dict.fromkeys(modules):
        boot.try_to_load(node, machine, kernel, module)


FAULTS: dict[str, Fault] = {
    "lose-gpu": lose_gpu,
    "gpu-lost": gpu_lost,
    "xid": xid,
    "nouveau": nouveau,
    "secure-boot": secure_boot,
    "library-mismatch": library_mismatch,
    "vfio": vfio,
    "remove-all-gpus": remove_all_gpus,
    "os-unknown": os_unknown,
    "restore": restore,
}
