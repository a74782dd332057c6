# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Say in a line where a GPU of a failing node disappears, and which findings explain it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE
from ansible_collections.metal.gpu.plugins.module_utils.verdict.layers import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.verdict.layers import Layer
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import SeenGpu

# Findings that explain a loss at a layer, although their text does not name the GPU.
_EXPLAIN = {
    "declared": ("GPU_COUNT_DIFFERS", "NO_GPU"),
    "pci": ("NVML_CONTRADICTS", "NO_GPU"),
    "device_files": ("CUDA_UNAVAILABLE", "DEVICE_FILE_OUTDATED", "DEVICE_FILE_BLOCKED"),
    "kernel": ("NVML_UNAVAILABLE", "NVML_COUNT_DIFFERS"),
    "nvml": ("NVML_UNAVAILABLE", "NVML_TROUBLE"),
    "fabric": ("FABRIC_", "SUBNET_MANAGER_"),
    "cdi": ("DRIFTED", "CDI_"),
    "plugin": ("CAPACITY_", "ALLOCATABLE_", "DEVICE_PLUGIN_", "GPU_UNHEALTHY", "GPU_RESOURCES_"),
    "computed": ("CUDA_UNAVAILABLE", "COMPUTE_", "SMOKE_", "POD_", "CDI_UNRESOLVABLE"),
}
# Findings that also list GPUs that are well.
_OF_ALL = ("GPU_COUNT_DIFFERS",)
_OF_CLUSTER = ("NODE_", "KUBELET_", "ENGINE_", "CLUSTER_")


def explain_losses(
    gpus: Iterable[SeenGpu],
    layers: Mapping[str, Layer],
    findings: Iterable[Mapping[str, str]],
) -> list[str]:
    """Return a line for each lost GPU: where it disappears, and the findings that explain it.

    GPUs that all disappear at the same place, for the same reason, are one line.
    """
    gpus, findings = list(gpus), [one for one in findings if one["severity"] != NOTICE]
    lost: dict[tuple[str, str], list[SeenGpu]] = {}
    for gpu in gpus:
        if gpu["lost_at"] is not None:
            place, why = gpu["lost_at"], _why(gpu, findings)
            lost.setdefault((place, why), []).append(gpu)
    lines = []
    for (place, why), some in lost.items():
        is_all = len(some) == len(gpus) > 1
        names = [f"all {len(gpus)} GPUs"] if is_all else list(map(_name, some))
        before = _before(place, some, layers)
        where = f"{before}, but not {NAMES[place]}" if before else f"not {NAMES[place]}"
        lines += [f"{name}: {where}{why}" for name in names]
    declared, on_bus = layers["declared"].number, layers["pci"].number
    if declared is not None and on_bus is not None and on_bus < declared:
        why = _codes(findings, _EXPLAIN["declared"])
        lines.insert(0, f"{declared - on_bus} of {declared} GPUs: not {NAMES['pci']}{why}")
    return lines


def _name(gpu: SeenGpu) -> str:
    return f"GPU {gpu['address']}" + (f" ({gpu['uuid']})" if gpu["uuid"] else "")


def _before(place: str, gpus: Iterable[SeenGpu], layers: Mapping[str, Layer]) -> str:
    """Return the last layer before one that has these GPUs."""
    order = list(NAMES)
    if place == "kernel":
        order.remove("device_files")  # nothing shows which of them is of a lost GPU
    for name in reversed(order[: order.index(place)]):
        known = layers[name].gpus
        if known is not None and all(gpu["address"] in known for gpu in gpus):
            return NAMES[name]
    return ""


def _why(gpu: SeenGpu, findings: Iterable[Mapping[str, str]]) -> str:
    """Return the codes of the findings that name the GPU, or else are about the layer."""
    findings = list(findings)
    names = [name for name in (gpu["address"], gpu["uuid"]) if name]
    named = [
        one
        for one in findings
        if one["code"] not in _OF_ALL and any(name in one["message"] for name in names)
    ]
    return _codes(
        named or findings, () if named else (*_EXPLAIN.get(gpu["lost_at"] or "", ()), *_OF_CLUSTER)
    )


def _codes(findings: Iterable[Mapping[str, str]], prefixes: tuple[str, ...]) -> str:
    codes = [one["code"] for one in findings if not prefixes or one["code"].startswith(prefixes)]
    return f": see {', '.join(dict.fromkeys(codes))}" if codes else "; no finding explains it"
