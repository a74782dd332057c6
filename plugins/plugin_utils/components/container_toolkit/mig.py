# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does a CDI specification list the MIG instances that exist?

Nothing tells the toolkit's service that instances were created or destroyed, and the device plugin
writes its specification only at its start. The names of devices depend on settings, and a name such
as 0:0 can be another instance by now. So the files of each device are compared with those of the
instances. Source: tests/recorded/mig.yml
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import Device
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.cdi import gpu_number, part_number
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import Health
from ansible_collections.metal.gpu.plugins.module_utils.verdict.names import name_gpu

ON, _OFF = "Enabled", "Disabled"  # the MIG mode
_KINDS = ("nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu")
_Parts = Mapping[str, Collection[str]]  # the files of devices, such as 0:1


def former_parts(node: Node, complete: Collection[str]) -> dict[str, str]:
    """Return the specifications with other parts of GPUs than the node has, with the reason.

    `complete` are the paths of those that list everything. Others can omit parts on purpose.
    """
    parts = _parts(node)
    found = {}
    for path, devices in _devices(node).items():
        reasons = list(_of_modes(node, devices))
        if parts is not None:
            reasons += _past(devices, parts, is_complete=path in complete)
            reasons += _missing(devices, parts) if path in complete else ()
        if reasons:
            found[path] = reasons[0]
    return found


def perhaps_former(node: Node, complete: Collection[str]) -> dict[str, str]:
    """Return the specifications without any part of a GPU that perhaps has none, with the reason.

    These are GPUs whose MIG mode is on, and whose instances are not known. That is no reason to
    generate a specification: without an instance, the generator fails (exit code 1), and systemd
    gives up its service after five failures in a row.
    """
    found: dict[str, str] = {}
    for path, devices in _devices(node).items():
        has_parts = any(part_number(name) or name.startswith("MIG-") for name in devices)
        for gpu, report in _reports(node):
            if report["mig"] != ON or report["mig_instances"] is not None:
                continue
            if _is_whole(devices, gpu):
                found.setdefault(path, f"{name_gpu(gpu)} is whole, but its MIG mode is on")
            elif path in complete and not has_parts:
                found.setdefault(path, f"{name_gpu(gpu)} is missing, and its MIG mode is on")
    return found


def _devices(node: Node) -> dict[str, _Parts]:
    """Return the devices of each specification of GPUs, with their files of MIG instances."""
    found: dict[str, _Parts] = {}
    for path, names in node["cdi"]["names"].items():
        files = node["cdi"]["parts"].get(path, {})
        named = {name.partition("=")[2]: files.get(name, ()) for name in names if _is_gpu(name)}
        if named:
            found[path] = named
    return found


def _is_gpu(name: str) -> bool:
    return name.partition("=")[0] in _KINDS


def _reports(node: Node) -> list[tuple[Device, Health]]:
    """Return the usable GPUs that have a report."""
    reports = {gpu["pci_address"]: gpu for gpu in node["health"]["gpus"]}
    return [
        (gpu, reports[gpu["pci_address"] or ""])
        for gpu in node["nvml"]["devices"]
        if gpu["error"] is None and gpu["pci_address"] in reports
    ]


def _of_modes(node: Node, devices: _Parts) -> Iterator[str]:
    """Yield the GPUs whose MIG mode is another one than a specification shows."""
    for gpu, report in _reports(node):
        index = str(gpu["index"])
        parts = [name for name in devices if part_number(name) and gpu_number(name) == index]
        if parts and report["mig"] == _OFF:
            yield f"{name_gpu(gpu)} is in parts ({parts[0]}), but its MIG mode is off"
        if report["mig"] == ON and report["mig_instances"] is not None and _is_whole(devices, gpu):
            yield f"{name_gpu(gpu)} is whole, but its MIG mode is on"


def _is_whole(devices: _Parts, gpu: Device) -> bool:
    numbers = {gpu_number(name) for name in devices if not part_number(name)}
    return gpu["uuid"] in devices or str(gpu["index"]) in numbers


def _parts(node: Node) -> _Parts | None:
    """Return the MIG instances of the node; None if they are not known of every GPU."""
    reports = _reports(node)
    is_whole = node["nvml"]["complete"] and len(reports) == len(node["nvml"]["devices"])
    if node["health"]["error"] or not is_whole:
        return None
    found = {}
    for gpu, report in reports:
        instances = report["mig_instances"]
        if instances is None and report["mig"] != _OFF:  # a GPU that cannot be split has a list
            return None
        for one in instances or ():
            if one["index"] is None or not one["files"]:
                return None
            found[f"{gpu['index']}:{one['index']}"] = one["files"]
    return found


def _past(devices: _Parts, parts: _Parts, *, is_complete: bool) -> Iterator[str]:
    """Yield the devices of instances that are gone, and of those that are another one by now.

    The generator omits files that do not exist, without an error. A container gets no instance by
    such a device. In a file of the admin, something else may give the files.
    """
    here = {file for files in parts.values() for file in files}
    for name, files in devices.items():
        number = part_number(name)
        if number and number not in parts:
            yield f"{name} is a MIG instance that the node no longer has"
        elif number and not files:
            if is_complete:
                yield f"{name} lacks the device files of its MIG instance"
        elif number and not {*parts[number]} <= {*files}:
            yield f"{name} has the device files of another MIG instance"
        elif not {*files} <= here:
            yield f"{name} has device files of a MIG instance that the node no longer has"


def _missing(devices: _Parts, parts: _Parts) -> Iterator[str]:
    for number, files in parts.items():
        if not any({*files} <= {*some} for some in devices.values()):
            yield f"the MIG instance {number} is missing"
