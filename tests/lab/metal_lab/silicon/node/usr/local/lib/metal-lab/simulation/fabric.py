# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Fabric Manager does with NVSwitches, and its words if it cannot.

The words are those of public reports; recorded/packages has where Fabric Manager comes from.
"""

from __future__ import annotations

import sys

from .state import Kernel, Machine


def train(machine: Machine, kernel: Kernel, version: str) -> None:
    """Train the GPUs. Exits with the words of Fabric Manager if it cannot."""
    if kernel.driver is None:
        sys.exit("request to query NVSwitch device information from NVSwitch driver failed")
    loaded = kernel.driver.version
    if loaded != version:
        sys.exit(
            f"fabric manager NVIDIA GPU driver interface version {version} don't match with driver "
            f"version {loaded}. Please update with matching NVIDIA driver package."
        )
    if not machine.nvswitches:
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
