# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which functions on the PCI bus are GPUs of NVIDIA? No function does I/O.

Source: https://docs.kernel.org/PCI/sysfs-pci.html
"""

from __future__ import annotations

from typing import TypedDict

NVIDIA = "10de"
# NVIDIA's sound functions, USB controllers, bridges and NVSwitches share the vendor.
GPU_CLASSES = ("0300", "0302")  # VGA controller, 3D controller


# A function on the PCI bus; the ids are hexadecimal without "0x". "class" is a reserved word.
GpuRow = TypedDict(
    "GpuRow",
    {
        "address": str,  # as sysfs writes it, such as "0000:03:00.0"
        "vendor": str,
        "device": str,
        "class": str,  # base class and subclass, such as "0302"
        "driver": "str | None",  # name of the bound driver
        "numa_node": "int | None",
    },
)


def normalise_address(address: str) -> str:
    """Write an address as sysfs does; nvidia-smi has "00000000:03:00.0". Raises ValueError."""
    domain, bus, slot = address.split(":")
    device, function = slot.split(".")
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{int(function, 16):x}"


def is_gpu(device: GpuRow) -> bool:
    return device["vendor"] == NVIDIA and device["class"] in GPU_CLASSES
