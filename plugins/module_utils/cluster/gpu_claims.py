# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the pods that claim GPUs of a node, and whether they can be evicted. No I/O.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import claimed
from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import plain
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping

# The device plugin has no other names: k8s-device-plugin v0.20.0 ignores "resources" and "rename"
# in its configuration (api/config/v1). NVIDIA's Network Operator has network cards in this domain.
_RESOURCE = re.compile(r"nvidia\.com/(?:gpu|mig-.+?)(?:\.shared)?")

_STAYS = {
    "DaemonSet": "its DaemonSet recreates it immediately",
    "Node": "it is a static pod, which the kubelet runs from a file on the node",
}
_BARE = "it has no controller that recreates it"


# How a pod comes by GPUs.
_LIMITS = "limits"
# By dynamic resource allocation. A pod names its claims and not what they are for, so any of them
# may be for a GPU where NVIDIA's driver for that runs on the node.
_CLAIMS = "claims"
_DRIVER = "driver"  # it has none: it is that driver
# What its container runs: dra-driver-nvidia-gpu v25.3.0 to 2026-08-07, chart, kubeletplugin.yaml.
# That of compute domains is another.
_DRIVER_PROGRAM = re.compile(r"\bgpu-kubelet-plugin\b")


class Claim(NamedTuple):
    """A pod that holds GPUs, or may hold some."""

    namespace: str
    name: str
    node: str
    gpus: int | float
    stays: str | None  # why it must not be evicted; None if it may be evicted
    uid: str  # a controller may create another pod with the same name
    source: str = _LIMITS

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def is_gpu(resource: str) -> bool:
    """Tell whether a resource of a node or of a pod is GPUs, or parts of GPUs."""
    return bool(_RESOURCE.fullmatch(resource))


def parse_claim(pod: Mapping[str, Any]) -> Claim | None:
    """Return what a pod holds; None if it has no node, has ended, or holds nothing.

    The result includes pods that only may hold GPUs: `holders` chooses.
    """
    node = pod["spec"].get("nodeName")
    if not node or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return None
    source, gpus = _LIMITS, sum(plain(claimed(pod, resource)) for resource in _resources(pod))
    if not gpus:
        source, gpus = _CLAIMS, len(pod["spec"].get("resourceClaims") or ())
    if not gpus:
        source = _DRIVER
        if not is_dra_driver(pod):
            return None
    metadata = pod["metadata"]
    return Claim(
        metadata["namespace"],
        metadata["name"],
        node,
        gpus,
        _why_it_stays(metadata),
        metadata.get("uid", ""),
        source,
    )


def holders(found: Mapping[str, Claim]) -> dict[str, Claim]:
    """Return the pods that hold GPUs, or may hold some, of all pods of their nodes."""
    driven = {claim.node for claim in found.values() if claim.source == _DRIVER}
    return {
        key: claim
        for key, claim in found.items()
        if claim.source == _LIMITS or (claim.source == _CLAIMS and claim.node in driven)
    }


def is_dra_driver(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod is the driver that hands out GPUs by dynamic resource allocation."""
    return any(
        _DRIVER_PROGRAM.search(word)
        for container in pod["spec"]["containers"]
        for word in (*container.get("command", ()), *container.get("args", ()))
    )


def _resources(pod: Mapping[str, Any]) -> set[str]:
    spec = pod["spec"]
    return {
        resource
        for container in (*spec.get("initContainers", ()), *spec["containers"])
        for resource in section(container, "resources", "limits")
        if is_gpu(resource)
    }


def _why_it_stays(metadata: Mapping[str, Any]) -> str | None:
    if "deletionTimestamp" in metadata:
        return None  # it is already being deleted
    for owner in metadata.get("ownerReferences", ()):
        if owner.get("controller"):
            return _STAYS.get(owner["kind"])
    return _BARE
