# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Judge whether the driver works with every GPU on the PCI bus.

Judges the hardware part of an observation of metal.gpu.node_info. Each GPU on the bus needs a row
of nvidia-smi with its address and without an error. Other output of nvidia-smi is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read import pci
from ansible_collections.metal.gpu.plugins.module_utils.read.device_files import CONTROL, UVM
from ansible_collections.metal.gpu.plugins.module_utils.verdict import driver_causes
from ansible_collections.metal.gpu.plugins.module_utils.verdict.device_files import (
    quote_corrections,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.driver_causes import fell_off
from ansible_collections.metal.gpu.plugins.module_utils.verdict.health_words import quote_health
from ansible_collections.metal.gpu.plugins.module_utils.verdict.kernel_log import quote_log
from ansible_collections.metal.gpu.plugins.module_utils.verdict.machine import (
    is_driven_by_others,
    judge_holders,
    judge_kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import Device
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi import Failure

_INSTALL = (
    "run `ansible-playbook metal.gpu.site --limit {host}`, or `metal.gpu.docker_hosts` for a "
    "Docker host: the playbook installs the driver; with `nvidia_driver_source: present`, install "
    "the driver and nvidia-smi yourself"
)

_TROUBLE = (
    "run `nvidia-smi` and `dmesg | grep -i nvrm` on the node, and find the text in the table of "
    "the reference"
)
_REPLACE = "replace a GPU that fails again"
_AGAIN = (
    "if it fails again, read what `dmesg` has about its address, check that confidential computing "
    "is off, and run NVIDIA's field diagnostic"
)


def judge_hardware(host: str, node: Node, declared: int | None) -> Iterator[dict[str, str]]:
    if kind := [*judge_kind(host, node)]:
        yield from kind
        return
    slots = [gpu["address"] for gpu in node["pci"]]
    yield from judge_holders(host, node)
    devices, failure = node["nvml"]["devices"], node["nvml"]["failure"]
    if not slots:
        yield finding("NO_GPU", host)
    elif declared is not None and declared != len(slots):
        addresses = ", ".join(slots)
        yield finding(
            "GPU_COUNT_DIFFERS", host, declared=declared, found=len(slots), addresses=addresses
        )
    if not devices:
        if slots and not is_driven_by_others(node):
            causes = [] if _is_missing(node) else driver_causes.of_driver(node)
            error = _why_unavailable(node) + quote_log(node, slots) + driver_causes.texts(causes)
            remedy = _INSTALL.format(host=host) if _is_missing(node) else ""
            remedy = remedy or driver_causes.remedies(causes)
            yield finding("NVML_UNAVAILABLE", host, error=error, remedy=remedy)
        return
    lost = _lost(node)
    if lost:
        causes = driver_causes.of_gpus(node, lost)
        log = quote_log(node, lost) + driver_causes.texts(causes)
        number = sum(not pci.is_reserved(gpu) for gpu in node["pci"])
        yield finding(
            "NVML_COUNT_DIFFERS",
            host,
            pci=number,
            nvml=number - len(lost),
            addresses=", ".join(lost),
            log=log or _nothing_logged(node),
            remedy=driver_causes.remedies(causes),
        )
    contradictions = list(_contradictions(slots, devices))
    if contradictions:
        yield finding("NVML_CONTRADICTS", host, evidence="; ".join(contradictions))
    faulty: dict[str, list[Device]] = {}
    for gpu in devices:
        if gpu["error"] is not None:
            faulty.setdefault(gpu["error"], []).append(gpu)
    for error, gpus in faulty.items():
        named = [gpu["pci_address"] for gpu in gpus if gpu["pci_address"]]
        yield finding(
            "GPU_FAULTY",
            host,
            gpus=", ".join(map(_describe, gpus)),
            report="reports" if len(gpus) == 1 else "report",
            error=error,
            log=quote_log(node, named) + quote_health(node, named),
            again=_REPLACE if "lost" in error.lower() or fell_off(node, named) else _AGAIN,
        )
    # An error of single GPUs is already reported for these GPUs.
    if failure is not None and failure["message"] not in faulty:
        is_hanging = failure["code"] == "timeout"
        remedy = driver_causes.HANGING if is_hanging else _TROUBLE
        yield finding("NVML_TROUBLE", host, error=_with_exit_code(failure), remedy=remedy)


def named_gpus(node: Node) -> set[str | None]:
    """Return the addresses of the GPUs that NVML_COUNT_DIFFERS and GPU_FAULTY name."""
    devices = node["nvml"]["devices"]
    if not devices:
        return set()
    return {gpu["pci_address"] for gpu in devices if gpu["error"] is not None}.union(_lost(node))


def _lost(node: Node) -> list[str]:
    """Return the GPUs on the PCI bus that the driver does not show, and should."""
    found = {gpu["pci_address"] for gpu in node["nvml"]["devices"]}
    expected = [gpu["address"] for gpu in node["pci"] if not pci.is_reserved(gpu)]
    return [address for address in expected if address not in found]


def _nothing_logged(node: Node) -> str:
    """Return that no line of the kernel log explains it, unless nobody could read that."""
    return "" if node["kernel_log"]["error"] else "; the kernel logged nothing about them"


def _contradictions(slots: Sequence[str], devices: Sequence[Device]) -> Iterator[str]:
    """Yield contradictions: a GPU has exactly one row, and an address on the bus."""
    for words, cells in (
        ("the index", [gpu["index"] for gpu in devices]),
        ("the UUID", [gpu["uuid"] for gpu in devices]),
        ("the address", [gpu["pci_address"] for gpu in devices]),
    ):
        values = [value for value in cells if value is not None]
        for value in dict.fromkeys(value for value in values if values.count(value) > 1):
            yield f"{values.count(value)} rows have {words} {value}"
    for gpu in devices:
        if gpu["pci_address"] is None and gpu["error"] is None:
            yield f"{_describe(gpu)} has no PCI address"
        elif gpu["pci_address"] is not None and gpu["pci_address"] not in slots:
            yield f"{_describe(gpu)} is not on the PCI bus"


def _describe(gpu: Device) -> str:
    """Name a GPU by its index, PCI address and UUID, as far as they are observed."""
    names = [name for name in (gpu["pci_address"], gpu["uuid"]) if name]
    if gpu["index"] is None:
        return f"the GPU {' '.join(names)}".strip()
    return f"GPU {gpu['index']}" + (f" ({', '.join(names)})" if names else "")


def _why_unavailable(node: Node) -> str:
    failure = node["nvml"]["failure"]
    if failure is None:
        return "nvidia-smi lists no GPU"
    # What stands in its place is a finding of its own.
    paths = [file["path"] for file in (*node["device_files"], *node["device_obstacles"])]
    is_gone = "nvidia" in node["kernel"]["modules"] and CONTROL not in paths
    return _with_exit_code(failure) + (f"; {CONTROL} does not exist" if is_gone else "")


def _is_missing(node: Node) -> bool:
    failure = node["nvml"]["failure"]
    return failure is not None and failure["code"] == "not_installed"


def _with_exit_code(failure: Failure) -> str:
    """Return the message of a failure with its exit code and the meaning of that."""
    code = failure["exit_code"]
    return f"{failure['message']}" + (
        "" if code is None else f" (exit code {code}, {failure['code']})"
    )


def judge_cuda(host: str, node: Node) -> Iterator[dict[str, str]]:
    """Judge what CUDA programs need in addition to what nvidia-smi needs."""
    healthy = [gpu for gpu in node["nvml"]["devices"] if gpu["error"] is None]
    if not healthy or any(judge_kind(host, node)):
        return
    # What stands in the place of a file is a finding of its own.
    paths = [file["path"] for file in (*node["device_files"], *node["device_obstacles"])]
    of_gpus = [f"/dev/nvidia{gpu['minor']}" for gpu in healthy if gpu["minor"] is not None]
    gone = [path for path in dict.fromkeys((UVM, *of_gpus)) if path not in paths]
    missing = [f"{path} does not exist" for path in gone]
    unnumbered = ", ".join(_describe(gpu) for gpu in healthy if gpu["minor"] is None)
    if unnumbered:
        missing.append(
            f"the device files of {unnumbered} are unknown, because /proc/driver/nvidia/gpus does "
            "not have the minor numbers"
        )
    if "nvidia_uvm" not in node["kernel"]["modules"]:
        missing.insert(0, "the kernel module nvidia_uvm is not loaded")
    if missing:
        # The command for nvidia_uvm also loads it.
        created = gone if len(gone) == len(missing) else [UVM, *gone]
        yield finding(
            "CUDA_UNAVAILABLE",
            host,
            evidence=", ".join(missing),
            commands=quote_corrections(created),
        )
