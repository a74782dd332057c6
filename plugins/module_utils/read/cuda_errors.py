# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Recognise the words of a CUDA error: its number, whose fault it is, and the likely cause.

NVIDIA's programs print the words of an error, and not its number. The facts with their sources are
in tests/recorded/cuda_errors.yml.
"""

from __future__ import annotations

from typing import NamedTuple

GPU = "gpu"  # the GPU, or its links
NODE = "node"  # the driver, its files and services, or another program on the node
IMAGE = "image"  # the program does not fit the driver or the GPU, and says nothing about the GPU
APPLICATION = "application"  # the program itself; with NVIDIA's own programs, hardly


class CudaError(NamedTuple):
    """A CUDA error."""

    number: int
    words: str
    fault: str
    cause: str
    remedy: str


KERNEL_LOG = "read the kernel log with `dmesg | grep -i -e nvrm -e xid` on the node"
_UVM = "run `nvidia-modprobe -c 0 -u` on the node, and check that /dev/nvidia-uvm is there"
_OTHERS = "list the processes on the GPU with `nvidia-smi` on the node, and stop those that remain"
_APPLICATION = "the program failed, or the GPU was lost meanwhile"
_MPS = "check the MPS daemon of the node, or run the GPU without MPS"

# In this order: the words of one error may contain those of another.
_ERRORS = (
    CudaError(
        35,
        "CUDA driver version is insufficient for CUDA runtime version",
        IMAGE,
        "the driver is too old for the program, or the pod got no libcuda.so.1 of the driver",
        "",
    ),
    CudaError(
        36,
        "API call is not supported in the installed CUDA driver",
        IMAGE,
        "the program uses a function that is newer than the driver",
        "",
    ),
    CudaError(
        46,
        "are busy or unavailable",
        NODE,
        "another process has the GPU exclusively, MIG mode is on and there is no MIG instance, or "
        "the GPU is lost",
        "compare `nvidia-smi --query-gpu=index,compute_mode,mig.mode.current --format=csv` and "
        f"`nvidia-smi -L` on the node; {KERNEL_LOG}",
    ),
    CudaError(
        100,
        "no CUDA-capable device is detected",
        NODE,
        "the pod has no device files of the GPU, or the GPU needs a reset",
        "compare `nvidia-ctk cdi list` with `nvidia-smi -L` on the node, and delete the device "
        "plugin's pod there",
    ),
    CudaError(
        101,
        "invalid device ordinal",
        NODE,
        "CUDA sees fewer GPUs than nvidia-smi",
        "compare `nvidia-ctk cdi list` with `nvidia-smi -L` on the node",
    ),
    CudaError(
        209,
        "no kernel image is available for execution on the device",
        IMAGE,
        "the program was not built for this generation of GPUs",
        "",
    ),
    CudaError(
        214,
        "uncorrectable ECC error encountered",
        GPU,
        "the GPU's memory has an error that it cannot correct",
        "drain the node and reset the GPU or reboot; if it comes back, run NVIDIA's field "
        "diagnostic",
    ),
    CudaError(
        220,
        "uncorrectable NVLink error detected during the execution",
        GPU,
        "an NVLink of the GPU has an error",
        f"drain the node and reboot; {KERNEL_LOG}",
    ),
    CudaError(
        222,
        "the provided PTX was compiled with an unsupported toolchain",
        IMAGE,
        "the driver is too old to compile the program for this GPU",
        "",
    ),
    CudaError(
        700, "an illegal memory access was encountered", APPLICATION, _APPLICATION, KERNEL_LOG
    ),
    CudaError(
        702,
        "the launch timed out and was terminated",
        NODE,
        "the driver stopped the program after its time limit for GPUs with a display",
        "end the display server on the node",
    ),
    CudaError(
        719,
        "unspecified launch failure",
        GPU,
        "the GPU failed while it ran the program",
        f"{KERNEL_LOG}; drain the node and reset the GPU or reboot",
    ),
    CudaError(
        802,
        "system not yet initialized",
        NODE,
        "the fabric of the NVSwitches is not ready",
        "run `systemctl status nvidia-fabricmanager` on the node, and read docs/fabric.md",
    ),
    CudaError(
        803,
        "system has unsupported display driver / cuda driver combination",
        NODE,
        "libcuda.so.1 in the pod is not of the loaded kernel module: the driver was replaced and "
        "the node was not rebooted, or the image brings a libcuda of its own",
        "reboot the node if its driver was replaced; else choose an image without cuda-compat",
    ),
    CudaError(
        804,
        "forward compatibility was attempted on non supported HW",
        IMAGE,
        "the image brings a newer libcuda (cuda-compat), which this GPU does not support",
        "",
    ),
    *(
        CudaError(number, words, NODE, "the GPU's MPS daemon does not serve the program", _MPS)
        for number, words in (
            (805, "MPS client failed to connect to the MPS control daemon or the MPS server"),
            (806, "the remote procedural call between the MPS server and the MPS client failed"),
            (807, "MPS server is not ready to accept new MPS client requests"),
            (808, "the hardware resources required to create MPS client have been exhausted"),
            (809, "the hardware resources required to support device connections have been"),
            (810, "the MPS client has been terminated by the server"),
        )
    ),
    CudaError(
        2,
        "out of memory",
        NODE,
        "another program has the memory of the GPU, or of the pod",
        _OTHERS,
    ),
    CudaError(
        3,
        "initialization error",
        NODE,
        "CUDA cannot start in the pod",
        f"{_UVM}; {KERNEL_LOG}",
    ),
    CudaError(
        999,
        "unknown error",
        NODE,
        "mostly the kernel module nvidia_uvm is not loaded, or the pod lacks /dev/nvidia-uvm; or "
        "another GPU of the node is lost",
        f"{_UVM}; {KERNEL_LOG}",
    ),
)

ERRORS = {error.number: error for error in _ERRORS}
# The program compared the result on the host.
WRONG_RESULT = "Result verification failed"


def recognise(text: str) -> CudaError | None:
    """Return the error whose words a program has printed; None if there are none."""
    lowered = text.lower()
    return next((error for error in _ERRORS if error.words.lower() in lowered), None)
