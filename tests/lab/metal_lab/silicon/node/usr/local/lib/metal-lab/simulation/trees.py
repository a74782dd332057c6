# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""/sys, /proc, /dev and the driver's view of the GPUs, written from the state.

render() writes all of them from the state, whatever they were before. Every verb changes the state
and then renders.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import mig, parameters
from .device_files import KEPT_AWAY, NAMES, NVIDIA_MAJOR
from .kmod import NVIDIA_MODULES
from .state import Driver, Function, Kernel, Machine, Node

MakeNode = Callable[[str, int, int], None]  # as os.mknod

CHARACTER_DEVICES = {  # module -> its names in /proc/devices
    "nvidia": ("nvidia", "nvidiactl"),
    "nvidia_modeset": ("nvidia-modeset",),
    "nvidia_uvm": ("nvidia-uvm",),
}
MODULE_SIZES = {
    "nvidia": 14381056,
    "nvidia_uvm": 2076672,
    "nvidia_modeset": 1724416,
    "nvidia_drm": 135168,
    "nvidia_peermem": 16384,
    "nouveau": 2424832,
    "vfio_pci": 16384,
    "mlx5_ib": 520192,
    "ib_umad": 40960,
}

# nvml.h: NVML_DEVICE_ARCH_*, NVML_BRAND_*
ARCHITECTURES = {
    "maxwell": 3,
    "pascal": 4,
    "volta": 5,
    "turing": 6,
    "ampere": 7,
    "ada": 8,
    "hopper": 9,
    "blackwell": 10,
}
FABRIC_NOT_STARTED, FABRIC_COMPLETED = 1, 3  # NVML_GPU_FABRIC_STATE_*
BRAND_TESLA, BRAND_NVIDIA = 2, 14

LIBRARY_DIRECTORIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",  # of Debian's own packages
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
)
MARKER = b"metal-lab-machine 1\n"


def render(
    node: Node, machine: Machine, kernel: Kernel, make_node: MakeNode = lambda *_: None
) -> None:
    """make_node takes path, mode and device number. It needs a privilege that tests do not have."""
    render_pci(node, machine, kernel)
    render_modules(node, machine, kernel)
    render_proc(node, machine, kernel)
    render_devices(node, kernel, make_node)
    render_description(node, machine, kernel)
    render_secure_boot(node, machine)


def write(path: Path, content: str) -> None:
    """Write in place, so that bind mounts of the file follow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != content:
        path.write_text(content)


# ---- /sys/bus/pci -----------------------------------------------------------------------------


def render_pci(node: Node, machine: Machine, kernel: Kernel) -> None:
    bus = node.path("/sys/bus/pci")
    devices = bus / "devices"
    devices.mkdir(parents=True, exist_ok=True)
    present = {function["address"]: function for function in machine.functions}
    for gone in {entry.name for entry in devices.iterdir()} - set(present):
        shutil.rmtree(devices / gone)
    for address, function in present.items():
        lost = machine.is_off_bus(address)
        for name, content in pci_files(function).items():
            write(devices / address / name, content)
        # A GPU that fell off the bus reads as ones: `lspci` shows "rev ff".
        config = b"\xff" * 256 if lost else pci_config(function)
        (devices / address / "config").write_bytes(config)
        driver = kernel.bound.get(address)
        if "gpu" not in function:
            driver = function["driver"]
        _bind(bus, address, driver)


def _bind(bus: Path, address: str, driver: str | None) -> None:
    link = bus / "devices" / address / "driver"
    if link.is_symlink():
        if os.readlink(link) == f"../../drivers/{driver}":
            return
        (bus / "devices" / os.readlink(link)[len("../") :] / address).unlink(missing_ok=True)
        link.unlink()
    if driver:
        directory = bus / "drivers" / driver
        directory.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../drivers/{driver}")
        back = directory / address
        if not back.is_symlink():
            back.symlink_to(f"../../devices/{address}")


def pci_files(function: Function) -> dict[str, str]:
    vendor, device, class_ = function["vendor"], function["device"], function["class"]
    subsystem_vendor, subsystem_device = function["subsystem"].split(":")
    modalias = (
        f"pci:v0000{vendor}d0000{device}sv0000{subsystem_vendor}sd0000{subsystem_device}"
        f"bc{class_[:2]}sc{class_[2:]}i00"
    ).upper()
    no_region = " ".join(["0x0000000000000000"] * 3) + "\n"
    vpd = {"vpd": function["vpd"]} if "vpd" in function else {}
    return {
        **vpd,
        "vendor": f"0x{vendor}\n",
        "device": f"0x{device}\n",
        "class": f"0x{class_}00\n",
        "subsystem_vendor": f"0x{subsystem_vendor}\n",
        "subsystem_device": f"0x{subsystem_device}\n",
        "revision": f"0x{function['revision']}\n",
        "numa_node": f"{function['numa_node']}\n",
        "irq": "16\n",
        "enable": "1\n",
        "modalias": f"pci{modalias[3:]}\n",
        "resource": "0x00000000f8000000 0x00000000f8ffffff 0x0000000000040200\n" + no_region * 12,
    }


def pci_config(function: Function) -> bytes:
    """The first 64 bytes identify the device, the rest is empty."""
    vendor, device = int(function["vendor"], 16), int(function["device"], 16)
    class_ = int(function["class"], 16) << 8
    subsystem_vendor, subsystem_device = (int(x, 16) for x in function["subsystem"].split(":"))
    config = bytearray(256)
    struct.pack_into("<HHHH", config, 0x00, vendor, device, 0x0406, 0x0010)
    struct.pack_into("<I", config, 0x08, class_ << 8 | int(function["revision"], 16))
    struct.pack_into("<HH", config, 0x2C, subsystem_vendor, subsystem_device)
    return bytes(config)


# ---- modules: /sys/module, /proc/modules, /proc/devices ---------------------------------------


def render_modules(node: Node, machine: Machine, kernel: Kernel) -> None:
    """/proc files are bind mounts of those in node.state (boot.py)."""
    users = {
        module: [other for other in kernel.modules if module in NVIDIA_MODULES.get(other, ())]
        for module in kernel.modules
    }
    _render_sys_module(node, kernel, users)
    lines = [
        f"{module} {MODULE_SIZES[module]} {len(users[module])} "
        f"{''.join(user + ',' for user in users[module]) or '-'} Live 0x0000000000000000 (OE)\n"
        for module in reversed(kernel.modules)
    ]
    write(node.state / "proc-modules", "".join(lines) + _host_file(node, "proc-modules.host"))

    devices = [
        f"{kernel.uvm_major if module == 'nvidia_uvm' else NVIDIA_MAJOR:3} {name}\n"
        for module in kernel.modules
        for name in CHARACTER_DEVICES.get(module, ())
    ]
    if kernel.driver and mig.is_capable(machine):
        devices.append(f"{mig.CAPS_MAJOR:3} {mig.CAPS}\n")
    host = _host_file(node, "proc-devices.host")
    head, separator, blocks = host.partition("\nBlock devices:")
    write(node.state / "proc-devices", head + "".join(devices) + separator + blocks)


def _host_file(node: Node, name: str) -> str:
    file = node.state / name
    return file.read_text() if file.exists() else ""


def _render_sys_module(node: Node, kernel: Kernel, users: dict[str, list[str]]) -> None:
    tree = node.path("/sys/module")
    for module in MODULE_SIZES:
        directory = tree / module
        if module not in kernel.modules:
            if directory.is_dir() and not directory.is_symlink():
                shutil.rmtree(directory)
            continue
        if directory.is_symlink():  # a module of the host
            directory.unlink()
        write(directory / "initstate", "live\n")
        write(directory / "refcnt", f"{len(users[module])}\n")
        write(directory / "coresize", f"{MODULE_SIZES[module]}\n")
        shutil.rmtree(directory / "holders", ignore_errors=True)
        (directory / "holders").mkdir()
        for user in users[module]:
            (directory / "holders" / user).symlink_to(f"../../{user}")
        if module in NVIDIA_MODULES and kernel.driver:
            write(directory / "version", f"{kernel.driver.version}\n")


# ---- /proc/driver/nvidia ----------------------------------------------------------------------


def render_proc(node: Node, machine: Machine, kernel: Kernel) -> None:
    tree, caps = node.path("/proc/driver/nvidia"), node.path("/proc/driver/nvidia-caps")
    if not kernel.driver:
        shutil.rmtree(tree, ignore_errors=True)
        shutil.rmtree(caps, ignore_errors=True)
        return
    if mig.is_capable(machine):
        write(caps / "mig-minors", mig.minors_text())
    write(tree / "version", version_text(kernel.driver))
    write(tree / "params", parameters.text(kernel.parameters))
    gpus = tree / "gpus"
    shutil.rmtree(gpus, ignore_errors=True)
    for gpu in machine.gpus:
        if gpu["address"] in kernel.minors:
            text = information_text(gpu, kernel.driver, kernel.minors[gpu["address"]])
            write(gpus / gpu["address"] / "information", text)


def version_text(driver: Driver) -> str:
    built = "Wed Nov  4 12:00:00 UTC 2026"
    if driver.flavour == "open":
        name = f"NVIDIA UNIX Open Kernel Module for x86_64  {driver.version}  Release Build"
    else:
        name = f"NVIDIA UNIX x86_64 Kernel Module  {driver.version}"
    return f"NVRM version: {name}  {built}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"


def information_text(gpu: Function, driver: Driver, minor: int) -> str:
    has_gsp = driver.flavour == "open"
    rows = {
        "Model": gpu["gpu"]["name"],
        "IRQ": "16",
        "GPU UUID": gpu["gpu"]["uuid"],
        "Video BIOS": "??.??.??.??.??",
        "Bus Type": "PCIe",
        "DMA Size": "47 bits",
        "DMA Mask": "0x7fffffffffff",
        "Bus Location": gpu["address"],
        "Device Minor": str(minor),
        "GPU Firmware": driver.version if has_gsp else "N/A",
        "GPU Excluded": "No",
    }
    return "".join(f"{key + ':':<16} {value}\n" for key, value in rows.items())


# ---- /dev -------------------------------------------------------------------------------------


def render_devices(node: Node, kernel: Kernel, make_node: MakeNode) -> None:
    """Write the files that somebody creates now.

    None goes with its module or its GPU, as with real ones: they stay until the next boot.
    """
    directory = node.path("/dev")
    directory.mkdir(exist_ok=True)
    for name, (major, minor) in kernel.device_files.items():
        path = directory / name
        if name not in kernel.missing_files and not path.exists():
            make_node(str(path), stat.S_IFCHR | 0o666, os.makedev(major, minor))
    kernel.device_files = {}
    _render_kept_away(node, kernel)


def _render_kept_away(node: Node, kernel: Kernel) -> None:
    directory = node.state / KEPT_AWAY
    shutil.rmtree(directory, ignore_errors=True)
    for name in kernel.missing_files:
        write(directory / name, "")


def remove_devices(node: Node) -> None:
    """Remove all files of the driver: a boot starts without any."""
    for file in node.path("/dev").glob("nvidia*"):
        if re.fullmatch(NAMES, file.name):
            shutil.rmtree(file) if file.is_dir() else file.unlink()


def make_device_node(path: str, mode: int, device: int) -> None:
    os.mknod(path, mode, device)
    os.chmod(path, stat.S_IMODE(mode))  # mknod obeys the umask


# ---- the driver's view, for NVML and CUDA -----------------------------------------------------


def description_files(node: Node) -> list[Path]:
    """libnvidia-sandboxutils.so.<version> of every driver userland that is installed."""
    return [
        file
        for directory in LIBRARY_DIRECTORIES
        for file in sorted(node.path(directory).glob("libnvidia-sandboxutils.so.*.*"))
        if not file.is_symlink()
    ]


def library_links(node: Node, name: str) -> list[Path]:
    """The paths where the loader finds a library of the driver."""
    links = [node.path(directory) / name for directory in LIBRARY_DIRECTORIES]
    return [link for link in links if link.is_symlink()]


def render_description(node: Node, machine: Machine, kernel: Kernel) -> None:
    """Write in place, because containers mount these files."""
    text = description(machine, kernel)
    for file in description_files(node):
        content = file.read_bytes()
        head = content.split(MARKER)[0]
        if content != head + text:
            with file.open("r+b") as stream:
                stream.seek(len(head))
                stream.write(text)
                stream.truncate()


def description(machine: Machine, kernel: Kernel) -> bytes:
    """The machine as nvml/machine.c reads it. Empty if no driver is loaded."""
    if not kernel.driver:
        return b""
    gpus = [
        _gpu_line(gpu, kernel, machine)
        + "".join(f" {name}={n}" for name, n in machine.gpu_health(gpu["address"]).items())
        for gpu in machine.gpus
        if gpu["address"] in kernel.minors
    ]
    words = [fault["word"] for fault in machine.faults("nvidia-smi")]
    smi = [f"nvidia_smi {' '.join(words)}"] if words else []
    uvm = [f"uvm {kernel.uvm_major}"] if "nvidia_uvm" in kernel.modules else []
    parts = mig.lines(machine, kernel)
    version = f"driver_version {kernel.driver.version}"
    text = "\n".join([version, *uvm, *smi, *gpus, *parts, "end", ""])
    return MARKER + text.encode()


def _gpu_line(function: Function, kernel: Kernel, machine: Machine) -> str:
    gpu: dict[str, Any] = function["gpu"]
    address = function["address"]
    values = {
        "minor": kernel.minors[address],
        "address": address,
        "uuid": gpu["uuid"],
        "serial": gpu["serial"],
        "name": f'"{gpu["name"]}"',
        "memory_mib": gpu["memory_mib"],
        "cc": gpu["compute_capability"],
        "arch": ARCHITECTURES[gpu["architecture"]],
        "brand": BRAND_TESLA if gpu["name"].startswith("Tesla") else BRAND_NVIDIA,
        "device": function["device"],
        "subsystem": function["subsystem"],
        "class": function["class"],
        "numa": function["numa_node"],
        "power_w": gpu["power_w"],
        "mig": int(gpu["mig"]),
        "mig_mode": int(mig.is_on(machine, kernel, address)),
        "persistence": int(address in kernel.persistent),
        "state": machine.gpu_state(address),
    }
    if machine.nvswitches or machine.management_ports:
        values["trained"] = int(kernel.fabric)
        if gpu["architecture"] in ("hopper", "blackwell"):  # A100 have no such state
            values["fabric"] = FABRIC_COMPLETED if kernel.fabric else FABRIC_NOT_STARTED
    if broken := machine.fault_of("cuda-broken", address):
        values["cuda"] = broken["number"]
    if machine.has_fault("cuda-wrong", address):
        values["wrong"] = 1
    if machine.has_fault("cuda-hang", address):
        values["hang"] = 1
    if peer := machine.fault_of("peer", address):
        values["peer"] = peer["word"]
    return "gpu " + " ".join(f"{key}={value}" for key, value in values.items())


def read_persistence(node: Node) -> list[str]:
    """Addresses in persistence mode: nvidia-smi -pm changes the description, not our state."""
    pattern = re.compile(rb"^gpu .*address=(\S+) .*persistence=1 ", re.MULTILINE)
    found = {
        address.decode()
        for file in description_files(node)
        for address in pattern.findall(file.read_bytes())
    }
    return sorted(found)


# ---- EFI --------------------------------------------------------------------------------------

SECURE_BOOT_VARIABLE = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def render_secure_boot(node: Node, machine: Machine) -> None:
    efi = node.path("/sys/firmware/efi")
    if machine.secure_boot is None:
        shutil.rmtree(efi, ignore_errors=True)
        return
    write(efi / "fw_platform_size", "64\n")
    attributes = b"\x06\x00\x00\x00"
    (efi / "efivars").mkdir(exist_ok=True)
    (efi / "efivars" / SECURE_BOOT_VARIABLE).write_bytes(attributes + bytes([machine.secure_boot]))
