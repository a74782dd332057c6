# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the GPUs of a machine do now: the script that asks, and the parser of its answer. No I/O.

The script only reads, and writes nothing on the machine. Of the kernel log it prints the lines of
NVIDIA's drivers, and of the kubelet's checkpoint not what the device plugin answered.

Source: nvidia-smi(1), `nvidia-smi --help-query-gpu`; tests/recorded/xids.yml;
tests/recorded/kubelet_checkpoint.yml
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import (
    kernel_events,
    kernel_log,
    kubelet_devices,
    login_refusals,
    nvidia_smi,
    xids,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

# All branches since 390 have these as well; in MiB, degrees Celsius, W and percent.
MORE = ("utilization.gpu", "memory.used", "temperature.gpu", "power.draw", "power.limit")
_MARK = "@@metal-gpu@@"
_LOG_BYTES = 128 * 1024
_QUERY = (
    "nvidia-smi",
    f"--query-gpu={','.join((*nvidia_smi.FIELDS, *MORE))}",
    "--format=csv,noheader,nounits",
)
# A shell that prints on login prints before the first mark.
SCRIPT = f"""\
mark() {{ printf '\\n%s %s %s\\n' '{_MARK}' "$1" "$2"; }}
mark begin 0
if command -v nvidia-smi >/dev/null 2>&1; then
  timeout -k 1 {nvidia_smi.TIMEOUT_S} {shlex.join(_QUERY)} 2>&1
  mark smi $?
else
  mark smi missing
fi
{shlex.join(kernel_log.RING)} 2>/dev/null |
  sed -n -e 1p -e '/NVRM: /p' -e '/nvidia-nv/p' | tail -c {_LOG_BYTES}
mark log 0
sed 's/"AllocResp": *"[^"]*"/"AllocResp":""/g' {kubelet_devices.CHECKPOINT} 2>/dev/null
mark checkpoint 0
"""
_END = re.compile(rf"^{_MARK} (?P<name>\w+) (?P<rc>\w+)\r?$", re.MULTILINE)
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,4})?", re.ASCII)
_KILLED = ("124", "137")  # by timeout(1)
_TIERS = (xids.HARDWARE, xids.RESET, xids.UNKNOWN, xids.APPLICATION, xids.INFORMATION)
BROKEN = (xids.HARDWARE, xids.RESET)


class Unreadable(ValueError):
    """The machine did not run the script; the message says what it printed."""

    def __init__(self, stdout: str) -> None:
        words = " ".join(stdout.split())[:120]
        super().__init__(f"the machine did not run the script: it printed {words or 'nothing'}")
        refusal = login_refusals.find(stdout)
        self.code = refusal.code if refusal else "NODE_NOT_OBSERVED"  # of the finding


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
    """Parse the output of the script. Raises Unreadable."""
    parts = _parts(stdout)
    rc, text = parts["smi"]
    _rc, log = parts.get("log", ("", ""))
    _rc, checkpoint = parts.get("checkpoint", ("", ""))
    answer, more = _answer(rc, text)
    events = kernel_log.parse(Output(rc=0, stdout=log, stderr=""), None)["events"]
    by_address: dict[str, list[Xid]] = {}
    for event in events:
        if event["source"] != kernel_events.SXID:
            by_address.setdefault(event["address"], []).append(_xid(event))
    devices = kubelet_devices.parse_checkpoint(checkpoint.strip())
    holders = _holders(devices) if devices else {}
    gpus = [_gpu(device, more, by_address, holders) for device in answer.devices]
    failure = answer.failure
    if failure and any(gpu["error"] for gpu in gpus):  # it is that of the GPU
        failure = None
    named = {gpu["address"] for gpu in gpus}
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


def _parts(stdout: str) -> dict[str, tuple[str, str]]:
    """Return the exit code and the text of each part of the output."""
    marks = list(_END.finditer(stdout))
    names = [mark["name"] for mark in marks]
    if names[:2] != ["begin", "smi"]:
        raise Unreadable(stdout)
    return {
        mark["name"]: (mark["rc"], stdout[before.end() : mark.start()])
        for before, mark in itertools.pairwise(marks)
    }


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
    code = None if rc in _KILLED else int(rc)
    return nvidia_smi.parse_answer(code, "\n".join(rows), ""), more


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


def _holders(devices: kubelet_devices.Devices) -> dict[str, list[str]]:
    """Return the UIDs of the pods that have a GPU, by its UUID."""
    found: dict[str, list[str]] = {}
    for uuid, pod in _pairs(devices):
        pods = found.setdefault(uuid, [])
        if pod not in pods:
            pods.append(pod)
    return found


def _pairs(devices: kubelet_devices.Devices) -> Iterator[tuple[str, str]]:
    for holding in devices["holdings"]:
        for device in holding["devices"]:
            uuid = kubelet_devices.gpu_uuid(device)
            if uuid:
                yield uuid, holding["pod"]
