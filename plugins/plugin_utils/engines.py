# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which container engine does a node use, and is that the one it is to use?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

AUTO = "auto"
CONTAINERD = "containerd"
DOCKER = "docker"
CHOICES = (AUTO, CONTAINERD, DOCKER)

# By what is in the name of the socket that the kubelet talks to.
_SOCKETS = {"cri-dockerd": DOCKER, "containerd": CONTAINERD}


def choose(node: Mapping[str, Any], desired: str) -> str | None:
    """Return the engine for this node; None where its kubelet talks to another one.

    `desired` is one of CHOICES. Kubelets of before 1.24 have no endpoint when they use Docker.
    """
    endpoint = node["kubelet"]["endpoint"]
    if endpoint:
        spoken = next((engine for mark, engine in _SOCKETS.items() if mark in endpoint), None)
        return spoken if desired in (AUTO, spoken) else None
    if desired != AUTO:
        return desired
    return DOCKER if node["engines"]["docker"]["installed"] else CONTAINERD


def refuse_distribution(plan: Plan, node: Mapping[str, Any]) -> bool:
    """Refuse a distribution of Kubernetes that brings its own kubelet and engine; tell whether."""
    distribution = node["kubelet"]["distribution"]
    if distribution:
        plan.refuse("DISTRIBUTION_UNSUPPORTED", **distribution)
    return bool(distribution)


def refuse(plan: Plan, node: Mapping[str, Any], desired: str) -> None:
    """Refuse a kubelet that talks to an engine nobody knows, or to another than desired."""
    endpoint = node["kubelet"]["endpoint"]
    if choose(node, AUTO) is None:
        plan.refuse("ENGINE_UNSUPPORTED", found=endpoint)
    elif choose(node, desired) is None:
        plan.refuse("ENGINE_MISMATCH", desired=desired, found=endpoint)
