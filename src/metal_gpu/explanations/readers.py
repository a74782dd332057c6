# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read an error line with what verify reads its own evidence with.

These readers know more than a text: the number of an Xid, what CUDA means by an error, the runtime
that an engine does not have. A line tells nothing about the rest of the node, so names that verify
would fill in are written as NODE or IMAGE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import causes, pull_causes
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause, Subject
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    cuda_errors,
    driver_words,
    kernel_log,
    xids,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_events import (
    LOST,
    SXID,
    XID,
    Event,
    is_fatal_of_switch,
    meaning,
    tier,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
from ansible_collections.metal.gpu.plugins.module_utils.verdict.kernel_log import remedy_of_line

_NODE = "NODE"
_POD = Subject(
    *("the pod", _NODE, "NAMESPACE", "verify_smoke_tolerations", "verify_smoke_namespace"),
    "set verify_smoke_resources",
)
_XID = re.compile(r"\bXid[\s_=:#-]{0,2}(?P<number>\d{1,4})\b", re.IGNORECASE)
_CUDA = re.compile(
    r"(?<![\w-])(?:CUDA|cudaError\w*|error(?: code)?)[\s(:=]{1,3}(?:error[\s:=]{1,2})?"
    r"(?P<number>\d{1,3})\b",
    re.IGNORECASE,
)
# The names of errors that programs print without their words, as the driver's and the runtime's
# interface have them, in small letters without underscores.
_NAMED = re.compile(r"\b(?:CUDA_ERROR|cudaError)_?(?P<name>\w+)")
_NAMES = {
    "insufficientdriver": 35,
    "deviceunavailable": 46,
    "devicesunavailable": 46,
    "nodevice": 100,
    "invaliddevice": 101,
    "nobinaryforgpu": 209,
    "nokernelimagefordevice": 209,
    "eccuncorrectable": 214,
    "nvlinkuncorrectable": 220,
    "unsupportedptxversion": 222,
    "illegaladdress": 700,
    "launchtimeout": 702,
    "launchfailed": 719,
    "launchfailure": 719,
    "systemnotready": 802,
    "systemdrivermismatch": 803,
    "compatnotsupportedondevice": 804,
    "outofmemory": 2,
    "memoryallocation": 2,
    "notinitialized": 3,
    "initializationerror": 3,
    "unknown": 999,
}
# Other programs use words and numbers of CUDA errors for errors of their own: NVML, NVIDIA's
# container tools, nvidia-smi, the device plugin, apt and make.
_NOT_OF_CUDA = re.compile(
    r"\bNVML\b|\bDCGM\b|nvidia-container-cli|device handle for|\[Unknown Error\]"
    r"|waiting for event: |Sub-process \S+ returned an error code|\*\*\* \[.*\] Error ",
    re.IGNORECASE,
)
# A lost GPU keeps containers from starting; nvidia-smi and the kernel name such a GPU, too.
_OF_CONTAINER = re.compile(r"container|\bCDI\b|\bOCI\b|\bpod\b", re.IGNORECASE)
_PULL = re.compile(r"\bpull|manifest|registry|oauth token|anonymous token|basic auth|\bimage\b")
_IMAGE = re.compile(
    r"""(?:image|for) \\?["']?(?P<image>[\w.-]+(?::\d+)?/[\w./-]+(?:[:@][\w.:-]+)?)"""
)

_BOUND_BY = {"nouveau": "NOUVEAU_LOADED", "vfio": "GPU_PASSED_THROUGH"}
# Others are about one GPU, which nvidia-smi then does not list.
_DRIVER = {
    driver_words.OPEN: "FLAVOUR_UNSUPPORTED",
    driver_words.NEEDS_OPEN: "FLAVOUR_UNSUPPORTED",
    driver_words.LEGACY: "GPU_UNSUPPORTED_BY_DRIVER",
    driver_words.RELEASE: "GPU_UNSUPPORTED_BY_DRIVER",
    driver_words.SIGNATURE: "SECURE_BOOT_ON",
    driver_words.MISMATCH: "REBOOT_NEEDED",
    driver_words.SYMBOLS: "MODULE_REJECTED",
}

_LEFT_ALONE = {
    xids.APPLICATION: (
        "read the log of the program; the GPU itself works, and no finding is reported"
    ),
    xids.INFORMATION: "nothing to do; no finding is reported",
}


class Reading(NamedTuple):
    """What a reader makes of a text."""

    code: str | None  # of a finding; None: this is no finding
    title: str
    cause: str
    remedy: str  # empty: that of the finding


def read(text: str) -> list[Reading]:
    """Return what the readers make of a text, the surest one first."""
    found = [*_kernel_log(text), *_driver(text)] or [*_cuda(text), *_cluster(text)]
    return list({(one.code, one.title): one for one in reversed(found)}.values())[::-1]


def _kernel_log(text: str) -> Iterator[Reading]:
    events = kernel_log.parse(Output(0, text, ""), None)["events"]
    for event in events:
        yield _of_event(event)
    if not events and (match := _XID.search(text)):
        yield _of_event(_event(int(match["number"])))


def _event(number: int) -> Event:
    """Return the event of a number without its line. The graver meaning of the number counts."""
    return {
        "source": XID,
        "address": "ADDRESS",
        "number": number,
        "count": 1,
        "first": 0,
        "last": 0,
        "line": "Fatal",
    }


def _of_event(event: Event) -> Reading:
    if event["source"] == SXID:
        title = f"SXid {event['number']}"
        if is_fatal_of_switch(event):
            return Reading("NVSWITCH_ERROR_LOGGED", title, "a fatal error of an NVSwitch", "")
        return Reading(None, title, "an error of an NVSwitch that is not fatal", "nothing to do")
    found, weight = meaning(event), tier(event)
    title = "GPU off the bus" if event["source"] == LOST else f"Xid {event['number']}"
    action = f". NVIDIA's action: {found.action}" if found.action else ""
    is_known = event["number"] is None or event["number"] in xids.XIDS
    cause = f"{title}: {found.meaning}{action}" if is_known else f"{title} has no known meaning"
    if weight in (xids.HARDWARE, xids.RESET):
        return Reading("GPU_ERROR_LOGGED", title, cause, remedy_of_line(event))
    if weight == xids.UNKNOWN:
        unknown = f"{cause}; what it means for the GPU is not known" if is_known else cause
        return Reading("XID_UNKNOWN", title, unknown, "")
    return Reading(None, title, cause, _LEFT_ALONE[weight])


def _driver(text: str) -> Iterator[Reading]:
    words = driver_words.find(text)
    if words is None or words.is_generic:
        return
    code = _DRIVER.get(words.kind, "NVML_COUNT_DIFFERS")
    if words.kind == driver_words.BOUND:
        owner = (found for name, found in _BOUND_BY.items() if name in text)
        code = next(owner, "NVML_COUNT_DIFFERS")
    yield Reading(code, f"driver: {words.kind}", words.cause, words.remedy)


def _cuda(text: str) -> Iterator[Reading]:
    if _NOT_OF_CUDA.search(text):
        return
    error = cuda_errors.recognise(text)
    match = _CUDA.search(text)
    if error is None and match:
        error = cuda_errors.ERRORS.get(int(match["number"]))
    if error is None and (named := _NAMED.search(text)):
        name = named["name"].replace("_", "").lower()
        error = cuda_errors.ERRORS.get(_NAMES.get(name, 0))
    if error is None:
        return
    code = "COMPUTE_IMAGE_UNFIT" if error.fault == cuda_errors.IMAGE else "COMPUTE_FAILED"
    cause = f"CUDA error {error.number} ({error.words}): {error.cause}"
    yield Reading(code, f"CUDA error {error.number}", cause, error.remedy)


def _cluster(text: str) -> Iterator[Reading]:
    image = _IMAGE.search(text)
    if _PULL.search(text):
        name = image["image"] if image else "registry.example/IMAGE"
        yield from _of_cause(pull_causes.of_pull(text, name, "verify_compute_image"))
    words = causes.of_words(text, _POD)
    if words is None or words.code != "GPU_BLOCKS_CONTAINERS" or _OF_CONTAINER.search(text):
        yield from _of_cause(words)
    yield from _of_cause(causes.of_refusal(text, _POD))


def _of_cause(cause: Cause | None) -> Iterator[Reading]:
    if cause is not None:
        found = finding(cause.code, _NODE, **cause.evidence)
        message = found["message"].removeprefix(f"{_NODE}: ")
        yield Reading(cause.code, cause.code, message, found["remedy"])
