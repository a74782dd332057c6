# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which functions on the PCI bus are GPUs of NVIDIA, and what connects them? No function does I/O.

Source: https://docs.kernel.org/PCI/sysfs-pci.html
Source: NVIDIA/open-gpu-kernel-modules 595.45.04, the ids that the driver binds as NVSwitches
"""

from __future__ import annotations

import re
from typing import TypedDict

NVIDIA, MELLANOX = "10de", "15b3"
# NVIDIA's sound functions, USB controllers, bridges and NVSwitches share the vendor.
GPU_CLASSES = ("0300", "0302")  # VGA controller, 3D controller
_BRIDGE, _INFINIBAND = "0680", "0207"
# NVSwitches of A100 and of H100 and H200. Other bridges of NVIDIA, such as the root ports of Grace,
# have another class. Those of V100 have ids that are not recorded.
_NVSWITCHES = (0x1AE8, *range(0x1AF0, 0x1B00), *range(0x22A0, 0x22A8))
# B200 and B300 have their NVSwitches behind ports of ConnectX-7. These have this in their vital
# product data (VPD), and the network cards of the same model do not.
MANAGEMENT_PORT = b"SMDL=SW_MNG"


# Drivers of the kernel that are blocked like nouveau, by the names that the bus shows, and their
# modules. Rust's driver names itself otherwise than its module.
# Source: Linux, drivers/gpu/nova-core/nova_core.rs; beclab/Olares#3963, 2026-08-17
RIVALS = {"nouveau": "nouveau", "NovaCore": "nova_core", "nova_core": "nova_core"}
# They keep GPUs for virtual machines.
_RESERVING = re.compile(r".*vfio.*|pci-stub|(?:xen-)?pciback")


# A function on the PCI bus; the ids are hexadecimal without "0x". "class" is a reserved word.
GpuRow = TypedDict(
    "GpuRow",
    {
        "address": str,  # in the form of sysfs, such as `0000:03:00.0`
        "vendor": str,
        "device": str,
        "class": str,  # class id, such as `0302`
        "driver": "str | None",  # the kernel driver that is bound to it
        "numa_node": "int | None",
    },
)


def normalise_address(address: str) -> str:
    """Write an address as sysfs does; nvidia-smi has "00000000:03:00.0". Raises ValueError."""
    domain, bus, slot = address.split(":")
    device, function = slot.split(".")
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{int(function, 16):x}"


def normalise_place(address: str) -> str | None:
    """Write an address as sysfs does. The driver leaves out the function, and once the domain."""
    place, _dot, function = address.partition(".")
    domain = "0:" if place.count(":") == 1 else ""
    try:
        return normalise_address(f"{domain}{place}.{function or 0}")
    except ValueError:
        return None


def is_reserved(device: GpuRow) -> bool:
    """Whether a driver keeps a GPU for virtual machines."""
    return _RESERVING.fullmatch(device["driver"] or "") is not None


def rival(device: GpuRow) -> str | None:
    """Return the module that drives a GPU instead of NVIDIA's, as it can be blocked."""
    return RIVALS.get(device["driver"] or "")


def is_held(device: GpuRow) -> bool:
    """Whether another driver than NVIDIA's has a GPU."""
    return device["driver"] not in (None, "nvidia")


def is_gpu(device: GpuRow) -> bool:
    return device["vendor"] == NVIDIA and device["class"] in GPU_CLASSES


def is_nvswitch(device: GpuRow) -> bool:
    is_bridge = device["vendor"] == NVIDIA and device["class"] == _BRIDGE
    return is_bridge and int(device["device"], 16) in _NVSWITCHES


def is_infiniband(device: GpuRow) -> bool:
    """Whether a function may be a port to NVSwitches. Only its VPD shows whether it is one."""
    return device["vendor"] == MELLANOX and device["class"] == _INFINIBAND
