# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which kernel module supports every GPU of a node?"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan


def choose_flavour(plan: Plan[Data], node: Node, desired: Desired) -> str | None:
    """Return the module flavour that supports every GPU of the node, or refuse."""
    gpus: dict[gpu_models.Generation, list[GpuRow]] = {}
    for gpu in node["pci"]:
        gpus.setdefault(gpu_models.generation(gpu["device"]), []).append(gpu)
    for generation, alike in gpus.items():
        if not gpu_models.supports(generation, desired["version"]):
            plan.refuse(
                "GPU_UNSUPPORTED_BY_DRIVER",
                addresses=_addresses(alike),
                generation=generation.name,
                devices=", ".join(dict.fromkeys(gpu["device"] for gpu in alike)),
                version=desired["version"],
                expected=gpu_models.branches(generation),
            )
    candidates = (
        (gpu_models.OPEN, gpu_models.PROPRIETARY)
        if desired["flavour"] == "auto"
        else (desired["flavour"],)
    )
    for flavour in candidates:
        if all(flavour in generation.flavours for generation in gpus):
            return flavour
    plan.refuse(
        "FLAVOUR_UNSUPPORTED",
        flavour=desired["flavour"],
        evidence="; ".join(
            f"{generation.name} needs {' or '.join(generation.flavours)} ({_addresses(alike)})"
            for generation, alike in gpus.items()
        ),
    )
    return None


def _addresses(gpus: Iterable[GpuRow]) -> str:
    return ", ".join(gpu["address"] for gpu in gpus)
