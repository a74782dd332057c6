# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse the output of nvidia-smi: the GPUs, or why there are none.

The parser is strict. A cell is a value only if it has the form of its field. A line that is
neither the row of a GPU nor a known error is reported to the user; no harmless line is on record.

Source: nvidia-smi(1), section RETURN VALUE; `nvidia-smi --help-query-gpu`. The errors of GPUs that
it cannot reach: reports of drivers 340 to 610 (tests/unit/fixtures/nvidia_smi).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read.pci import normalise_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


# Fields that all branches since 390 support.
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
# Driver 550 prints no rows if it cannot reach one of the GPUs. This prints the other GPUs.
LIST = ("nvidia-smi", "-L")
# Without persistence mode, nvidia-smi initialises every GPU first.
TIMEOUT_S = 30

# The numbers are NVML's, except 2, and except 10, which nvidia-smi uses for NVML's 11.
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
    18: "library_mismatch",  # observed; not in the manual page
}
# The text is more precise than the exit code: 255 stands for every error without a number.
FAILURE_TEXTS = (
    ("driver/library version mismatch", "library_mismatch"),
    ("driver not loaded", "driver_not_loaded"),
    ("couldn't communicate with the nvidia driver", "driver_not_loaded"),
    ("couldn't find libnvidia-ml", "library_not_found"),
    ("insufficient permissions", "no_permission"),
    ("gpu access blocked by the operating system", "blocked_by_system"),
    ("inforom is corrupted", "inforom_corrupted"),
    ("gpu is lost", "gpu_lost"),
    ("no devices were found", "no_devices"),
)
# Exit codes for an error of single GPUs. They depend on the driver: all three are on record for
# the same text.
_OF_A_GPU = (0, 15, 255)

_ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
_UUID = r"(?:GPU|MIG)-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
# NVML's error texts (nvml.h, nvmlErrorString), which must not become the name of a GPU.
_NO_NAME = (
    r"ERR!|N/A|Unknown|.*\b(?:error|lost|reset|required|requires|inaccessible|permissions?|blocked"
    r"|found|not supported|not loaded|uninitialized|invalid|deprecated|timeout|failed)\b.*"
)
# The form of the values of each field. Any other cell is an error.
_FORMS = {
    "index": r"[0-9]{1,4}",
    "uuid": _UUID,
    "name": rf"(?!(?:GPU|MIG)-|(?i:{_NO_NAME})$)[A-Za-z0-9][A-Za-z0-9 ._()/+-]{{0,95}}",
    "memory.total": r"[0-9]{1,9}",
    "pci.bus_id": _ADDRESS,
    "persistence_mode": r"Enabled|Disabled",
    "driver_version": r"[0-9]{2,4}(?:\.[0-9]{1,4}){1,3}",
}
_VALUES = {field: re.compile(form) for field, form in _FORMS.items()}
# Fields that some GPU models do not support. Every model supports the others.
_OPTIONAL = ("memory.total", "persistence_mode")
_NOT_OFFERED = re.compile(r"N/A|\[N/A\]|Not Supported|\[Not Supported\]", re.IGNORECASE)
# "GPU2: 0000:83:00.0: GPU is lost", "GPU2: …", "GPU 0000:83:00.0: …", "gpu 0000:83:00.0: …"
_UNREACHED = re.compile(
    r"Unable to determine the device handle for GPU ?"
    rf"(?:(?P<address>{_ADDRESS})|(?P<index>[0-9]{{1,4}})(?:: (?P<of_index>{_ADDRESS}))?)"
    r": (?P<error>\S.*)",
    re.IGNORECASE,
)
_LISTED = re.compile(rf"GPU (?P<index>[0-9]{{1,4}}): (?P<name>.+) \(UUID: (?P<uuid>{_UUID})\)")

_QUOTED_LINES = 3
_QUOTED_LENGTH = 300


class NvmlDevice(NamedTuple):
    """A GPU as the driver reports it; None: unknown."""

    index_: int | None = None
    uuid: str | None = None
    name: str | None = None
    memory_mib: int | None = None
    pci_address: str | None = None  # as sysfs writes it
    persistence_mode: bool | None = None
    driver_version: str | None = None
    error: str | None = None  # what is printed instead of a value, such as "[GPU is lost]"


class Failure(TypedDict):
    """An error of nvidia-smi as a whole, or of one of the GPUs."""

    # `not_installed`, `timeout`, `driver_not_loaded`, `library_mismatch`, `library_not_found`,
    # `no_devices`, `gpu_lost`, `gpu_error`, `no_permission`, `blocked_by_system`,
    # `inforom_corrupted`, `insufficient_power`, `interrupt_problem`, `function_not_found`,
    # `not_supported`, `invalid_argument` or `unknown`
    code: str
    exit_code: int | None  # None: it did not exit in time
    message: str  # what it printed in addition to rows, else the error of a GPU


class NvmlAnswer(NamedTuple):
    """The parsed output of nvidia-smi."""

    devices: tuple[NvmlDevice, ...]
    failure: Failure | None
    is_whole: bool  # whether it exited with 0, and printed only rows of reachable GPUs


def _failed(code: str, exit_code: int | None, message: str) -> Failure:
    return {"code": code, "exit_code": exit_code, "message": message}


NOT_INSTALLED = NvmlAnswer(
    (), _failed("not_installed", None, "nvidia-smi is not installed"), is_whole=False
)


def parse_answer(rc: int | None, stdout: str, stderr: str) -> NvmlAnswer:
    """Parse the output of QUERY; the exit code is None if it did not exit in time."""
    rows: list[NvmlDevice] = []
    unreached: list[NvmlDevice] = []
    others: list[str] = []
    for line in [*_lines(stdout), *_lines(stderr)]:
        if device := _parse_row(line):
            rows.append(device)
        elif device := _parse_unreached(line):
            unreached.append(device)
        elif not (unreached and line == "."):  # the end of some sentences about a handle
            others.append(line)
    devices = (*rows, *unreached)
    is_all = rc == 0 and bool(rows) and not unreached and not others
    return NvmlAnswer(devices, _failure(rc, devices, others), is_whole=is_all)


def is_cut_short(stdout: str, stderr: str) -> bool:
    """Return whether LIST may print GPUs that are missing from the output of QUERY."""
    return any(map(_parse_unreached, [*_lines(stdout), *_lines(stderr)]))


def place(
    devices: Iterable[NvmlDevice],
    listing: str,
    uuids: Mapping[str, str | None],
    slots: Sequence[str],
) -> list[NvmlDevice]:
    """Return the GPUs; add their PCI addresses as far as these can be determined.

    `listing` is the output of LIST, which runs if the query was cut short. `uuids` are the UUIDs
    in /proc/driver/nvidia, keyed by address. `slots` are the addresses of the GPUs on the bus.
    """
    addresses = {uuid: address for address, uuid in uuids.items() if uuid}
    found = list(devices)
    listed = (_parse_listed(line) for line in _lines(listing))
    known = [*(device.uuid for device in found), *(device.index_ for device in found)]
    found += [one for one in listed if one and one.uuid not in known and one.index_ not in known]
    found = [
        device._replace(
            uuid=device.uuid or uuids.get(device.pci_address or ""),
            pci_address=device.pci_address or addresses.get(device.uuid or ""),
        )
        for device in found
    ]
    # A single faulty GPU without an address is in the only slot without another GPU.
    free = [slot for slot in slots if slot not in [device.pci_address for device in found]]
    lost = [number for number, device in enumerate(found) if device.pci_address is None]
    if len(free) == len(lost) == 1 and found[lost[0]].error:
        (address,), device = free, found[lost[0]]
        found[lost[0]] = device._replace(
            pci_address=address, uuid=device.uuid or uuids.get(address)
        )
    return sorted(found, key=lambda device: (device.index_ is None, device.index_ or 0))


def _failure(
    rc: int | None, devices: Sequence[NvmlDevice], others: Sequence[str]
) -> Failure | None:
    if rc is None:
        printed = f": {_quote(others)}" if others else ""
        return _failed("timeout", None, f"nvidia-smi did not end within {TIMEOUT_S} s{printed}")
    errors = [device.error for device in devices if device.error]
    if not others and rc == 0 and devices and not errors:
        return None
    if not others and rc in _OF_A_GPU and errors:
        is_lost = any("lost" in error.lower() for error in errors)
        return _failed("gpu_lost" if is_lost else "gpu_error", rc, errors[0])
    text = "\n".join(others).lower()
    named = (code for phrase, code in FAILURE_TEXTS if phrase in text)
    silent = "unknown" if others or devices or rc else "no_devices"
    message = _quote(others) or f"nvidia-smi {'gave no reason' if devices else 'printed nothing'}"
    return _failed(next(named, FAILURES.get(rc, silent)), rc, message)


def _quote(lines: Sequence[str]) -> str:
    """Return lines as printable evidence of limited length."""
    text = "; ".join(lines[:_QUOTED_LINES])
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return shown if len(shown) <= _QUOTED_LENGTH else f"{shown[:_QUOTED_LENGTH]}…"


def _lines(text: str) -> list[str]:
    return [line for raw in text.split("\n") if (line := raw.strip(" \t\r"))]


def _parse_row(line: str) -> NvmlDevice | None:
    """Parse the row of a GPU; None for any other line."""
    parts = line.split(", ")
    if len(parts) != len(FIELDS) or not _VALUES["index"].fullmatch(parts[0]):
        return None
    cells = dict(zip(FIELDS, parts))
    values = {field: cell for field, cell in cells.items() if _VALUES[field].fullmatch(cell)}
    errors = [
        cell if cell.startswith("[") else f"{field} is {cell!r}"
        for field, cell in cells.items()
        if field not in values and not (field in _OPTIONAL and _NOT_OFFERED.fullmatch(cell))
    ]
    memory, address = values.get("memory.total"), values.get("pci.bus_id")
    persistence = values.get("persistence_mode")
    return NvmlDevice(
        index_=int(values["index"]),
        uuid=values.get("uuid"),
        name=values.get("name"),
        memory_mib=int(memory) if memory else None,
        pci_address=normalise_address(address) if address else None,
        persistence_mode=persistence == "Enabled" if persistence else None,
        driver_version=values.get("driver_version"),
        error=_quote(errors[:1]) or None,
    )


def _parse_unreached(line: str) -> NvmlDevice | None:
    """Parse the error about a GPU that nvidia-smi cannot reach; None for any other line."""
    match = _UNREACHED.fullmatch(line)
    if match is None:
        return None
    address = match["address"] or match["of_index"]
    return NvmlDevice(
        index_=int(match["index"]) if match["index"] else None,
        pci_address=normalise_address(address) if address else None,
        error=_quote([match["error"]]),
    )


def _parse_listed(line: str) -> NvmlDevice | None:
    match = _LISTED.fullmatch(line)
    if match is None:
        return None
    return NvmlDevice(index_=int(match["index"]), uuid=match["uuid"], name=match["name"])
