# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Tell which causes do not end by themselves, so that nobody has to wait with them.

What may still end is not here: an image whose pull is tried again, a node without room, a node that
is not ready because it has just booted, an engine that restarts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster import plugin_causes, pod_status
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.plugin_causes import Facts

# The container has started three times, each time in vain.
_RESTARTS = 2
# The plugin has tried twice: k8s-device-plugin tries again after 30 s, by when a kubelet that was
# about to drop the connection of a plugin that has exited has done so.
_TRIES = 2
# Taints of nodes that are being set up: those who set them remove them again.
_STARTUP = re.compile(
    r"(?i)not-?ready|uninitiali[sz]ed|initiali[sz]ing|startup|bootstrap"
    r"|network-?unavailable|unregistered"
)
# Labels that pods set on a node that has just joined: Node Feature Discovery, and the GPU Operator,
# which sets others of the second kind while it changes the driver or MIG.
_DISCOVERED = re.compile(r"^(?:feature\.node\.kubernetes\.io|nvidia\.com/gpu\.deploy\.)")
_DISCOVERY_S = 60.0
_PAUSED = re.compile(r"=paused-for-")


def is_final(cause: Cause | None, facts: Facts) -> bool:
    """Tell whether a cause lasts until somebody does something about it."""
    rule = _FINAL.get(cause.code) if cause else None
    return bool(cause and rule and rule(cause, facts))


def patience_s(cause: Cause) -> float:
    """Return how long a final cause must be there before nobody has to wait any longer."""
    required = str(cause.evidence.get("labels") or cause.evidence.get("affinity") or "")
    return _DISCOVERY_S if any(map(_DISCOVERED.match, required.split())) else 0.0


def told_at(cause: Cause, facts: Facts) -> str:
    """Return when the event was last observed that tells a cause; empty if no event tells it.

    Events stay for an hour, whatever happens afterwards.
    """
    return plugin_causes.told_at(facts) if cause.code in _TOLD else ""


def _always(_cause: Cause, _facts: Facts) -> bool:
    return True


def _has_crashed_often(_cause: Cause, facts: Facts) -> bool:
    counts = (
        container.get("restartCount") or 0
        for pod in facts.pods
        for container in pod_status.statuses(pod)
    )
    return max(counts, default=0) >= _RESTARTS


def _is_hopeless(cause: Cause, facts: Facts) -> bool:
    """Tell whether the container waits for what no other attempt mends."""
    waiting = any(pod_status.is_hopeless(pod_status.waiting(pod)) for pod in facts.pods)
    return waiting or _has_crashed_often(cause, facts)


def _is_blind(cause: Cause, facts: Facts) -> bool:
    """Tell whether the plugin looks for GPUs no more, or has done so often."""
    runs = any(
        section(container, "state").get("running")
        for pod in facts.pods
        for container in pod_status.statuses(pod)
    )
    return runs or _has_crashed_often(cause, facts)


def _is_refused_again(_cause: Cause, facts: Facts) -> bool:
    return any(plugin_causes.count_refusals(lines) >= _TRIES for lines in facts.logs.values())


def _is_permanent_taint(cause: Cause, _facts: Facts) -> bool:
    return not _STARTUP.search(cause.evidence["taint"])


def _is_unlabelled(cause: Cause, _facts: Facts) -> bool:
    return not _PAUSED.search(cause.evidence.get("found", ""))


def _is_decision(cause: Cause, _facts: Facts) -> bool:
    """Tell whether a rule rejects the pod, and not a webhook that may come back."""
    return "failed calling webhook" not in cause.evidence["error"]


_FINAL: dict[str, Callable[[Cause, Facts], bool]] = {
    # Only an admin deploys a plugin, sets a label, or changes a node selector.
    "DEVICE_PLUGIN_MISSING": _always,
    "DEVICE_PLUGIN_NOT_SELECTED": _is_unlabelled,
    "DEVICE_PLUGIN_AFFINITY": _always,
    "NODE_TAINTED": _is_permanent_taint,
    # The kubelet keeps the condition for 5 minutes after its reason has ended:
    # https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
    "NODE_PRESSURE": _always,
    "DEVICE_PLUGIN_IMAGE_UNAVAILABLE": _is_hopeless,
    "DEVICE_PLUGIN_NOT_STARTED": _is_hopeless,
    "DEVICE_PLUGIN_CRASHES": _has_crashed_often,
    "DEVICE_PLUGIN_BLIND": _is_blind,
    "DEVICE_PLUGIN_UNREGISTERED": _is_refused_again,
    # The plugin has no way to take a GPU back.
    "GPU_UNHEALTHY": _always,
    # The kubelet tries again, and the engine's configuration stays.
    "RUNTIME_HANDLER_MISSING": _always,
    # No configuration makes cri-dockerd accept it.
    "RUNTIME_CLASS_UNSUPPORTED": _always,
    "RUNTIME_CLASS_MISSING": _always,
    "CDI_UNRESOLVABLE": _is_hopeless,
    "GPU_BLOCKS_CONTAINERS": _always,
    "POD_REJECTED": _is_decision,
}

# What only an event tells while the status of the pod has no reason, or there is no pod.
_TOLD = (
    "RUNTIME_HANDLER_MISSING",
    "RUNTIME_CLASS_UNSUPPORTED",
    "RUNTIME_CLASS_MISSING",
    "GPU_BLOCKS_CONTAINERS",
    "POD_REJECTED",
)
