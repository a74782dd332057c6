# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults. A fault changes the machine (and outlives reboots) or its running kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import boot, cards, device_files, gpu_health, kernel_log, keys, kmod, mig, trees
from .errors import FaultError
from .errors import choose_gpu as _gpu
from .state import UVM_MAJOR, Kernel, Machine, Node

LAUNCH_FAILED = 719  # of CUDA

Fault = Callable[[Node, Machine, Kernel, list[str]], None]


def _log_xid(machine: Machine, kernel: Kernel, address: str, number: int) -> None:
    (gpu,) = (one for one in machine.all_gpus if one["address"] == address)
    kernel_log.add_xid(kernel, gpu, number)


def lose_gpu(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it is missing on the PCI bus."""
    address = _gpu(machine, arguments)
    machine.add_fault("lose-gpu", address=address)
    kernel.forget(address)


def lose_nvswitch(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[NUMBER]: an NVSwitch is missing on the PCI bus; Fabric Manager notices when it starts."""
    number = int(arguments[0]) if arguments else 0
    switches = machine.nvswitches
    if not 0 <= number < len(switches):
        raise FaultError(f"NVSwitch {number} does not exist, the machine has {len(switches)}")
    machine.add_fault("lose-nvswitch", address=switches[number]["address"])


def fabric_reset(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """The GPUs left the fabric, as after a reset; only a start of Fabric Manager brings it back."""
    kernel.fabric = False


def gpu_lost(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it fell off the bus; programs get no new handle of it."""
    address = _gpu(machine, arguments)
    machine.add_fault("gpu-lost", address=address)
    _log_xid(machine, kernel, address, kernel_log.OFF_THE_BUS)


def gpu_lost_in_use(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it fell off the bus, seen by a program with an open handle: in the cells."""
    address = _gpu(machine, arguments)
    machine.add_fault("gpu-lost-in-use", address=address)
    _log_xid(machine, kernel, address, kernel_log.OFF_THE_BUS)


def gpu_unknown_error(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: programs get no handle of it: "Unknown Error"."""
    machine.add_fault("gpu-unknown-error", address=_gpu(machine, arguments))


def gpu_needs_reset(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: programs get no handle of it: "A GPU reset must occur"."""
    machine.add_fault("gpu-needs-reset", address=_gpu(machine, arguments))


def gpu_hidden(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: no handle, "Not Found"; nvidia-smi omits its row and exits with 0."""
    machine.add_fault("gpu-hidden", address=_gpu(machine, arguments))


def inforom(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: its infoROM is corrupted; the GPU works."""
    machine.add_fault("inforom", address=_gpu(machine, arguments))


def smi_rows(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """With a GPU without a handle, nvidia-smi prints the rows of the others, like some branches."""
    machine.add_fault("nvidia-smi", word="rows")


def smi_exit(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[CODE]: nvidia-smi prints everything and exits with CODE, 14 by default."""
    code = int(arguments[0]) if arguments else 14
    if not 0 < code < 256:
        raise FaultError(f"{code} is not an exit code of a failure (1 to 255)")
    machine.add_fault("nvidia-smi", word=f"exit={code}")


def smi_hang(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """nvidia-smi hangs."""
    machine.add_fault("nvidia-smi", word="hang")


def smi_garbage(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """nvidia-smi prints bytes that are not text, and exits with 0."""
    machine.add_fault("nvidia-smi", word="garbage")


def no_nvidiactl(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """/dev/nvidiactl is missing, and NVML cannot create it; a reboot ends that."""
    _take_device(node, kernel, "nvidiactl")


def no_uvm_file(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """/dev/nvidia-uvm is missing, its module is loaded; nvidia-modprobe creates it again."""
    _take_device(node, kernel, "nvidia-uvm")


def uvm_number(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """nvidia_uvm was loaded again, and got another major number; its files in /dev are outdated."""
    if "nvidia_uvm" not in kernel.modules:
        raise FaultError("nvidia_uvm is not loaded")
    kernel.uvm_major -= 1


def _take_device(node: Node, kernel: Kernel, name: str) -> None:
    file = node.path(f"/dev/{name}")
    if not file.exists():
        raise FaultError(f"/dev/{name} does not exist")
    file.unlink()
    kernel.missing_files.append(name)


def no_uvm(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """The module nvidia_uvm is not loaded; CUDA cannot work."""
    if "nvidia_uvm" not in kernel.modules:
        raise FaultError("nvidia_uvm is not loaded")
    kernel.modules.remove("nvidia_uvm")
    kernel.evicted.append("nvidia_uvm")


def no_nvml(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """libnvidia-ml.so.1 is missing."""
    for link in trees.library_links(node, "libnvidia-ml.so.1"):
        machine.add_fault("no-nvml", path=str(link), target=str(link.readlink()))
        link.unlink()


def xid(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [XID]]: the driver reports an Xid error of it and logs it, 79 by default."""
    number = int(arguments[1]) if len(arguments) > 1 else kernel_log.OFF_THE_BUS
    address = _gpu(machine, arguments)
    machine.add_fault("xid", address=address, xid=number)
    _log_xid(machine, kernel, address, number)


def cuda_broken(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU [NUMBER]]: computing on it fails with this error of CUDA, 719 by default."""
    number = int(arguments[1]) if len(arguments) > 1 else LAUNCH_FAILED
    machine.set_fault("cuda-broken", _gpu(machine, arguments), number=number)


def cuda_wrong(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it computes wrong results."""
    machine.set_fault("cuda-wrong", _gpu(machine, arguments))


def cuda_hang(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: what it computes does not end."""
    machine.set_fault("cuda-hang", _gpu(machine, arguments))


def p2p_broken(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: what is copied between it and other GPUs arrives with wrong values."""
    machine.set_fault("peer", _gpu(machine, arguments), word="broken")


def no_peer_access(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it and the other GPUs cannot reach each other's memory; without GPU: no two can."""
    every = [one["address"] for one in machine.all_gpus]
    for address in [_gpu(machine, arguments)] if arguments else every:
        machine.set_fault("peer", address, word="none")


def nouveau(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """The kernel has nouveau, and nouveau drives all GPUs."""
    machine.add_fault("nouveau")
    kmod.evict_nvidia(kernel)
    kmod.load(node, machine, kernel, "nouveau")


def secure_boot(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """Secure Boot is on: the kernel loads only signed modules."""
    machine.add_fault("secure-boot")
    kmod.evict_nvidia(kernel)


def key_enrolled(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """DKMS has a key that the firmware trusts, so Secure Boot lets its modules load."""
    machine.keys("enrolled").append(keys.of_dkms(node))


def keys_confirmed(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """Somebody has confirmed the keys of `mokutil --import` at the console."""
    requested = machine.keys("requested")
    if not requested:
        raise FaultError("no key was imported with mokutil")
    machine.keys("enrolled").extend(requested)
    requested.clear()


def boot_kernel(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """RELEASE: boots start this kernel instead of the newest; only if kernels are simulated."""
    if not arguments or not machine.content.get("kernel"):
        raise FaultError("needs a release, and a node with a simulated kernel")
    machine.content["boot_kernel"] = arguments[0]


def library_mismatch(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[VERSION]: the versions of loaded module and libraries differ; a reboot fixes it."""
    if not kernel.driver:
        raise FaultError("the nvidia module is not loaded")
    kernel.driver.version = arguments[0] if arguments else _older(kernel.driver.version)


def _older(version: str) -> str:
    """580.178.04 -> 580.178.03"""
    head, _dot, last = version.rpartition(".")
    return f"{head}.{max(int(last) - 1, 0):0{len(last)}}"


def vfio(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """[GPU]: it is bound to vfio-pci, for virtual machines."""
    address = _gpu(machine, arguments)
    machine.add_fault("vfio", address=address)
    boot.bind_vfio(machine, kernel, address)


def remove_all_gpus(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """The machine has no GPU."""
    machine.add_fault("remove-all-gpus")
    kmod.evict_nvidia(kernel)
    for gpu in machine.all_gpus:
        kernel.forget(gpu["address"])


def os_unknown(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """os-release names an unknown operating system."""
    machine.add_fault("os-unknown")


def restore(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> None:
    """Undo all hardware faults, and load the drivers that they removed."""
    for link in machine.faults("no-nvml"):
        path = Path(link["path"])
        if not path.is_symlink():  # a new installation of the library creates it
            path.symlink_to(link["target"])
    machine.content["faults"] = []
    machine.content.pop("keys", None)
    modules = [module for module in kernel.modules if module in kmod.NVIDIA_MODULES]
    modules = [*kernel.evicted, *modules]
    kernel.modules, kernel.driver, kernel.evicted = [], None, []
    kernel.bound, kernel.minors, kernel.instances = {}, {}, {}
    kernel.device_files, kernel.missing_files = {}, []
    kernel.uvm_major = UVM_MAJOR
    boot.coldplug(node, machine, kernel)
    for module in dict.fromkeys(modules):
        boot.try_to_load(node, machine, kernel, module)
    # Whoever had created the files.
    device_files.create(kernel, device_files.possible(kernel))


FAULTS: dict[str, Fault] = {
    "lose-gpu": lose_gpu,
    "lose-nvswitch": lose_nvswitch,
    "fabric-reset": fabric_reset,
    "gpu-lost": gpu_lost,
    "gpu-lost-in-use": gpu_lost_in_use,
    "gpu-unknown-error": gpu_unknown_error,
    "gpu-needs-reset": gpu_needs_reset,
    "gpu-hidden": gpu_hidden,
    "xid": xid,
    "cuda-broken": cuda_broken,
    "cuda-hang": cuda_hang,
    "cuda-wrong": cuda_wrong,
    "no-peer-access": no_peer_access,
    "p2p-broken": p2p_broken,
    "inforom": inforom,
    **gpu_health.FAULTS,
    "mig": mig.split,
    "mig-off": mig.whole,
    "swap-gpu": cards.swap,
    "smi-rows": smi_rows,
    "smi-exit": smi_exit,
    "smi-hang": smi_hang,
    "smi-garbage": smi_garbage,
    "no-nvidiactl": no_nvidiactl,
    "no-nvml": no_nvml,
    "no-uvm": no_uvm,
    "no-uvm-file": no_uvm_file,
    "uvm-number": uvm_number,
    "nouveau": nouveau,
    "secure-boot": secure_boot,
    "key-enrolled": key_enrolled,
    "boot-kernel": boot_kernel,
    "keys-confirmed": keys_confirmed,
    "library-mismatch": library_mismatch,
    "vfio": vfio,
    "remove-all-gpus": remove_all_gpus,
    "os-unknown": os_unknown,
    "restore": restore,
}
