# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPUs of a machine do now: the parser of what gpu_script.py prints.

Source: nvidia-smi(1), `nvidia-smi --help-query-gpu`; tests/recorded/xids.yml;
tests/recorded/kubelet_checkpoint.yml
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import (
    kernel_events,
    kernel_log,
    kubelet_devices,
    nvidia_driver,
    nvidia_smi,
    pci,
    xids,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
from metal_gpu import gpu_names, gpu_script
from metal_gpu.gpu_script import KILLED, MORE, Parts

_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,4})?", re.ASCII)
_TIERS = (xids.HARDWARE, xids.RESET, xids.UNKNOWN, xids.APPLICATION, xids.INFORMATION)
BROKEN = (xids.HARDWARE, xids.RESET)


class Xid(TypedDict):
    """An error of a GPU in the kernel log, since the driver was loaded."""

    number: int  # an error without one is that of a GPU that is off the bus
    count: int
    tier: str  # what it means for the GPU
    meaning: str


class Sxid(TypedDict):
    """A fatal error of an NVSwitch in the kernel log, since the driver was loaded."""

    number: int
    count: int
    line: str  # the words of the driver


class Switch(TypedDict):
    """An NVSwitch with fatal errors."""

    address: str
    sxids: list[Sxid]  # the newest first
    code: str  # of the finding


class Holder(TypedDict):
    """A pod that has a GPU, according to the kubelet's checkpoint."""

    uid: str
    pod: str | None  # namespace/name, if the cluster was asked


class Gpu(TypedDict):
    """A GPU; None: not offered, or not known."""

    index: int | None
    uuid: str | None
    address: str | None
    model: str | None
    utilization: int | None
    memory_used_mib: int | None
    memory_mib: int | None
    temperature_c: int | None
    power_w: float | None
    power_limit_w: float | None
    error: str | None
    code: str | None  # of the finding that `metal-gpu doctor` has about it
    xids: list[Xid]
    pods: list[Holder]


class Use(NamedTuple):
    """The GPUs of a machine, and why there may be more."""

    gpus: list[Gpu]
    error: str | None = None
    code: str | None = None  # of the finding that the error is
    switches: tuple[Switch, ...] = ()


def parse(stdout: str) -> Use:
    """Parse the output of the script. Raises gpu_script.Unreadable."""
    parts = gpu_script.split(stdout)
    rc, text = parts["smi"]
    answer, more = _answer(rc, text)
    bus = gpu_script.gpus_on_bus(parts)
    devices = _placed(answer, parts, bus)
    log = gpu_script.text(parts, "log")
    events = kernel_log.parse(Output(rc=0, stdout=log, stderr=""), None)["events"]
    by_address: dict[str, list[Xid]] = {}
    for event in events:
        if event["source"] != kernel_events.SXID:
            by_address.setdefault(event["address"], []).append(_xid(event))
    held = kubelet_devices.parse_checkpoint(gpu_script.text(parts, "checkpoint").strip())
    holders = _holders(held, {*gpu_script.text(parts, "pods").split()}) if held else {}
    gpus = [_gpu(device, more, by_address, holders) for device in devices]
    failure = answer.failure
    if failure and any(gpu["error"] for gpu in gpus):  # it is that of the GPU
        failure = None
    named = {gpu["address"] for gpu in gpus}
    if None not in named:
        gpus += [
            _on_bus(row, by_address.get(row["address"], []), is_told=failure is not None)
            for row in bus
            if row["address"] not in named
        ]
        named |= {row["address"] for row in bus}
    gpus += [
        _silent(address, found) for address, found in by_address.items() if address not in named
    ]
    switches = tuple(map(_switch, kernel_events.fatal_of_switches(events).items()))
    if failure is None:
        return Use(gpus, switches=switches)
    return Use(gpus, failure["message"], _failure_code(failure, answer.devices), switches)


def _failure_code(
    failure: nvidia_smi.Failure, devices: Sequence[nvidia_smi.NvmlDevice]
) -> str | None:
    """Return the finding that a failure is. Without a driver, nothing shows if there is a GPU."""
    if failure["code"] == "not_installed":
        return None
    return "NVML_TROUBLE" if devices else "NVML_UNAVAILABLE"


def _answer(rc: str, text: str) -> tuple[nvidia_smi.NvmlAnswer, dict[int, list[str]]]:
    """Parse the rows of nvidia-smi: what its parser knows, and our cells by index."""
    if rc == "missing":
        return nvidia_smi.NOT_INSTALLED, {}
    rows, more = [], {}
    width = len(nvidia_smi.FIELDS)
    for line in text.splitlines():
        cells = line.split(", ")
        if len(cells) == width + len(MORE) and cells[0].strip().isdecimal():
            more[int(cells[0])] = cells[width:]
            line = ", ".join(cells[:width])
        rows.append(line)
    code = None if rc in KILLED else int(rc)
    return nvidia_smi.parse_answer(code, "\n".join(rows), ""), more


def _placed(
    answer: nvidia_smi.NvmlAnswer,
    parts: Parts,
    bus: Sequence[pci.GpuRow],
) -> list[nvidia_smi.NvmlDevice]:
    """Return the GPUs of nvidia-smi, also those that only its list has."""
    bound = (line.partition(" ") for line in gpu_script.text(parts, "bound").splitlines())
    uuids = {address.lower(): nvidia_driver.parse_uuid(text) for address, _, text in bound}
    slots = [row["address"] for row in bus]
    listing = gpu_script.text(parts, "list")
    devices = _with_all_lost(answer.devices, listing)
    return _in_slots(nvidia_smi.place(devices, listing, uuids, slots), uuids, slots)


def _with_all_lost(
    devices: Sequence[nvidia_smi.NvmlDevice], listing: str
) -> Sequence[nvidia_smi.NvmlDevice]:
    """Return the GPUs with all lost ones. The query can end at the first one, the list goes on.

    One form of the line has an index, another one the address, so nothing tells which is which.
    """
    lost = nvidia_smi.parse_answer(0, listing, "").devices
    reached = [device for device in devices if device.uuid or not device.error]
    return [*reached, *lost] if len(lost) > len(devices) - len(reached) else devices


def _in_slots(
    devices: list[nvidia_smi.NvmlDevice], uuids: Mapping[str, str | None], slots: Sequence[str]
) -> list[nvidia_smi.NvmlDevice]:
    """Return the GPUs; lost ones without an address are in the slots without another GPU.

    Which of these has which index is not known.
    """
    placed = [device for device in devices if device.pci_address]
    errors = [device.error for device in devices if not device.pci_address]
    free = [slot for slot in slots if slot not in {device.pci_address for device in placed}]
    if len(free) != len(errors) or not all(errors) or len({*errors}) != 1:
        return devices
    return placed + [
        nvidia_smi.NvmlDevice(uuid=uuids.get(slot), pci_address=slot, error=errors[0])
        for slot in free
    ]


def _gpu(
    device: nvidia_smi.NvmlDevice,
    more: Mapping[int, list[str]],
    events: Mapping[str, list[Xid]],
    holders: Mapping[str, list[str]],
) -> Gpu:
    cells = more.get(-1 if device.index_ is None else device.index_, [])
    use, used, temperature, power, limit = map(_number, cells or [""] * len(MORE))
    found = sorted(events.get(device.pci_address or "", []), key=_rank)
    return {
        "index": device.index_,
        "uuid": device.uuid,
        "address": device.pci_address,
        "model": device.name,
        "utilization": _whole(use),
        "memory_used_mib": _whole(used),
        "memory_mib": device.memory_mib,
        "temperature_c": _whole(temperature),
        "power_w": power,
        "power_limit_w": limit,
        "error": device.error,
        "code": "GPU_FAULTY" if device.error else _log_code(found),
        "xids": found,
        "pods": [{"uid": uid, "pod": None} for uid in holders.get(device.uuid or "", [])],
    }


def _on_bus(row: pci.GpuRow, found: list[Xid], *, is_told: bool) -> Gpu:
    """Return a GPU of which only the bus knows; `is_told` if the machine's error says why."""
    model = gpu_names.name(row["device"], None)
    # Another driver has it, such as that of a virtual machine.
    if is_told or row["driver"] not in ("nvidia", None):
        return {**_silent(row["address"], found), "model": model, "error": None}
    code = _log_code(found) or "NVML_COUNT_DIFFERS"
    return {**_silent(row["address"], found), "model": model, "code": code}


def _silent(address: str, found: list[Xid]) -> Gpu:
    """Return a GPU that only the kernel log names."""
    gpu = _gpu(nvidia_smi.NvmlDevice(pci_address=address), {}, {address: found}, {})
    return {**gpu, "error": "nvidia-smi does not list it"}


def _log_code(found: Sequence[Xid]) -> str | None:
    """Return the finding that the errors in the kernel log are; programs make mistakes as well."""
    tiers = {one["tier"] for one in found}
    if tiers.intersection(BROKEN):
        return "GPU_ERROR_LOGGED"
    return "XID_UNKNOWN" if xids.UNKNOWN in tiers else None


def _number(cell: str) -> float | None:
    """Return a value; None for `[N/A]`, as with MIG, and for errors."""
    return float(cell) if _NUMBER.fullmatch(cell.strip()) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _xid(event: kernel_events.Event) -> Xid:
    number = xids.OFF_THE_BUS if event["number"] is None else event["number"]
    return {
        "number": number,
        "count": event["count"],
        "tier": kernel_events.tier(event),
        "meaning": kernel_events.meaning(event).meaning,
    }


def _switch(found: tuple[str, Sequence[kernel_events.Event]]) -> Switch:
    address, events = found
    errors: list[Sxid] = [
        {"number": one["number"] or 0, "count": one["count"], "line": one["line"]} for one in events
    ]
    return {"address": address, "sxids": errors, "code": "NVSWITCH_ERROR_LOGGED"}


def _rank(found: Xid) -> int:
    return _TIERS.index(found["tier"])


def _holders(devices: kubelet_devices.Devices, there: AbstractSet[str]) -> dict[str, list[str]]:
    """Return the UIDs of the pods that have a GPU, by its UUID.

    The checkpoint keeps the entry of a pod that is gone. `there` are those that the kubelet has;
    empty: not known, because the pod of the device plugin is always one.
    """
    found: dict[str, list[str]] = {}
    for uuid, pod in _pairs(devices):
        pods = found.setdefault(uuid, [])
        if pod not in pods and (not there or pod in there):
            pods.append(pod)
    return found


def _pairs(devices: kubelet_devices.Devices) -> Iterator[tuple[str, str]]:
    for holding in devices["holdings"]:
        for device in holding["devices"]:
            uuid = kubelet_devices.gpu_uuid(device)
            if uuid:
                yield uuid, holding["pod"]
