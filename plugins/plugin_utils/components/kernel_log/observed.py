# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed in the kernel log: errors of GPUs and NVSwitches. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.read import (
    kernel_events,
    kernel_log,
    kernel_words,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


class KernelEvent(kernel_events.Event):
    """An error, with the date of the last line."""

    last_date: str  # the same in UTC


class KernelLog(TypedDict):
    """What the kernel log has about GPUs since the driver was loaded."""

    sources: list[str]  # `dmesg`, and `journal` if the driver was loaded before its first line
    error: str | None  # why nothing was read, or not the whole time
    loaded: int | None  # seconds since boot when the driver was loaded, removed, or failed to load
    events: list[KernelEvent]  # the errors, each with all its lines
    unlisted: int  # number of lines about further errors, if there are more than 200 errors
    recovery: dict[str, int]  # code of the action that the driver asks for with Xid 154, by address
    uuids: dict[str, str]  # UUIDs that the log shows, by address
    # lines about GPUs that did not start, by address; empty: they name no GPU
    words: dict[str, list[kernel_words.Said]]


class Observed(TypedDict):
    """The kernel log."""

    # errors of GPUs and NVSwitches since the driver was loaded, without those that are over
    kernel_log: KernelLog


def observe(raw: Raw) -> Observed:
    log = cast(kernel_log.Log, raw.values("kernel_log"))
    booted = raw.clock["now"] - raw.clock["uptime"]
    events = [_event(one, booted) for one in log["events"]]
    return {"kernel_log": {**log, "events": events}}


def _event(event: kernel_events.Event, booted: float) -> KernelEvent:
    last = datetime.fromtimestamp(booted + event["last"], UTC)
    return {**event, "last_date": last.strftime("%Y-%m-%dT%H:%MZ")}
