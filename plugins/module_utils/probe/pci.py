# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the NVIDIA GPUs on the PCI bus, whichever driver they are bound to.

Only `read_gpus` does I/O; it takes the root directory as an argument.

Source: https://docs.kernel.org/PCI/sysfs-pci.html
Source: Linux, Documentation/ABI/testing/sysfs-bus-pci, physfn
"""

from __future__ import annotations

from pathlib import Path

from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow, is_gpu

DEVICES = Path("sys/bus/pci/devices")


def read_gpus(root: Path) -> list[GpuRow]:
    """Read the GPUs, sorted by address. A device that disappears meanwhile is left out.

    Virtual functions (SR-IOV) are left out if their physical function is on the bus, because they
    are parts of it. In a virtual machine only the virtual function is visible, and counts as a GPU.
    """
    gpus = []
    directories = (root / DEVICES).iterdir() if (root / DEVICES).is_dir() else ()
    for directory in sorted(directories):
        try:
            device = _read_device(directory)
        except (OSError, ValueError):
            continue
        if is_gpu(device) and not (directory / "physfn").is_symlink():
            gpus.append(device)
    return gpus


def _read_device(directory: Path) -> GpuRow:
    def attribute(name: str) -> str:
        return (directory / name).read_text(encoding="ascii").strip()

    driver = directory / "driver"
    numa_node = int(attribute("numa_node")) if (directory / "numa_node").exists() else -1
    return {
        "address": directory.name,
        "vendor": attribute("vendor")[2:],
        "device": attribute("device")[2:],
        "class": attribute("class")[2:6],  # the last two digits are the programming interface
        "driver": driver.resolve().name if driver.is_symlink() else None,
        "numa_node": numa_node if numa_node >= 0 else None,
    }
