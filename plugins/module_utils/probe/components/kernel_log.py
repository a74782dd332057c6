# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read in the kernel log, on a node with GPUs, NVSwitches or their driver.

The log is read after nvidia-smi, which can bring out an error. It is parsed on the node, because it
can be large, and because the rest of it does not concern the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.components import platform
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import kernel_log

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading


def _late_values(reading: Reading) -> kernel_log.Log:
    bus = platform.values_of(reading)
    is_loaded = (reading.node.root / "sys/module/nvidia").is_dir()
    if not (bus["pci"] or bus["nvswitches"] or is_loaded):
        return kernel_log.nothing()
    ring = reading.run({"ring": Command(kernel_log.RING)}).get("ring")
    journal = None
    if not kernel_log.has_load(ring):
        journal = reading.run({"journal": Command(kernel_log.JOURNAL)}).get("journal")
    return kernel_log.parse(ring, journal)


PROBE = Probe(late_values=_late_values)
