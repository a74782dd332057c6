# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Is this a kind of machine that the collection does not serve, and who has its GPUs?

A virtual machine that has whole GPUs is like any other machine. A part of a GPU (vGPU) needs the
guest driver of the hypervisor's vGPU release: before any driver is loaded, nothing on the PCI bus
tells such a part from a whole GPU, so what a driver has said before counts.

Source: tests/recorded/driver_words.yml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import driver_words, gpu_models, pci
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import HOST_VGPU, VGPU
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node

_WSL = "microsoft"
_HOST_MODULE = "nvidia_vgpu_vfio"
# GRID V100D-8C, NVIDIA A40-48Q, NVIDIA A100-1-5CME
_PROFILE = re.compile(r"GRID .+|.+-\d+(?:-\d+)?[ABCQ](?:ME)?")
_VERSION = re.compile(r"\b\d{3}\.\d+(?:\.\d+)?\b")


def is_vgpu_guest(node: Node) -> bool:
    """Whether a driver shows that the GPUs of a virtual machine are parts of GPUs."""
    modes = {gpu["virtualization"] for gpu in node["health"]["gpus"]}
    names = [gpu["name"] or "" for gpu in node["nvml"]["devices"]]
    return VGPU in modes or any(map(_PROFILE.fullmatch, names))


def judge_kind(host: str, node: Node) -> Iterator[dict[str, str]]:
    """Yield that this kind of machine is not supported, whatever its driver does."""
    release = node["kernel"]["release"] or ""
    modes = {gpu["virtualization"] for gpu in node["health"]["gpus"]}
    kind = ""
    if _WSL in release.lower():
        kind = f"the Windows Subsystem for Linux (kernel {release}): Windows has the GPU's driver"
    elif _HOST_MODULE in node["kernel"]["modules"] or HOST_VGPU in modes:
        kind = (
            f"a host of virtual GPUs (kernel module {_HOST_MODULE}): its driver serves virtual "
            "machines, and no CUDA programs"
        )
    if kind:
        yield finding("MACHINE_UNSUPPORTED", host, kind=kind)


def judge_words(host: str, node: Node, planned: str | None) -> Iterator[dict[str, str]]:
    """Yield that a driver has said what only a vGPU or confidential computing makes it say.

    For a node whose driver does not work, or is not there. An older driver than the planned one may
    not know a model that is newer than itself, although it knows the generation.
    """
    devices = {gpu["address"]: gpu["device"] for gpu in node["pci"]}
    for address, said in node["kernel_log"]["words"].items():
        for one in said:
            device, version = devices.get(address), _VERSION.search(one["line"])
            if one["kind"] == driver_words.CONFIDENTIAL:
                kind = "a GPU in confidential computing mode, outside of a confidential machine"
            elif (
                one["kind"] == driver_words.RELEASE
                and device
                and version
                and planned
                and release(version[0]) >= release(planned)
                and gpu_models.supports(gpu_models.generation(device), version[0])
            ):
                kind = (
                    f"a virtual GPU (vGPU), or one in confidential computing mode: driver "
                    f"{version[0]} supports the model of {address}, and has refused it"
                )
            else:
                continue
            words = f"{kind} (the driver logged: {one['line']})"
            yield finding("MACHINE_UNSUPPORTED", host, kind=words)
            return


def judge_holders(host: str, node: Node) -> Iterator[dict[str, str]]:
    """Yield which GPUs a driver of the kernel has that the role cannot block."""
    held = [
        f"{gpu['address']} ({gpu['driver']})"
        for gpu in node["pci"]
        if pci.is_held(gpu) and not pci.rival(gpu)
    ]
    if held:
        yield finding("GPU_PASSED_THROUGH", host, addresses=", ".join(held))


def is_driven_by_others(node: Node) -> bool:
    """Whether no GPU is left for NVIDIA's driver."""
    return bool(node["pci"]) and all(pci.is_held(gpu) and not pci.rival(gpu) for gpu in node["pci"])
