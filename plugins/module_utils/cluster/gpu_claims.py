# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find the pods that claim GPUs of a node, or all its pods, and which can be evicted.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import claimed
from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import plain
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# The device plugin has no other names: k8s-device-plugin v0.20.0 ignores "resources" and "rename"
# in its configuration (api/config/v1). NVIDIA's Network Operator has network cards in this domain.
_RESOURCE = re.compile(r"nvidia\.com/(?:gpu|mig-.+?)(?:\.shared)?")

_STAYS = {
    "DaemonSet": "its DaemonSet recreates it immediately",
    "Node": "it is a static pod, which the kubelet runs from a file on the node",
}
# What an eviction deletes for good.
BARE_PODS, SCRATCH_DATA = "bare_pods", "scratch_data"
_LOSES = {
    BARE_PODS: "it has no controller that recreates it",
    SCRATCH_DATA: "it has data in an emptyDir",
}
_HOLDS = "it holds GPUs, or may hold some"

# How a pod comes by GPUs.
_LIMITS = "limits"
# By dynamic resource allocation. A pod names its claims and not what they are for, so any of them
# may be for a GPU where NVIDIA's driver for that runs on the node.
_CLAIMS = "claims"
_DRIVER = "driver"  # it has none: it is that driver
_NOTHING = "nothing"
# What its container runs: dra-driver-nvidia-gpu v25.3.0 to 2026-08-07, chart, kubeletplugin.yaml.
# That of compute domains is another.
_DRIVER_PROGRAM = re.compile(r"\bgpu-kubelet-plugin\b")


class Claim(NamedTuple):
    """A pod, most often one that holds GPUs, or may hold some."""

    namespace: str
    name: str
    node: str
    gpus: int | float
    stays: str | None  # why it must not be evicted; None if it may be evicted
    uid: str  # a controller may create another pod with the same name
    source: str = _LIMITS
    kind: str = ""  # of its controller
    loses: tuple[str, ...] = ()  # what its eviction deletes
    leaves: bool = False  # it is being deleted

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
    claim = parse_pod(pod)
    return None if claim is None or claim.source == _NOTHING else claim


def parse_pod(pod: Mapping[str, Any]) -> Claim | None:
    """Like `parse_claim`; also return pods that hold nothing: `others` chooses."""
    node = pod["spec"].get("nodeName")
    if not node or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return None
    source, gpus = _LIMITS, sum(plain(claimed(pod, resource)) for resource in _resources(pod))
    if not gpus:
        source, gpus = _CLAIMS, len(pod["spec"].get("resourceClaims") or ())
    if not gpus:
        source = _DRIVER if is_dra_driver(pod) else _NOTHING
    metadata = pod["metadata"]
    kind, leaves = _controller(metadata), "deletionTimestamp" in metadata
    has_data = any("emptyDir" in volume for volume in pod["spec"].get("volumes") or ())
    loses = ((BARE_PODS,) if not kind else ()) + ((SCRATCH_DATA,) if has_data else ())
    return Claim(
        metadata["namespace"],
        metadata["name"],
        node,
        gpus,
        None if leaves else _STAYS.get(kind, None if kind else _LOSES[BARE_PODS]),
        metadata.get("uid", ""),
        source,
        kind,
        loses,
        leaves,
    )


def holders(found: Mapping[str, Claim]) -> dict[str, Claim]:
    """Return the pods that hold GPUs, or may hold some, of all pods of their nodes."""
    driven = {claim.node for claim in found.values() if claim.source == _DRIVER}
    return {
        key: claim
        for key, claim in found.items()
        if claim.source == _LIMITS or (claim.source == _CLAIMS and claim.node in driven)
    }


def others(found: Mapping[str, Claim], may_lose: Collection[str]) -> dict[str, Claim]:
    """Return the pods that must leave a node before it reboots, of all its pods.

    Those that hold GPUs stay: they compute for days. Those of DaemonSets and static ones come back.
    """
    held, leaving = holders(found), {}
    for key, claim in found.items():
        lost = [_LOSES[one] for one in claim.loses if one not in may_lose]
        if key in held and not claim.leaves:
            leaving[key] = claim._replace(stays=_HOLDS)
        elif claim.kind not in _STAYS:
            why = None if claim.leaves else "; ".join(lost) or None
            leaving[key] = claim._replace(stays=why)
    return leaving


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


def _controller(metadata: Mapping[str, Any]) -> str:
    owners = metadata.get("ownerReferences") or ()
    return next((str(owner["kind"]) for owner in owners if owner.get("controller")), "")
