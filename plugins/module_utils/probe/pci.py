# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the NVIDIA GPUs and NVSwitches on the PCI bus, whichever driver they are bound to.

Only `read_bus` and `read_management_ports` do I/O; they take the root directory as an argument.

Source: https://docs.kernel.org/PCI/sysfs-pci.html
Source: Linux, Documentation/ABI/testing/sysfs-bus-pci, physfn, vpd
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read.pci import (
    MANAGEMENT_PORT,
    MELLANOX,
    NVIDIA,
    GpuRow,
    is_gpu,
    is_infiniband,
    is_nvswitch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

DEVICES = Path("sys/bus/pci/devices")


class Bus(NamedTuple):
    """What is on the bus, each list sorted by address."""

    gpus: list[GpuRow]
    nvswitches: list[GpuRow]
    infiniband: list[str]  # addresses of adapters that may lead to NVSwitches


def read_bus(root: Path) -> Bus:
    """Read the bus. A device that disappears meanwhile is left out.

    Virtual functions (SR-IOV) of GPUs are left out if their physical function is on the bus,
    because they are parts of it. In a virtual machine only the virtual function is visible, and
    counts as a GPU.
    """
    bus = Bus([], [], [])
    directories = (root / DEVICES).iterdir() if (root / DEVICES).is_dir() else ()
    for directory in sorted(directories):
        try:
            device = _read_device(directory)
            if device is None:
                continue
            if is_gpu(device) and not (directory / "physfn").is_symlink():
                bus.gpus.append(device)
            elif is_nvswitch(device):
                bus.nvswitches.append(device)
            elif is_infiniband(device):
                bus.infiniband.append(device["address"])
        except (OSError, ValueError):
            continue
    return bus


def read_management_ports(root: Path, addresses: Iterable[str]) -> list[str]:
    """Return the adapters that lead to NVSwitches. Their VPD is slow to read: some milliseconds."""
    ports = []
    for address in addresses:
        try:
            data = (root / DEVICES / address / "vpd").read_bytes()
        except OSError:
            continue
        if MANAGEMENT_PORT in data:
            ports.append(address)
    return ports


def _read_device(directory: Path) -> GpuRow | None:
    """Read a function of a vendor that matters; None for the many others."""

    def attribute(name: str) -> str:
        return (directory / name).read_text(encoding="ascii").strip()

    vendor = attribute("vendor")[2:]
    if vendor not in (NVIDIA, MELLANOX):
        return None
    driver = directory / "driver"
    numa_node = int(attribute("numa_node")) if (directory / "numa_node").exists() else -1
    return {
        "address": directory.name,
        "vendor": vendor,
        "device": attribute("device")[2:],
        "class": attribute("class")[2:6],  # the last two digits are the programming interface
        "driver": driver.resolve().name if driver.is_symlink() else None,
        "numa_node": numa_node if numa_node >= 0 else None,
    }
