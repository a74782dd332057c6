# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Fabric Manager does with NVSwitches, and its words if it cannot.

The words are those of public reports; recorded/packages has where Fabric Manager comes from.
"""

from __future__ import annotations

import sys

from .state import Kernel, Machine, Node

SUBNET_MANAGER = b"/nvlsm"


def train(node: Node, machine: Machine, kernel: Kernel, version: str) -> None:
    """Train the GPUs. Exits with the words of Fabric Manager if it cannot."""
    if kernel.driver is None:
        sys.exit("request to query NVSwitch device information from NVSwitch driver failed")
    loaded = kernel.driver.version
    if loaded != version:
        sys.exit(
            f"fabric manager NVIDIA GPU driver interface version {version} don't match with driver "
            f"version {loaded}. Please update with matching NVIDIA driver package."
        )
    if not machine.nvswitches and not (machine.management_ports and has_subnet_manager(node)):
        sys.exit(
            "request to query NVSwitch device information from NVSwitch driver failed with "
            "error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
        )
    if not machine.has_all_nvswitches:
        sys.exit(
            "detected number of NVSwitches don't match with any supported system topology, "
            "aborting fabric manager"
        )
    kernel.fabric = True


def has_subnet_manager(node: Node) -> bool:
    """Whether nvlsm runs. The start script starts it only if the modules are loaded."""
    for file in node.path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes().split(b"\0")[0].endswith(SUBNET_MANAGER):
                return True
        except OSError:  # the process has ended
            continue
    return False
