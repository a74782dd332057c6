# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the pods that claim GPUs of a node, and whether they can be evicted. No I/O.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.pod_status import claimed
from ansible_collections.metal.gpu.plugins.module_utils.quantity import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

DOMAIN = "nvidia.com/"  # nvidia.com/gpu, its shared form, and MIG slices

_STAYS = {
    "DaemonSet": "its DaemonSet recreates it immediately",
    "Node": "it is a static pod, which the kubelet runs from a file on the node",
}
_BARE = "it has no controller that recreates it"


class Claim(NamedTuple):
    """A pod that claims GPUs."""

    namespace: str
    name: str
    node: str
    gpus: int | float
    stays: str | None  # why it must not be evicted; None if it may be evicted
    uid: str  # a controller may create another pod with the same name

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_claim(pod: Mapping[str, Any]) -> Claim | None:
    """Return what a pod claims; None if it has no node, has ended, or claims no GPU."""
    node = pod["spec"].get("nodeName")
    if not node or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return None
    gpus = sum(plain(claimed(pod, resource)) for resource in _resources(pod))
    if not gpus:
        return None
    metadata = pod["metadata"]
    return Claim(
        metadata["namespace"],
        metadata["name"],
        node,
        gpus,
        _why_it_stays(metadata),
        metadata.get("uid", ""),
    )


def _resources(pod: Mapping[str, Any]) -> set[str]:
    spec = pod["spec"]
    return {
        resource
        for container in (*spec.get("initContainers", ()), *spec["containers"])
        for resource in container.get("resources", {}).get("limits", {})
        if resource.startswith(DOMAIN)
    }


def _why_it_stays(metadata: Mapping[str, Any]) -> str | None:
    if "deletionTimestamp" in metadata:
        return None  # it is already being deleted
    for owner in metadata.get("ownerReferences", ()):
        if owner.get("controller"):
            return _STAYS.get(owner["kind"])
    return _BARE
