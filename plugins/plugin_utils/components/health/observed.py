# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPUs report of themselves. No I/O."""

from __future__ import annotations

from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.components.health import Values
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import Health
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


class GpuHealth(TypedDict):
    """The reports of all GPUs, or why they are missing or incomplete."""

    cuda_version: str | None  # the newest one that the driver supports
    error: str | None  # why there is no report, or only a part of it
    gpus: list[Health]  # the GPUs with a report


class Observed(TypedDict):
    """The health of the GPUs."""

    # what the GPUs report of themselves (`nvidia-smi -q -x`); None: not offered, or not known
    health: GpuHealth


def observe(raw: Raw) -> Observed:
    """Leave out the fabric, which is a component of its own."""
    report = cast(Values, raw.values("health"))["report"]
    gpus = [
        cast(Health, {key: value for key, value in gpu.items() if key != "fabric"})
        for gpu in report["gpus"]
    ]
    return {
        "health": {
            "cuda_version": report["cuda_version"],
            "error": report["error"],
            "gpus": gpus,
        }
    }
