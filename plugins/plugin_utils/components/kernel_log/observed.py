# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed in the kernel log: errors of GPUs and NVSwitches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import (
    KernelEvent,
    KernelLogPart,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import kernel_events, kernel_log
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


def observe(raw: Raw) -> KernelLogPart:
    log = cast(kernel_log.Log, raw.values("kernel_log"))
    booted = raw.clock["now"] - raw.clock["uptime"]
    events = [_event(one, booted) for one in log["events"]]
    return {"kernel_log": {**log, "events": events}}


def _event(event: kernel_events.Event, booted: float) -> KernelEvent:
    last = datetime.fromtimestamp(booted + event["last"], UTC)
    return {**event, "last_date": last.strftime("%Y-%m-%dT%H:%MZ")}
