# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which GPUs does each layer of a node have, and where does a GPU disappear?

A layer has a set of GPUs, by PCI address, or only a number. A layer that was not asked, or that
this node does not have, has neither. docs/decisions/041-layers-are-sets.md
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import LIST
from ansible_collections.metal.gpu.plugins.module_utils.read.cdi import gpu_number
from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import COMPLETED
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet_devices import gpu_uuid
from ansible_collections.metal.gpu.plugins.module_utils.verdict.compute import proven
from ansible_collections.metal.gpu.plugins.module_utils.verdict.fabric import is_needed, is_wordless

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import (
        ClusterRow,
        SeenGpu,
        SeenLayer,
        SmokeRow,
    )

# In this order, from the machine to the pods, with what a sentence calls them.
NAMES = {
    "declared": "in gpu_count",
    "pci": "on the PCI bus",
    "device_files": "among the device files",
    "kernel": "in the kernel module",
    "nvml": "in nvidia-smi",
    "fabric": "in the fabric",
    "cdi": "in the CDI specification",
    "plugin": "registered by the device plugin",
    "capacity": "in the node's capacity",
    "allocatable": "in the node's allocatable",
    "label": "in the label nvidia.com/gpu.count",
    "computed": "proven by a pod",
}
_OF_FILES = ("cdi", "plugin")
_FILE = re.compile(r"/dev/nvidia(?P<minor>\d+)")
# The kinds of the devices of the toolkit and of the device plugin.
_CDI = re.compile(r"(?:k8s\.device-plugin\.)?nvidia\.com/gpu=(?P<name>.+)")
_PART = "MIG-"
_COUNT = "nvidia.com/gpu.count"
_MIG_ON = "Enabled"


class Layer(NamedTuple):
    """What one layer has."""

    number: int | None = None
    gpus: frozenset[str] | None = None  # addresses


def _set(addresses: Iterable[str | None]) -> Layer:
    gpus = frozenset(address for address in addresses if address)
    return Layer(len(gpus), gpus)


def look(
    node: Node | None, declared: int | None, cluster: ClusterRow | None, smoke: SmokeRow | None
) -> dict[str, Layer]:
    """Return every layer of a node, in order."""
    layers = dict.fromkeys(NAMES, Layer())
    layers["declared"] = Layer(declared)
    if node is not None:
        layers |= _of_machine(node)
    if cluster is not None:
        amounts = offered(cluster)
        layers["capacity"] = Layer(amounts["capacity"])
        layers["allocatable"] = Layer(amounts["allocatable"])
        count = (cluster.get("labels") or {}).get(_COUNT, "")
        layers["label"] = Layer(int(count)) if count.isdecimal() else Layer()
    if smoke is not None and node is not None and smoke["uuids"]:
        addresses = _addresses(node)
        layers["computed"] = _set(addresses.get(uuid) for uuid in proven(smoke))
    return layers


def offered(cluster: ClusterRow) -> dict[str, int | None]:
    """Return capacity and allocatable of a node: of shares and parts, where GPUs have some."""
    wanted, found = cluster.get("wanted"), cluster.get("resources") or {}
    # The kubelet keeps a former name for a while, of which nothing is allocatable.
    names = (wanted["resources"] or {}) if wanted else {}
    amounts = [one for name, one in found.items() if name in names or one["allocatable"]]
    if not wanted or not wanted["source"] or not amounts:
        return {"capacity": cluster["capacity"], "allocatable": cluster["allocatable"]}
    return {
        "capacity": sum(one["capacity"] for one in amounts),
        "allocatable": sum(one["allocatable"] for one in amounts),
    }


def split_gpus(node: Node) -> int | None:
    """Return how many GPUs are in MIG mode; None if that is unknown of one of them."""
    seen = {gpu["pci_address"]: gpu for gpu in node["health"]["gpus"]}
    if node["health"]["error"] or {gpu["address"] for gpu in node["pci"]} - seen.keys():
        return None
    # A GPU that cannot be split has no mode.
    return sum(gpu["mig"] == _MIG_ON for gpu in seen.values())


def as_rows(layers: Mapping[str, Layer]) -> dict[str, SeenLayer]:
    """Return the layers as a verdict has them."""
    return {
        name: {
            "number": layer.number,
            "gpus": None if layer.gpus is None else sorted(layer.gpus),
        }
        for name, layer in layers.items()
    }


def _addresses(node: Node) -> dict[str, str]:
    """Return the address of each UUID that some layer of the machine knows."""
    found = {uuid: address for address, uuid in node["kernel_log"]["uuids"].items()}
    found |= {one["uuid"]: address for address, one in node["nvml"]["bound"].items() if one["uuid"]}
    for gpu in node["nvml"]["devices"]:
        if gpu["uuid"] and gpu["pci_address"]:
            found[gpu["uuid"]] = gpu["pci_address"]
    return found


def _of_machine(node: Node) -> dict[str, Layer]:
    bound, devices = node["nvml"]["bound"], node["nvml"]["devices"]
    # Only the kernel module knows which file is of which GPU. It may have lost the GPU.
    files = Layer()
    minors = {one["minor"]: address for address, one in bound.items() if one["minor"] is not None}
    if minors:
        paths = (_FILE.fullmatch(file["path"]) for file in node["device_files"])
        there = {minors.get(int(match["minor"])) for match in paths if match}
        unknown = {gpu["address"] for gpu in node["pci"]}.difference(minors.values())
        files = _set(there | unknown)
    healthy = [gpu["pci_address"] for gpu in devices if gpu["error"] is None]
    return {
        "pci": _set(gpu["address"] for gpu in node["pci"]),
        "device_files": files,
        "kernel": _set(bound) if bound or not devices else Layer(),
        # A row without an address counts, but is no known GPU.
        "nvml": Layer(len(healthy), frozenset(filter(None, healthy)))
        if all(healthy)
        else Layer(len(healthy)),
        "fabric": _fabric(node),
        "cdi": _cdi(node),
        "plugin": _plugin(node),
    }


def _fabric(node: Node) -> Layer:
    """Return the GPUs whose fabric is ready, of a node that has one and says which these are."""
    states = node["fabric"]["states"]
    if not states or not is_needed(node):
        return Layer()
    ready = {
        one["pci_address"]
        for one in states
        if (one["good"] and one["state"] == COMPLETED) or is_wordless(one)
    }
    # GPUs without a state, such as PCIe cards, are in no fabric.
    without = {gpu["address"] for gpu in node["pci"]} - {one["pci_address"] for one in states}
    return _set(ready | without)


def _cdi(node: Node) -> Layer:
    """Return the GPUs that a CDI specification names, by UUID or index, whole or in parts."""
    named = {match["name"] for name in node["cdi"]["devices"] if (match := _CDI.fullmatch(name))}
    of_uuid = _addresses(node)
    of_index = {
        str(gpu["index"]): gpu["pci_address"]
        for gpu in node["nvml"]["devices"]
        if gpu["index"] is not None
    }
    places = {name: of_uuid.get(name) or of_index.get(gpu_number(name) or "") for name in named}
    if not any(places.values()):
        return Layer()
    # The UUID of a part does not say of which GPU it is. Its index, such as 0:1, does.
    parts = [name for name in named if name.startswith(_PART)]
    indices = [name for name, place in places.items() if place and ":" in name]
    if len(parts) > len(indices):
        return Layer(len(set(places.values()) - {None}) + len(parts) - len(indices))
    return _set(places.values())


def _plugin(node: Node) -> Layer:
    """Return the GPUs that a device plugin registered as healthy, as the kubelet has noted it."""
    devices = node["kubelet"]["devices"]
    if devices is None or not node["kubelet"]["running"]:
        return Layer()
    ids = [one for found in devices["registered"].values() for one in found]
    uuids = {gpu_uuid(one) for one in ids}
    if None in uuids:  # some are parts of GPUs, or names of another plugin
        return Layer(len(ids))
    addresses = _addresses(node)
    return _set(addresses.get(uuid or "") for uuid in uuids)


def trace(node: Node | None, layers: Mapping[str, Layer], smoke: SmokeRow | None) -> list[SeenGpu]:
    """Return each GPU of a node with the first layer that lacks it."""
    if node is None:
        return []
    uuids = {address: uuid for uuid, address in _addresses(node).items()}
    machine = [layers[name].gpus or frozenset() for name in ("pci", "kernel", "nvml")]
    holders = busy_gpus(node, smoke)
    free = _proven(layers["computed"], smoke, holders.values())
    has = layers["computed"].gpus or frozenset()
    is_listed = smoke is not None and smoke.get("level", LIST) == LIST
    found: list[SeenGpu] = []
    for address in sorted({address for gpus in machine for address in gpus}):
        uuid = uuids.get(address)
        holder = holders.get(uuid or "") if address not in has else None
        is_proven = True if address in has else False if free and holder is None else None
        # What the pods show is stronger than what files say about these layers.
        beside = ("declared", "computed", *(_OF_FILES if is_proven else ()))
        order = [name for name in NAMES if name not in beside]
        lost = next((name for name in order if _lacks(layers[name], address)), None)
        if lost is None and is_proven is False:
            lost = "computed"
        found.append(
            {
                "address": address,
                "uuid": uuid,
                "lost_at": lost,
                # nvidia-smi in a pod also lists GPUs on which no program computes.
                "computed": None if is_listed else is_proven,
                "busy": holder,
            }
        )
    return found


def _lacks(layer: Layer, address: str) -> bool:
    return layer.gpus is not None and address not in layer.gpus


def _proven(layer: Layer, smoke: SmokeRow | None, placed: Collection[str]) -> bool:
    """Tell whether every GPU that no pod holds must be among those that the pods computed on.

    It need not if no pod ran, if a pod gets only a share, and if nothing shows which GPUs some pod
    holds: `placed` are the pods of which the kubelet knows it.
    """
    if smoke is None or layer.gpus is None or smoke.get("shared"):
        return False
    return set(smoke["holders"]).union((smoke.get("claims") or {}).values()).issubset(placed)


def busy_gpus(node: Node, smoke: SmokeRow | None) -> dict[str, str]:
    """Return the pods that hold GPUs, as namespace/name, by the UUID of the GPU.

    The kubelet knows pods by UID, the API server by name. A pod of which only one knows has just
    started or ended.
    """
    devices = node["kubelet"]["devices"]
    claims = smoke.get("claims") if smoke else None
    if devices is None or not claims:
        return {}
    return {
        uuid: claims[one["pod"]]
        for one in devices["holdings"]
        if one["pod"] in claims
        for device in one["devices"]
        if (uuid := gpu_uuid(device))
    }
