# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a machine description (files/machines/*.yml) to the machine.json of one node.

The same description and node name always give the same hardware. PCI addresses depend only on the
description. UUIDs and serial numbers also depend on the node's name, so that nodes of one model
differ.
"""

from __future__ import annotations

import functools
import hashlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

# Another one would give all GPUs new UUIDs, which documents show.
NAMESPACE = uuid.UUID("d20d47d4-8d76-5890-a185-df1e477d4775")

# The first bus of each of the two CPUs.
ROOT_BUSES = (0x03, 0x83)


def machine_json(description: Mapping[str, Any], node_name: str) -> dict[str, Any]:
    """The hardware of a node as silicon/node reads it.

    `functions` are all PCI functions in bus order. Those with a `gpu` are GPUs. `faults` are the
    faults that `hardware.py fault` injected.
    """
    functions = [*_gpu_functions(description["gpus"], node_name), *description.get("functions", [])]
    return {
        "node": node_name,
        "secure_boot": description.get("secure_boot"),
        "nouveau": description.get("nouveau", False),
        "functions": sorted(map(_complete, functions), key=lambda function: function["address"]),
        "faults": [],
    }


def _gpu_functions(groups: list[dict[str, Any]], node_name: str) -> Iterator[dict[str, Any]]:
    total = sum(group["count"] for group in groups)
    models = [group for group in groups for _gpu in range(group["count"])]
    for position, model in enumerate(models):
        slot, numa_node = _slot(position, total)
        address = f"{slot}.0"
        identity = f"{node_name}/{address}"
        yield {
            **model["pci"],
            "address": address,
            "vendor": "10de",
            "numa_node": numa_node,
            "gpu": {
                "name": model["model"],
                "uuid": f"GPU-{uuid.uuid5(NAMESPACE, identity)}",
                "serial": _serial(identity),
                **{
                    key: model[key]
                    for key in ("memory_mib", "compute_capability", "architecture", "power_w")
                },
                "mig": model.get("mig", False),
                "profiles": mig_profiles(model["model"]) if model.get("mig") else [],
            },
        }
        if audio := model.get("audio_device"):
            yield {
                "address": f"{slot}.1",
                "vendor": "10de",
                "device": audio,
                "class": "0403",
                "subsystem": model["pci"]["subsystem"],
                "numa_node": numa_node,
                "driver": "snd_hda_intel",
            }


@functools.cache
def _mig_record() -> dict[str, Any]:
    file = Path(__file__).parents[1] / "recorded/mig.yml"
    content: dict[str, Any] = yaml.safe_load(file.read_text())
    return content


def mig_profiles(model: str) -> list[dict[str, Any]]:
    """How MIG can split a model, as the record has it; empty if nobody has recorded it.

    `numbers` are those that its GPU instances get.
    """
    record = _mig_record()
    numbers = {row["slices"]: row["numbers"] for row in record["gpu instances"]}
    parts = [part for row in record["profiles"] if row["gpu"] == model for part in row["parts"]]
    return [{**part, "numbers": numbers[part["slices"]]} for part in parts]


def _slot(position: int, total: int) -> tuple[str, int]:
    """PCI address of a GPU without its function, and its CPU. Half of the GPUs are on each CPU."""
    first_half = (total + 1) // 2
    numa_node, offset = divmod(position, first_half)
    return f"0000:{ROOT_BUSES[numa_node] + offset:02x}:00", numa_node


def _serial(identity: str) -> str:
    """Thirteen digits, as on NVIDIA's data centre boards."""
    return f"{int(hashlib.sha256(identity.encode()).hexdigest(), 16) % 10**10 + 320 * 10**10:013d}"


def _complete(function: Mapping[str, Any]) -> dict[str, Any]:
    """A function with all default fields."""
    return {
        "subsystem": f"{function['vendor']}:0000",
        "revision": "00",
        "numa_node": int(int(function["address"].split(":")[1], 16) >= 0x80),
        "driver": None,  # what drives it when no GPU driver does
        **function,
    }
