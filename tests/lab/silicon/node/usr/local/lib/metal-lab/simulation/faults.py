# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can break. A fault changes the machine (and outlives reboots) or its running kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import boot, kmod, trees
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
    """[GPU]: it has fallen off the bus; who asks for it from now on gets no handle of it."""
    machine.add_fault("gpu-lost", address=_gpu(machine, arguments))


def gpu_lost_in_use(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: the same, as a program sees it that has its handle already: in the cells."""
    machine.add_fault("gpu-lost-in-use", address=_gpu(machine, arguments))


def gpu_unknown_error(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: no handle of it, "Unknown Error"."""
    machine.add_fault("gpu-unknown-error", address=_gpu(machine, arguments))


def gpu_needs_reset(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: no handle of it, "A GPU reset must occur"."""
    machine.add_fault("gpu-needs-reset", address=_gpu(machine, arguments))


def gpu_hidden(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: no handle of it, "Not Found": its row is missing, and nvidia-smi exits with 0."""
    machine.add_fault("gpu-hidden", address=_gpu(machine, arguments))


def inforom(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: its infoROM is corrupted; it works."""
    machine.add_fault("inforom", address=_gpu(machine, arguments))


def smi_rows(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """Beside a GPU without a handle, nvidia-smi prints the others' rows, as some branches do."""
    machine.add_fault("nvidia-smi", word="rows")


def smi_exit(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[CODE]: nvidia-smi prints all that it should and exits with the code, 14 by default."""
    code = int(arguments[0]) if arguments else 14
    if not 0 < code < 256:
        raise FaultError(f"{code} is no exit code of a failure")
    machine.add_fault("nvidia-smi", word=f"exit={code}")


def smi_hang(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """nvidia-smi does not end."""
    machine.add_fault("nvidia-smi", word="hang")


def smi_garbage(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """nvidia-smi prints bytes that are no text, and exits with 0."""
    machine.add_fault("nvidia-smi", word="garbage")


def no_nvidiactl(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """/dev/nvidiactl is gone; a reboot heals it."""
    _take_device(node, kernel, "nvidiactl")


def no_uvm_file(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """/dev/nvidia-uvm is gone, its module is there; a reboot heals it."""
    _take_device(node, kernel, "nvidia-uvm")


def _take_device(node: Node, kernel: Kernel, name: str) -> None:
    file = node.path(f"/dev/{name}")
    if not file.exists():
        raise FaultError(f"/dev/{name} is not there")
    file.unlink()
    kernel.missing_files.append(name)


def no_uvm(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """The module nvidia_uvm is not loaded; CUDA cannot work."""
    if "nvidia_uvm" not in kernel.modules:
        raise FaultError("nvidia_uvm is not loaded")
    kernel.modules.remove("nvidia_uvm")
    kernel.evicted.append("nvidia_uvm")


def no_nvml(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """libnvidia-ml.so.1 is gone."""
    for link in trees.library_links(node, "libnvidia-ml.so.1"):
        machine.add_fault("no-nvml", path=str(link), target=str(link.readlink()))
        link.unlink()


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
    for link in machine.faults("no-nvml"):
        path = Path(link["path"])
        if not path.is_symlink():  # whoever has installed the library again has made it
            path.symlink_to(link["target"])
    machine.content["faults"] = []
    modules = [module for module in kernel.modules if module in kmod.NVIDIA_MODULES]
    modules = [*kernel.evicted, *modules]
    kernel.modules, kernel.driver, kernel.evicted = [], None, []
    kernel.bound, kernel.minors, kernel.missing_files = {}, {}, []
    boot.coldplug(node, machine, kernel)
    for module in dict.fromkeys(modules):
        boot.try_to_load(node, machine, kernel, module)


FAULTS: dict[str, Fault] = {
    "lose-gpu": lose_gpu,
    "gpu-lost": gpu_lost,
    "gpu-lost-in-use": gpu_lost_in_use,
    "gpu-unknown-error": gpu_unknown_error,
    "gpu-needs-reset": gpu_needs_reset,
    "gpu-hidden": gpu_hidden,
    "xid": xid,
    "inforom": inforom,
    "smi-rows": smi_rows,
    "smi-exit": smi_exit,
    "smi-hang": smi_hang,
    "smi-garbage": smi_garbage,
    "no-nvidiactl": no_nvidiactl,
    "no-nvml": no_nvml,
    "no-uvm": no_uvm,
    "no-uvm-file": no_uvm_file,
    "nouveau": nouveau,
    "secure-boot": secure_boot,
    "library-mismatch": library_mismatch,
    "vfio": vfio,
    "remove-all-gpus": remove_all_gpus,
    "os-unknown": os_unknown,
    "restore": restore,
}
