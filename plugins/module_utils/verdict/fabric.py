# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Judge whether the GPUs that NVSwitches connect can run CUDA programs.

Without Fabric Manager, nvidia-smi lists all GPUs of such a node, the node is Ready, and every CUDA
program fails with error 802. The fabric state alone proves too little: it stays "Completed" after
Fabric Manager has ended. Where the NVSwitches are behind adapters, its service also starts nvlsm,
and systemd does not notice if nvlsm ends.

Source: NVIDIA/NVSentinel#883 (the state stays), NVIDIA/gpu-operator#2781 (Ready, and error 802)
Source: nvidia-fabricmanager-start.sh and the unit of Fabric Manager 580.178.04, in Ubuntu's package
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import (
    ADAPTER_MODULE,
    COMPLETED,
    MAD_MODULE,
    RIGHT,
    has_state,
    is_manager_package,
    is_unknown,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import generation
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.module_utils.verdict.kernel_log import name_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import FabricState
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import SmokeRow

_BY_MANAGER = (
    "read `nvidia-smi -q | grep -A 3 Fabric`, `journalctl -u nvidia-fabricmanager` and "
    "/var/log/fabricmanager.log on the node; if Fabric Manager runs, drain the node and reboot it, "
    "because a restart alone does not train the GPUs again"
)
# Without NVSwitches on the node, the switches are those of a rack (NVL72), and so is their manager.
_BY_RACK = (
    "read `nvidia-smi -q | grep -A 4 Fabric` and `systemctl status nvidia-imex` on the node: the "
    "fabric of a rack (NVL72) is set up by the NMX controller on its NVLink switches, without a "
    "Fabric Manager on the node; have the controller give the GPUs their partition, then drain the "
    "node and reboot it"
)
# In racks are the later ones. Source: NVIDIA/nccl-tests#260
_BY_HOST = (
    "the node has no NVSwitches, so it is a virtual machine whose host has them: have whoever runs "
    "the host activate the partition of these GPUs in its Fabric Manager, then drain the node and "
    "reboot it; `nvidia-smi -q | grep -A 3 Fabric` shows the state"
)
_OF_HGX = ("Ampere", "Hopper")
STOPPED = "FABRIC_MANAGER_STOPPED"
# With this FABRIC_MODE, GPUs wait for a partition, which another program activates.
PARTITIONS = 1
# States of a unit that has processes, or may have.
_CHANGING = ("activating", "reloading", "deactivating")


def is_needed(node: Node) -> bool:
    """Whether the node has NVSwitches that a Fabric Manager on the node has to configure."""
    return bool(node["fabric"]["switches"] or node["fabric"]["ports"])


def is_wordless(gpu: FabricState) -> bool:
    """Whether the driver has no words about the fabric of a GPU, which then may be ready."""
    return is_unknown(gpu["state"], gpu["status"])


def is_in_container(node: Node) -> bool:
    """Whether a Fabric Manager runs that is not the service of the node.

    While systemd starts or stops the service, its process is there and the unit is not active.
    """
    unit = node["fabric"]["manager"]
    is_service = unit and (unit["active"] or unit["state"].startswith(_CHANGING))
    return node["fabric"]["process"] and not is_service


def describe_switches(node: Node) -> str:
    """Return the NVSwitches with their addresses: "4 NVSwitches (0000:c4:00.0, …)"."""
    switches = [one["address"] for one in node["fabric"]["switches"]]
    if switches:
        return f"{len(switches)} NVSwitches ({', '.join(switches)})"
    return f"NVSwitches behind the adapters {', '.join(node['fabric']['ports'])}"


def judge_fabric(host: str, node: Node) -> Iterator[dict[str, str]]:
    """Judge the fabric of a node whose driver works. Without a driver there cannot be one."""
    version = node["nvml"]["driver_version"]
    if version is None:
        return
    manager = _judge_manager(host, node, version) if is_needed(node) else None
    if manager:
        yield manager
        return
    if node["fabric"]["ports"] and not node["fabric"]["subnet_manager"]:
        switches = describe_switches(node)
        yield finding("SUBNET_MANAGER_STOPPED", host, switches=switches, log=_log(node))
        return
    evidence = list(_unready(node))
    if evidence:
        if node["fabric"]["mode"] == PARTITIONS:
            evidence.append("FABRIC_MODE=1: the GPUs wait until a partition is activated")
        is_of_hgx = any(generation(gpu["device"]).name in _OF_HGX for gpu in node["pci"])
        way = _BY_HOST if is_of_hgx else _BY_RACK
        way = _BY_MANAGER if is_needed(node) else way
        states = "; ".join(evidence)
        yield finding("FABRIC_NOT_READY", host, states=states, log=_log(node), remedy=way)
        return
    unhealthy = list(_unhealthy(node))
    if unhealthy:
        yield finding("FABRIC_UNHEALTHY", host, states="; ".join(unhealthy), log=_log(node))


def _unready(node: Node) -> Iterator[str]:
    """Yield which GPUs are not in a fabric that is ready. Other findings are about broken GPUs."""
    states = {one["pci_address"]: one for one in node["fabric"]["states"]}
    is_whole = node["health"]["error"] is None
    expected = _expected(node)
    bad: dict[str, list[str]] = {}
    for address in _healthy(node):
        one = states.get(address)
        if one is None and address in expected and is_whole:
            bad.setdefault("no state", []).append(address)
        elif one and is_wordless(one):
            continue
        elif one and not (one["good"] and (one["state"] == COMPLETED or address not in expected)):
            bad.setdefault(f"{one['state']} ({one['status']})", []).append(address)
    for state, addresses in bad.items():
        yield f"{', '.join(addresses)}: {state}"


def _healthy(node: Node) -> list[str]:
    found = (gpu["pci_address"] for gpu in node["nvml"]["devices"] if gpu["error"] is None)
    return [address for address in found if address]


def _expected(node: Node) -> list[str]:
    """Return the GPUs that have a state: behind NVSwitches, unless the driver is too old."""
    has_states = is_needed(node) and bool(node["fabric"]["states"])
    return [gpu["address"] for gpu in node["pci"] if has_states and has_state(gpu)]


def judge_unknown(host: str, node: Node, smoke: SmokeRow | None) -> Iterator[dict[str, str]]:
    """Yield the GPUs whose fabric is unknown. Of those on which a program computed, it is ready."""
    results = smoke.get("results", ()) if smoke else ()
    computed = {one["uuid"] for one in results if one["ok"]}
    ready = {gpu["pci_address"] for gpu in node["nvml"]["devices"] if gpu["uuid"] in computed}
    expected = set(_expected(node)).intersection(_healthy(node)) - ready
    unknown: dict[str, list[str]] = {}
    for one in node["fabric"]["states"]:
        if one["pci_address"] in expected and is_wordless(one):
            words = f"{one['state']} ({one['status']})"
            unknown.setdefault(words, []).append(one["pci_address"])
    for words, addresses in unknown.items():
        error = f"the state of the fabric is {words}"
        gpus = name_gpus(node, *addresses)
        yield finding("GPU_HEALTH_UNKNOWN", host, gpus=gpus, error=error)


def _unhealthy(node: Node) -> Iterator[str]:
    """Yield what the driver reports of the links of GPUs whose fabric is ready."""
    for one in node["fabric"]["states"]:
        if not one["healthy"]:
            words = f"{one['pci_address']}: {one['health'] or 'no summary'}"
            wrong = one["misconfigured"]
            yield ", ".join(
                [
                    words,
                    *one["degraded"],
                    *([] if wrong in (None, RIGHT) else [f"configuration: {wrong}"]),
                ]
            )


def _judge_manager(host: str, node: Node, version: str) -> dict[str, str] | None:
    """Return what is wrong with Fabric Manager: the cause, and not what follows from it."""
    unit, switches = node["fabric"]["manager"], describe_switches(node)
    found = {
        name: package
        for name, package in node["fabric"]["packages"].items()
        if is_manager_package(name)
    }
    is_active = bool(unit and unit["active"])
    if is_in_container(node):  # in a version of its own
        return None
    if not (is_active or found or (unit and unit["installed"])):
        return finding("FABRIC_MANAGER_MISSING", host, switches=switches, version=version)
    others = [one for one in found.values() if upstream_version(one) != version]
    if others:
        evidence = {"found": ", ".join(others), "version": version, "log": _log(node)}
        return finding("FABRIC_MANAGER_VERSION", host, **evidence)
    if is_active:
        return None
    state = unit["state"] if unit else "systemd did not report its state"
    if unloaded := _unloaded(node):
        state += f"; not loaded: {', '.join(unloaded)}"
    return finding(STOPPED, host, switches=switches, state=state, log=_log(node))


def _unloaded(node: Node) -> list[str]:
    """Return the modules that Fabric Manager needs for these NVSwitches, and that are not loaded.

    Without the module of the adapters, it takes the node for one of an older generation.
    """
    names = (ADAPTER_MODULE, MAD_MODULE) if node["fabric"]["ports"] else ()
    return [name for name in names if name not in node["fabric"]["modules"]]


def _log(node: Node) -> str:
    """Return the last words of Fabric Manager, as the end of a message."""
    lines = node["fabric"]["log"]
    return f"; its log ends with: {' / '.join(lines)}" if lines else ""
