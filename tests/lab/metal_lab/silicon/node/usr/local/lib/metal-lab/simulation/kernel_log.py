# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel log: what the NVIDIA driver prints to it, as `dmesg` shows it.

The real log is that of the machine under the laboratory, which has no GPU.

Source: tests/recorded/xids.yml of the project
"""

from __future__ import annotations

import time

from .state import Function, Kernel, Node

OFF_THE_BUS = 79
# The words of some numbers. Most others name a process and its channel.
WORDS = {
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at"
    " physAddr 0x7fdf0de80 partition 5, subpartition 1",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    74: "NVLink: fatal error detected on link 1",
    OFF_THE_BUS: "GPU has fallen off the bus.",
    95: "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No",
}
CHANNEL = "pid=1234, name=python3, Ch 00000008"

NVLINK = "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"
NO_NVLINK = "nvidia-nvlink: Unregistered Nvlink Core, major device number 236"
LOADING = {
    "open": "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build",
    "proprietary": "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {version}",
}


def add(kernel: Kernel, *texts: str) -> None:
    """Log texts, with seconds since the boot of the machine under the laboratory."""
    kernel.log += [f"[{time.monotonic():12.6f}] {text}" for text in texts]


def add_load(kernel: Kernel) -> None:
    """Log that the module of the driver was loaded."""
    if kernel.driver:
        add(kernel, NVLINK, LOADING[kernel.driver.flavour].format(version=kernel.driver.version))


def add_xid(kernel: Kernel, gpu: Function, number: int) -> None:
    """Log an Xid error of a GPU that the driver drives."""
    address = gpu["address"]
    if address not in kernel.minors:
        return
    place = address.partition(".")[0]
    add(
        kernel,
        f"NVRM: GPU at PCI:{place}: {gpu['gpu']['uuid']}",
        f"NVRM: Xid (PCI:{place}): {number}, {WORDS.get(number, CHANNEL)}",
    )
    if number == OFF_THE_BUS:
        add(kernel, f"NVRM: GPU {address}: {WORDS[OFF_THE_BUS]}")


def dmesg(node: Node, kernel: Kernel) -> int:
    """Print the log from the boot on, whatever the options are."""
    boot = f"[{0:12.6f}] Linux version {node.release} (metal-lab)"
    print("\n".join([boot, *kernel.log]))
    return 0
