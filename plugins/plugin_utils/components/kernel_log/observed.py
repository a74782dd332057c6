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

    last_date: str


class KernelLog(TypedDict):
    """What the kernel log has about GPUs since the driver was loaded."""

    sources: list[str]
    error: str | None
    loaded: int | None
    events: list[KernelEvent]
    unlisted: int
    recovery: dict[str, int]
    uuids: dict[str, str]
    words: dict[str, list[kernel_words.Said]]


class Observed(TypedDict):
    """The kernel log."""

    kernel_log: KernelLog


def observe(raw: Raw) -> Observed:
    log = cast(kernel_log.Log, raw.values("kernel_log"))
    booted = raw.clock["now"] - raw.clock["uptime"]
    events = [_event(one, booted) for one in log["events"]]
    return {"kernel_log": {**log, "events": events}}


def _event(event: kernel_events.Event, booted: float) -> KernelEvent:
    last = datetime.fromtimestamp(booted + event["last"], UTC)
    return {**event, "last_date": last.strftime("%Y-%m-%dT%H:%MZ")}
