# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse what shows whether NVSwitches connect the GPUs of a node.

Since Hopper, a GPU has a fabric state. CUDA programs start only after it is "Completed". The state
is that of the last training: it stays if Fabric Manager ends later. So the unit counts as well.

Source: tests/recorded/fabric.yml and nvidia_smi_xml.yml
Source: nvidia-fabricmanager-start.sh of Fabric Manager 580.178.04, in Ubuntu's package
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import generation
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import (
    UNKNOWN,
    FabricWords,
    is_no_value,
)

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import Report
    from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow

MANAGER, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
# The kernel cuts names of processes after 15 characters.
PROCESS = "nv-fabricmanager"[:15]
# Where the NVSwitches are behind adapters, the service of Fabric Manager also starts this program,
# from a package of the same name. It reaches the NVSwitches through these modules of the kernel.
SUBNET_MANAGER = "nvlsm"
ADAPTER_MODULE, MAD_MODULE = "mlx5_ib", "ib_umad"
CONFIG = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
LOG = "/var/log/fabricmanager.log"
COMPLETED, SUCCESS = "Completed", "Success"
HEALTHY = "Healthy"
RIGHT = "None"  # what is wrong with the configuration
# Of GPUs without a fabric: PCIe cards, and A100.
NONE = re.compile(r"\[?(?:N/A|Not Supported)\]?", re.IGNORECASE)

_BEFORE_STATES = ("Turing", "Ampere", "Ada")  # and everything that ended with branch 580 or before
_BEHIND_ADAPTERS = ("Blackwell", "Blackwell Ultra", "newer")
_PACKAGE = re.compile(r"nvidia-fabric-?manager(?:-\d+)?|nvidia-imex(?:-\d+)?|nvlsm")
_MANAGER_PACKAGE = re.compile(r"nvidia-fabric-?manager(?:-\d+)?")
_MODE = re.compile(
    r"""^[ \t]*FABRIC_MODE[ \t]*=[ \t]*(?P<quote>["']?)(?P<mode>[0-9]{1,3})(?P=quote)"""
    r"[ \t]*(?:#[^\n]*)?\r?$",
    re.MULTILINE,
)
_QUOTED_LENGTH = 300
_LINES = 3


class FabricState(FabricWords):
    pci_address: str  # address in `pci`
    good: bool  # whether the GPU has no fabric, or is part of one that is ready
    healthy: bool  # whether the driver reports nothing that is wrong with the links


def is_unknown(state: str, status: str) -> bool:
    """Tell whether the driver has no words about the fabric of a GPU, which then may be ready.

    The status is itself the text of an error, if the fabric has one.
    """
    is_error = is_no_value(state) and not NONE.fullmatch(state)
    return is_error or (state == COMPLETED and status == UNKNOWN)


def has_state(gpu: GpuRow) -> bool:
    """Whether a GPU may have a fabric state, so that it is worth a query."""
    found = generation(gpu["device"])
    return found.last_branch is None and found.name not in _BEFORE_STATES


def may_be_behind_adapters(gpu: GpuRow) -> bool:
    """Whether the NVSwitches of such a GPU are no functions on the bus."""
    return generation(gpu["device"]).name in _BEHIND_ADAPTERS


def is_fabric_package(name: str) -> bool:
    return _PACKAGE.fullmatch(name) is not None


def is_manager_package(name: str) -> bool:
    return _MANAGER_PACKAGE.fullmatch(name) is not None


def is_subnet_manager(command_line: bytes) -> bool:
    """Tell by /proc/PID/cmdline whether a process is the subnet manager."""
    return command_line.partition(b"\0")[0].rpartition(b"/")[2] == SUBNET_MANAGER.encode()


def has_module(modules_dep: str, name: str) -> bool:
    """Tell whether modules.dep has a module. Files may have a hyphen instead of an underscore."""
    files = (line.partition(":")[0].rpartition("/")[2] for line in modules_dep.splitlines())
    return any(file.partition(".")[0].replace("-", "_") == name for file in files)


def states(report: Report) -> list[FabricState]:
    """Return the states of the GPUs that report one. Drivers that are too old report none."""
    return [
        {
            **words,
            "pci_address": gpu["pci_address"],
            "good": bool(NONE.fullmatch(words["state"]))
            or (words["state"], words["status"]) == (COMPLETED, SUCCESS),
            # Some bits of the health are set on healthy GPUs.
            "healthy": words["health"] in (None, HEALTHY)
            and words["misconfigured"] in (None, RIGHT),
        }
        for gpu in report["gpus"]
        if (words := gpu["fabric"])
    ]


def parse_mode(config: str) -> int | None:
    """Return FABRIC_MODE of Fabric Manager's configuration; the last one counts."""
    found = [match["mode"] for match in _MODE.finditer(config)]
    return int(found[-1]) if found else None


def parse_log(*texts: str) -> list[str]:
    """Return the last lines of the first text that has any: the words of Fabric Manager."""
    for text in texts:
        lines = [_printable(line) for line in map(str.strip, text.splitlines()) if line]
        if lines:
            return lines[-_LINES:]
    return []


def _printable(text: str) -> str:
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return shown if len(shown) <= _QUOTED_LENGTH else f"{shown[:_QUOTED_LENGTH]}…"
