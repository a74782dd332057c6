# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the cluster alone knows about GPUs, for `kubectl metal_gpu`. Changes nothing.

No machine is asked: the nodes are those of the cluster, and labels say how many GPUs each must
have. capacity.py compares with machines that were observed.

What the user may not read becomes a note; only the nodes themselves are necessary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    capacity,
    node_status,
    plugin_causes,
    smoke_evidence,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.expectations import Expectations
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
from ansible_collections.metal.gpu.plugins.module_utils.cluster.sharing import Sharing
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_evidence import Free
from ansible_collections.metal.gpu.plugins.module_utils.mappings import number, section, text
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import ClusterRow

GPU = "nvidia.com/gpu"
COUNT = "nvidia.com/gpu.count"  # of GPU feature discovery: the GPUs of the node, shared or not
PRODUCT = "nvidia.com/gpu.product"

# Labels of node feature discovery: pci-CLASS_VENDOR.present, with NVIDIA's 10de.
# Source: https://kubernetes-sigs.github.io/node-feature-discovery/stable/usage/features.html
_OF_BUS = re.compile(r"^feature\.node\.kubernetes\.io/pci-(?:030[02]_)?10de\b.*\.present$")
_OURS = re.compile(r"^nvidia\.com/gpu(?:\.(?:present|count|product))?$")


class Plugin(NamedTuple):
    """A DaemonSet that can be a device plugin."""

    name: str  # namespace/name
    image: str
    desired: int
    ready: int


class Facts(NamedTuple):
    """What the API server knows."""

    nodes: dict[str, NodeStatus]
    expected: dict[str, int | None]  # None: nothing shows how many GPUs a node must have
    rows: dict[str, ClusterRow]
    free: dict[str, Free]  # of the nodes whose pods could be read
    plugins: list[Plugin] | None  # None: could not be read
    notes: list[str]


class Proof(NamedTuple):
    """What a pod asks for to prove GPUs of a node."""

    resource: str
    is_share: bool  # the pod gets a share or a part of a GPU


def look(client: Client, names: Collection[str] = (), gpus: int | None = None) -> Facts:
    """Read the nodes with these names, by default all with GPUs. Raises KubeError.

    `gpus` is how many GPUs each of them must have. Without it, the label of GPU feature discovery
    says so; else each GPU of the capacity must be allocatable, of which the configuration of the
    device plugin may make several from one.
    """

    def keep(node: dict[str, object]) -> NodeStatus | None:
        status = node_status.parse_node(node, GPU)
        is_named = str(section(node, "metadata").get("name")) in names
        return status if (is_named if names else has_gpus(status)) else None

    nodes: dict[str, NodeStatus] = client.snapshot("nodes", keep)
    plugins = Expectations(client, {})
    wanted = {
        name: expect(status, gpus, partial(plugins.sharing, name, status))
        for name, status in nodes.items()
    }
    wanted.update(dict.fromkeys(name for name in names if name not in nodes))
    notes: list[str] = []
    rows: dict[str, ClusterRow] = {}
    if wanted:
        amounts = {name: None if one is None else Decimal(one) for name, one in wanted.items()}
        found = capacity.run(client, amounts, GPU, 0, {}, ready=True, surroundings=True, by_hand={})
        rows = found["nodes"]
        notes += [found["error"]] if found["error"] else []
    return Facts(nodes, wanted, rows, _free(client, nodes, notes), _plugins(client, notes), notes)


def has_gpus(status: NodeStatus) -> bool:
    """Tell whether a node has GPUs, or says that it should have some."""
    is_labelled = any(
        value not in ("false", "0") and (_OF_BUS.match(label) or _OURS.match(label))
        for label, value in status.labels.items()
    )
    return bool(status.resources) or is_labelled


def expect(
    status: NodeStatus, gpus: int | None, ask_plugin: Callable[[], Sharing | None]
) -> int | None:
    """Return how many GPUs a node must have; None if nothing shows it."""
    if gpus is not None:
        return gpus
    count = status.labels.get(COUNT, "")
    if count.isdecimal() and int(count):
        return int(count)
    sharing = ask_plugin() if status.resources else None
    if sharing and sharing.replicas > 1 and [*status.resources] == [sharing.resource]:
        return int(status.resources[sharing.resource][0]) // sharing.replicas or None
    if status.resources.keys() - {GPU}:
        return None  # GPUs are split or shared, and nothing shows how many there are
    if status.capacity:
        return int(status.capacity)
    return 1 if has_gpus(status) else None


def proof(row: ClusterRow) -> Proof:
    """Return what a pod asks for on a node that has something allocatable."""
    if wanted := row.get("wanted"):
        return Proof(wanted["resource"], wanted["shared"])
    # Nothing shows how many parts there must be.
    found = [name for name, one in (row.get("resources") or {}).items() if one["allocatable"]]
    return Proof(GPU, False) if GPU in found else Proof(found[0], True)


def _free(client: Client, nodes: Mapping[str, NodeStatus], notes: list[str]) -> dict[str, Free]:
    allocatable = {name: one.allocatable for name, one in nodes.items() if one.allocatable}
    if not allocatable:
        return {}
    try:
        return smoke_evidence.read_free_gpus(client, allocatable, GPU, Timer(0.0))
    except KubeError as error:
        notes.append(f"the pods could not be read, so nothing shows which GPUs are free: {error}")
        return {}


def _plugins(client: Client, notes: list[str]) -> list[Plugin] | None:
    try:
        found = client.snapshot("daemonsets", lambda item: item)
    except KubeError as error:
        notes.append(f"the DaemonSets could not be read: {error}")
        return None
    return [_plugin(one) for one in plugin_causes.choose_plugins(found.values(), GPU)]


def _plugin(daemonset: Mapping[str, object]) -> Plugin:
    containers = section(daemonset, "spec", "template", "spec").get("containers")
    first = containers[0] if isinstance(containers, list) and containers else {}
    return Plugin(
        f"{text(daemonset, 'metadata', 'namespace')}/{text(daemonset, 'metadata', 'name')}",
        text(first, "image") or "",
        number(daemonset, "status", "desiredNumberScheduled") or 0,
        number(daemonset, "status", "numberReady") or 0,
    )
