# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read Pod and Event objects. No I/O.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def claimed(pod: Mapping[str, Any], resource: str) -> Decimal:
    """Return how much of an extended resource the scheduler reserves for a pod.

    Init containers run one after another before the others start, so only the largest counts;
    those that restart always (sidecars) stay, and count for all that start after them.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """

    def limit(container: Mapping[str, Any]) -> Decimal:
        return parse_quantity(container.get("resources", {}).get("limits", {}).get(resource, 0))

    spec = pod["spec"]
    sidecars = peak = Decimal(0)
    for container in spec.get("initContainers", ()):
        if container.get("restartPolicy") == "Always":
            sidecars += limit(container)
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + limit(container))
    return max(peak, sidecars + sum(map(limit, spec["containers"]), Decimal(0)))


def is_device_plugin(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod can register devices: it has the kubelet's folder for that mounted.

    Names and labels differ between manifests, charts and operators; the folder does not.
    """
    return any(
        volume.get("hostPath", {}).get("path", "").rstrip("/").endswith("/device-plugins")
        for volume in pod["spec"].get("volumes", ())
    )


def describe(pod: Mapping[str, Any]) -> str:
    """Say in one line how far a pod is and what holds it up."""
    status = pod.get("status", {})
    phase: str = status.get("phase", "Pending")
    if status.get("reason"):  # the kubelet gave the pod up: not admitted, evicted, out of time
        return _join(phase, *_reason(status))
    for container in statuses(pod):
        state = container.get("state", {})
        if "waiting" in state:
            return _join(phase, container["name"], *_reason(state["waiting"]))
        if state.get("terminated", {}).get("exitCode"):
            code = f"exit code {state['terminated']['exitCode']}"
            return _join(phase, container["name"], code, *_reason(state["terminated"]))
    if phase == "Running" and not all(container["ready"] for container in statuses(pod)):
        return "Running, but not ready"
    unmet = [
        condition
        for condition in status.get("conditions", ())
        if condition["type"] == "PodScheduled" and condition["status"] != "True"
    ]
    return _join(phase, *(text for row in unmet for text in _reason(row)))


def statuses(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the status of each container, init containers first."""
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def event_time(event: Mapping[str, Any]) -> str:
    """Return when an event was seen last; texts that sort by time."""
    series = event.get("series") or {}
    found = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"]["creationTimestamp"]
    )
    return str(found)


def event_text(event: Mapping[str, Any]) -> str:
    return _join(*_reason(event))


def _reason(data: Mapping[str, Any]) -> Sequence[str]:
    return [" ".join(str(data[key]).split()) for key in ("reason", "message") if data.get(key)]


def _join(*parts: str) -> str:
    return ": ".join(parts)
