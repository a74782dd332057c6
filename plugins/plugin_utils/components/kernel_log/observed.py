# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed in the kernel log: errors of GPUs and NVSwitches. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.read import kernel_events, kernel_log
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


class KernelEvent(TypedDict):
    """An error that the driver reported once or several times."""

    source: str
    address: str
    number: int | None
    count: int
    first: int
    last: int
    last_date: str
    line: str


class KernelLog(TypedDict):
    """What the kernel log has about GPUs since the driver was loaded."""

    sources: list[str]
    error: str | None
    loaded: int | None
    events: list[KernelEvent]
    unlisted: int
    recovery: dict[str, int]
    uuids: dict[str, str]


class Observed(TypedDict):
    """The kernel log."""

    kernel_log: KernelLog


def observe(raw: Raw) -> Observed:
    log = cast(kernel_log.Log, raw.values("kernel_log"))
    booted = raw.clock["now"] - raw.clock["uptime"]
    return {
        "kernel_log": {
            "sources": log["sources"],
            "error": log["error"],
            "loaded": log["loaded"],
            "events": [_event(one, booted) for one in log["events"]],
            "unlisted": log["unlisted"],
            "recovery": log["recovery"],
            "uuids": log["uuids"],
        }
    }


def _event(event: kernel_events.Event, booted: float) -> KernelEvent:
    last = datetime.fromtimestamp(booted + event["last"], UTC)
    return {
        "source": event["source"],
        "address": event["address"],
        "number": event["number"],
        "count": event["count"],
        "first": event["first"],
        "last": event["last"],
        "last_date": last.strftime("%Y-%m-%dT%H:%MZ"),
        "line": event["line"],
    }
