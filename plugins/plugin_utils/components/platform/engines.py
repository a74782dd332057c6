# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which container engine does a node use, and is it the desired one?"""

from __future__ import annotations

from typing import Final

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet import socket_path
from ansible_collections.metal.gpu.plugins.plugin_utils.components import ENGINES
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import Engine
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan

AUTO: Final = "auto"
CONTAINERD: Final = "containerd"
DOCKER: Final = "docker"
CRIO: Final = "crio"

# Of a remedy, where a playbook may have asked for the engine and no variable changes that.
_INSTEAD = (
    "use metal.gpu.site for a node of a cluster, because metal.gpu.docker_hosts always asks for "
    "docker; with metal.gpu.site, "
)


def choose(node: Node, desired: Engine) -> str | None:
    """Return the engine for this node; None if its kubelet is configured for another one.

    A kubelet before 1.24 that uses Docker has no endpoint.
    """
    endpoint = node["kubelet"]["endpoint"]
    if endpoint:
        observed = next((name for name, one in ENGINES.items() if one.socket in endpoint), None)
        return observed if desired in (AUTO, observed) else None
    if desired != AUTO:
        return desired
    return DOCKER if node["engines"]["docker"]["installed"] else CONTAINERD


def refuse_distribution(plan: Plan[NoData], node: Node) -> bool:
    """Refuse a Kubernetes distribution whose places the roles do not know; return whether."""
    distribution = node["kubelet"]["distribution"]
    is_unknown = distribution is not None and node["engines"]["containerd"]["home"] is None
    if distribution and is_unknown:
        plan.refuse("DISTRIBUTION_UNSUPPORTED", **distribution)
    return is_unknown


def refuse_missing_kubelet(plan: Plan[NoData], node: Node) -> None:
    """Refuse a node that has no kubelet and needs one, also if a user runs one."""
    if rootless := node["kubelet"]["rootless"]:
        plan.refuse("DISTRIBUTION_UNSUPPORTED", **rootless)
    else:
        plan.refuse("KUBELET_MISSING")


def refuse_stopped_distribution(plan: Plan[NoData], node: Node) -> None:
    """Refuse a distribution that does not run: it generates its settings only at its start.

    One whose kubelet uses another engine runs no containerd of its own. `refuse` judges the engine.
    A containerd at another socket is refused, because the observation has the distribution's own.
    """
    engine, endpoint = node["engines"]["containerd"], node["kubelet"]["endpoint"] or ""
    home, own = engine["home"], engine["socket"] or ""
    if home is None or engine["running"]:
        return
    if not endpoint or socket_path(endpoint) == socket_path(own):
        plan.refuse("DISTRIBUTION_STOPPED", name=home["name"], unit=home["unit"])
    elif choose(node, AUTO) == CONTAINERD:
        found = f"{endpoint}, which is not the containerd of {home['name']}"
        plan.refuse("ENGINE_UNSUPPORTED", found=found)


def refuse(plan: Plan[NoData], node: Node, desired: Engine) -> None:
    """Refuse a kubelet with an unsupported engine, or with another engine than desired."""
    endpoint = node["kubelet"]["endpoint"]
    if choose(node, AUTO) is None:
        plan.refuse("ENGINE_UNSUPPORTED", found=endpoint)
    elif choose(node, desired) is None:
        instead = _INSTEAD if desired == DOCKER else ""
        plan.refuse("ENGINE_MISMATCH", desired=desired, found=endpoint, instead=instead)
