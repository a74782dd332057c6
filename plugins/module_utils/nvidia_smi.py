# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Understand what nvidia-smi prints: the GPUs, or why there are none. No I/O.

Source: nvidia-smi(1), section RETURN VALUE; `nvidia-smi --help-query-gpu`.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.pci import normalise_address

if TYPE_CHECKING:
    from collections.abc import Mapping

# Fields that old branches (390) and new ones know alike.
FIELDS = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "pci.bus_id",
    "persistence_mode",
    "driver_version",
)
QUERY = ("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")

# The numbers are NVML's, except 10, which nvidia-smi has for NVML's 11, and 2.
FAILURES = {
    2: "invalid_argument",
    3: "not_supported",
    4: "no_permission",
    6: "no_devices",
    8: "insufficient_power",
    9: "driver_not_loaded",
    10: "interrupt_problem",
    12: "library_not_found",
    13: "function_not_found",
    14: "inforom_corrupted",
    15: "gpu_lost",
    17: "blocked_by_system",
    18: "library_mismatch",  # not in the manual page, but what it exits with
}
# What it says is more precise than how it exits: 255 stands for whatever has no number.
FAILURE_TEXTS = (
    ("driver/library version mismatch", "library_mismatch"),
    ("driver not loaded", "driver_not_loaded"),
    ("couldn't communicate with the nvidia driver", "driver_not_loaded"),
    ("couldn't find libnvidia-ml", "library_not_found"),
    ("insufficient permissions", "no_permission"),
    ("gpu access blocked by the operating system", "blocked_by_system"),
    ("gpu is lost", "gpu_lost"),
    ("no devices were found", "no_devices"),
)
# These two only say that this GPU model has no such thing.
_NOT_OFFERED = re.compile(r"\[?(N/A|Not Supported)\]?", re.IGNORECASE)
_TROUBLE = re.compile(
    r"\[?(GPU is lost|GPU requires reset|Unknown Error|GPU is inaccessible"
    r"|Insufficient Permissions|GPU access blocked.*|ERR!)\]?",
    re.IGNORECASE,
)


class NvmlDevice(NamedTuple):
    """A GPU as the driver sees it; None where its cell holds no value."""

    index_: int
    uuid: str | None
    name: str | None
    memory_mib: int | None
    pci_address: str | None  # as sysfs writes it
    persistence_mode: bool | None
    driver_version: str | None
    error: str | None  # what a cell says instead of a value, such as "[GPU is lost]"


class NvmlFailure(NamedTuple):
    """Why the driver cannot show all its GPUs."""

    code: str
    exit_code: int | None
    message: str


NOT_INSTALLED = NvmlFailure("not_installed", None, "nvidia-smi is not installed")


def parse_devices(stdout: str) -> tuple[NvmlDevice, ...]:
    """Parse the answer to QUERY. Warnings between the rows are skipped."""
    rows = csv.reader(stdout.splitlines(), skipinitialspace=True)
    return tuple(
        _parse_row(dict(zip(FIELDS, row)))
        for row in rows
        if len(row) == len(FIELDS) and row[0].isdigit()
    )


def parse_failure(rc: int | None, stdout: str, stderr: str) -> NvmlFailure | None:
    """Name the failure; None where there is none.

    With a lost GPU a query still exits with 0 and says so in the cells only.
    """
    if rc is None:
        return NvmlFailure("timeout", None, "nvidia-smi did not answer in time")
    text = f"{stdout}\n{stderr}".strip()
    if rc == 0:
        return _failure_in_cells(parse_devices(stdout), text)
    named = (code for phrase, code in FAILURE_TEXTS if phrase in text.lower())
    code = next(named, FAILURES.get(rc, "unknown"))
    return NvmlFailure(code, rc, _message(text))


def name_gpu(device: Mapping[str, Any]) -> str:
    """Name a device of an observation by what can be read of it: a lost one may have no UUID."""
    return device["uuid"] or device["pci_address"] or f"GPU {device['index']}"


def _failure_in_cells(devices: tuple[NvmlDevice, ...], text: str) -> NvmlFailure | None:
    errors = [device.error for device in devices if device.error]
    if not devices:
        return NvmlFailure("no_devices", 0, _message(text))
    if not errors:
        return None
    code = "gpu_lost" if any("lost" in error.lower() for error in errors) else "gpu_error"
    return NvmlFailure(code, 0, errors[0])


def _message(text: str) -> str:
    """Return the first line that is no row of a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not re.match(r"\d+, GPU-", line)]
    return said[0] if said else "nvidia-smi printed nothing"


def _parse_row(cells: dict[str, str]) -> NvmlDevice:
    errors = [cell for cell in cells.values() if _TROUBLE.fullmatch(cell)]

    def value(field: str) -> str | None:
        cell = cells[field]
        return None if cell in errors or _NOT_OFFERED.fullmatch(cell) else cell

    memory, address, persistence = (
        value(field) for field in ("memory.total", "pci.bus_id", "persistence_mode")
    )
    return NvmlDevice(
        index_=int(cells["index"]),
        uuid=value("uuid"),
        name=value("name"),
        memory_mib=int(memory) if memory and memory.isdigit() else None,
        pci_address=normalise_address(address) if address else None,
        persistence_mode=persistence == "Enabled" if persistence else None,
        driver_version=value("driver_version"),
        error=errors[0] if errors else None,
    )
