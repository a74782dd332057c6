# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPUs report of themselves."""

from __future__ import annotations

from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import HealthPart
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.health import Values
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import Health
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


def observe(raw: Raw) -> HealthPart:
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
