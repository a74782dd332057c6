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

    cuda_version: str | None
    error: str | None
    gpus: list[Health]


class Observed(TypedDict):
    """The health of the GPUs."""

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
