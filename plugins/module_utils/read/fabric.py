# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse what shows whether NVSwitches connect the GPUs of a node. No I/O.

Since Hopper, a GPU has a fabric state. CUDA programs start only after it is "Completed". The state
is that of the last training: it stays if Fabric Manager ends later. So the unit counts as well.

Source: `nvidia-smi --help-query-gpu` and its values of 590.48.01, 595.71.05 and 610.57.04 on H100,
H200, L40S and GeForce; whole reports (-q -x) of 570 to 595 on A100, H100, B200 and GB300
Source: nvidia-fabricmanager-start.sh of Fabric Manager 580.178.04, in Ubuntu's package
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import generation
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import normalise_address

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
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
QUERY = (
    "nvidia-smi",
    "--query-gpu=pci.bus_id,fabric.state,fabric.status",
    "--format=csv,noheader",
)
COMPLETED, SUCCESS = "Completed", "Success"
# Of GPUs without a fabric: PCIe cards, and A100.
NONE = re.compile(r"\[?(?:N/A|Not Supported)\]?", re.IGNORECASE)

_BEFORE_STATES = ("Turing", "Ampere", "Ada")  # and everything that ended with branch 580 or before
_BEHIND_ADAPTERS = ("Blackwell", "Blackwell Ultra", "newer")
_PACKAGE = re.compile(r"nvidia-fabric-?manager(?:-\d+)?|nvidia-imex(?:-\d+)?|nvlsm")
_MANAGER_PACKAGE = re.compile(r"nvidia-fabric-?manager(?:-\d+)?")
_UNKNOWN_FIELD = "is not a valid field to query"
_CELL = r"[A-Za-z0-9\[][A-Za-z0-9 /_.()\[\]-]{0,99}"
_ROW = re.compile(
    r"(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
    rf", (?P<state>{_CELL}), (?P<status>{_CELL})"
)
_MODE = re.compile(
    r"""^[ \t]*FABRIC_MODE[ \t]*=[ \t]*(?P<quote>["']?)(?P<mode>[0-9]{1,3})(?P=quote)"""
    r"[ \t]*(?:#[^\n]*)?\r?$",
    re.MULTILINE,
)
_QUOTED_LENGTH = 300
_LINES = 3


class GpuState(NamedTuple):
    """The words of nvidia-smi about a GPU's fabric."""

    pci_address: str
    state: str
    status: str

    @property
    def is_good(self) -> bool:
        """Whether CUDA programs can start, as far as the fabric is concerned."""
        if NONE.fullmatch(self.state):
            return True
        return self.state == COMPLETED and self.status == SUCCESS


class States(NamedTuple):
    """The fabric states of the GPUs, or why nobody knows them."""

    gpus: tuple[GpuState, ...] = ()
    error: str | None = None


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


def parse_states(output: Output | None) -> States:
    """Parse the output of QUERY. Drivers that do not know the fields have no states, and no error.

    The cells of a GPU that the driver cannot reach are no states. Other findings are about it.
    """
    if output is None:
        return States(error="nvidia-smi was not asked about the fabric")
    if output.rc is None:
        return States(error="nvidia-smi did not answer the query about the fabric in time")
    if output.rc != 0 and _UNKNOWN_FIELD in output.stdout + output.stderr:
        return States()
    gpus = []
    others = []
    for line in filter(None, map(str.strip, f"{output.stdout}\n{output.stderr}".splitlines())):
        if match := _ROW.fullmatch(line):
            address = normalise_address(match["address"])
            gpus.append(GpuState(address, match["state"], match["status"]))
        else:
            others.append(line)
    if output.rc == 0 and gpus and not others:
        return States(tuple(gpus))
    printed = _printable("; ".join(others[:_LINES])) or f"nothing (exit code {output.rc})"
    return States(tuple(gpus), f"nvidia-smi printed about the fabric: {printed}")


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
