# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The likely cause of a CUDA error where the node refutes the usual one.

What another finding explains does not come here: see compute.py.

Source: tests/recorded/cuda_errors.yml
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_errors, cuda_images
from ansible_collections.metal.gpu.plugins.module_utils.read.device_files import UVM, outdated
from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import COMPLETED
from ansible_collections.metal.gpu.plugins.module_utils.verdict.fabric import (
    is_in_container,
    is_needed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.read.cuda_errors import CudaError
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import SmokeRow

_SPECIFY = (
    "write the CDI specifications again with `systemctl restart nvidia-cdi-refresh.service`, and "
    "delete the device plugin's pod there"
)
_ON = "Enabled"
_WHOLE = "MIG splits the GPU, and the pod got the GPU instead of a MIG instance"
# The other strategy, "single", ends the plugin on each node of the cluster that has a whole GPU
# beside a split one: tests/recorded/device_plugin.yml.
_ASK_FOR_PARTS = (
    "have the device plugin hand out the instances as nvidia.com/mig-PROFILE, with "
    "`--mig-strategy=mixed` in device_plugin_args; if it does, delete the device plugin's pod "
    "there, as it counts the instances at its start"
)
_WHOLE_OF_DOCKER = (
    "MIG splits the GPU, and the container got the GPU instead of a MIG instance (with "
    "verify_docker_command, each container asks for a whole GPU)"
)
_ASK_DOCKER_FOR_PARTS = (
    "have containers ask for an instance, with `--gpus device=MIG-UUID` or `--device "
    "nvidia.com/gpu=0:0`; `nvidia-smi -L` and `nvidia-ctk cdi list` show the names; if the latter "
    "lacks instances, run `systemctl restart nvidia-cdi-refresh.service`"
)
# On a host without Kubernetes.
_WITHOUT_PODS = (
    ("delete the device plugin's pod", "restart Docker"),
    ("drain the node", "stop the containers"),
    ("where pods get", "where containers get"),
    ("the pod", "the container"),
)


def groups(
    error: CudaError, node: Node, smoke: SmokeRow, uuids: Sequence[str]
) -> dict[CudaError, list[str]]:
    """Return the error with each of its causes on this node, and the GPUs that have it.

    `uuids` are the GPUs with the error. What one of them reports says nothing about the others.
    """
    found: dict[CudaError, list[str]] = {}
    for uuid in uuids:
        found.setdefault(_on_host(error, node, smoke, uuid), []).append(uuid)
    return found


def _on_host(error: CudaError, node: Node, smoke: SmokeRow, uuid: str) -> CudaError:
    found = _on_node(error, node, smoke, uuid)
    if smoke.get("without_pod"):
        for words, instead in _WITHOUT_PODS:
            cause, remedy = (text.replace(words, instead) for text in (found.cause, found.remedy))
            found = found._replace(cause=cause, remedy=remedy)
    return found


def _on_node(error: CudaError, node: Node, smoke: SmokeRow, uuid: str) -> CudaError:
    if error.number == 35:
        return _of_library(error, node, smoke)
    if error.number == 36 and smoke.get("fits_driver"):
        return _of_entry_point(error, node)
    if error.number in (46, 100):
        return _of_modes(error, node, smoke, uuid)
    if error.number == 802:
        return _of_fabric(error, node)
    if error.number in (3, 999):
        return _of_uvm(error, node)
    return error


def _of_library(error: CudaError, node: Node, smoke: SmokeRow) -> CudaError:
    """A program whose image fits the driver has no other reason than a missing library."""
    driver = node["nvml"]["driver_version"]
    fits = smoke.get("fits_driver") or cuda_images.runs_with(smoke.get("image", ""), driver)
    if not fits:
        return error
    return error._replace(
        fault=cuda_errors.NODE,
        cause=f"the pod got no libcuda.so.1, as driver {driver} is new enough for the image",
        remedy=(
            "run `ldconfig -p | grep -F libcuda.so.1` on the node; if it prints nothing, install "
            f"the missing part of the driver; otherwise {_SPECIFY}; where pods get GPUs without "
            "CDI, NVIDIA_DRIVER_CAPABILITIES of the image must contain compute"
        ),
    )


def _of_entry_point(error: CudaError, node: Node) -> CudaError:
    """A library of the image looks for a function in libcuda, and does not find it."""
    driver = node["nvml"]["driver_version"]
    return error._replace(
        fault=cuda_errors.APPLICATION,
        cause=(
            f"driver {driver} is new enough for the image; a library in it may be too old for this "
            "driver, or newer than the image, or the pod got no libcuda.so.1"
        ),
        remedy=(
            "use a version of the library that was made for this driver; if the words before say "
            "that libcuda.so is not found, NVIDIA_DRIVER_CAPABILITIES of the image must contain "
            "compute"
        ),
    )


def _of_modes(error: CudaError, node: Node, smoke: SmokeRow, uuid: str) -> CudaError:
    gpu = next((one for one in node["health"]["gpus"] if one["uuid"] == uuid), None)
    is_split = gpu is not None and gpu["mig"] == _ON and bool(gpu["mig_instances"])
    mode = None
    if error.number == 46 and gpu is not None:
        mode = gpu["compute_mode"]
    if gpu is None or (mode is None and not is_split):
        return error
    causes, remedies = [], []
    if is_split:
        is_docker = smoke.get("without_pod")
        causes.append(_WHOLE_OF_DOCKER if is_docker else _WHOLE)
        remedies.append(_ASK_DOCKER_FOR_PARTS if is_docker else _ASK_FOR_PARTS)
    if mode not in (None, "Default"):
        causes.append(f"another process has the GPU, whose compute mode is {mode}")
        remedies.append("run `nvidia-smi -c DEFAULT` on the node")
    if gpu["mig"] == _ON and not is_split:
        causes.append("MIG mode is on and there is no MIG instance")
        remedies.append(
            "list the instances with `nvidia-smi -L` on the node, and create them, or switch MIG "
            "off with `nvidia-smi -mig 0`"
        )
    if not causes:
        causes.append("the GPU is lost, as its compute mode is Default and MIG is not on")
        remedies.append("drain the node and reboot it")
    if not is_split:
        remedies.append(cuda_errors.KERNEL_LOG)
    return error._replace(cause=", or ".join(causes), remedy="; ".join(remedies))


def _of_fabric(error: CudaError, node: Node) -> CudaError:
    if not is_needed(node):
        return error._replace(
            cause="the node has no NVSwitches; those of a virtual machine's host may not be ready",
            remedy=(
                f"in a virtual machine, check Fabric Manager on its host; {cuda_errors.KERNEL_LOG}"
            ),
        )
    unit, states = node["fabric"]["manager"], node["fabric"]["states"]
    is_running = is_in_container(node) or bool(unit and unit["active"])
    is_ready = bool(states) and all(one["good"] and one["state"] == COMPLETED for one in states)
    if not (is_running and is_ready):
        return error
    return error._replace(
        cause=(
            f"Fabric Manager runs and the GPUs report {COMPLETED}, but that state stays when "
            "Fabric Manager ends, and may be an earlier one's"
        ),
        remedy=(
            "read `journalctl -u nvidia-fabricmanager` on the node, drain the node and reboot it; "
            "read docs/fabric.md"
        ),
    )


def _of_uvm(error: CudaError, node: Node) -> CudaError:
    paths = [file["path"] for file in node["device_files"]]
    is_right = UVM in paths and UVM not in outdated(node["device_files"], node["device_majors"])
    if "nvidia_uvm" not in node["kernel"]["modules"] or not is_right:
        return error
    return error._replace(
        cause=(
            f"the pod lacks {UVM}, which is right on the node, where nvidia_uvm is loaded; or a "
            "GPU of the node is lost"
        ),
        remedy=(
            "run `grep -l nvidia-uvm /etc/cdi/* /var/run/cdi/*` on the node; if it prints nothing, "
            f"{_SPECIFY}; {cuda_errors.KERNEL_LOG}"
        ),
    )
