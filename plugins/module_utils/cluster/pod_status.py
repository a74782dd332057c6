# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read Pod and Event objects.

Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import (
    QuantityInvalid,
    parse_quantity,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Reasons of waiting containers that need intervention; kubernetes pkg/kubelet/images/types.go,
# pkg/kubelet/container/sync_result.go and pkg/kubelet/kuberuntime/kuberuntime_container.go.
NO_IMAGE = frozenset(
    {
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
# These the kubelet tries again, after 10 s to 300 s: many pulls at once are refused by the kubelet
# ("pull QPS exceeded") or by the registry (429), and succeed a moment later.
_RETRIED = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})
# Words of registries and of container engines for what no other attempt mends.
_NEVER = re.compile(
    r"(?i)not found|(?:manifest|name) unknown|invalid reference|unauthori[sz]ed|forbidden|denied"
    r"|authentication required|authorization failed|no basic auth|x509: "
)
_BUSY = re.compile(r"(?i)\bQPS\b|\b429\b|too ?many ?requests")
_JUST_NO_IMAGE = frozenset({"ErrImageNeverPull", "ErrImagePull", "InvalidImageName"})
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREEMPTED = "preempted"
HOPELESS = NO_IMAGE | {
    "CreateContainerConfigError",
    "CreateContainerError",
    "PostStartHookError",
    "PreCreateHookError",
    "PreStartHookError",
    "RunContainerError",
}


def is_true(status: Mapping[str, Any], condition: str) -> bool:
    """Tell whether a condition in the status of a Pod or of a Node is true."""
    found = status.get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in found)


def is_hopeless(state: Mapping[str, Any]) -> bool:
    """Tell whether a container that waits will not start, however long one waits with it."""
    reason, message = state.get("reason"), state.get("message") or ""
    if reason in _RETRIED:
        return bool(_NEVER.search(message)) and not _BUSY.search(message)
    return reason in HOPELESS


def has_no_image(state: Mapping[str, Any]) -> bool:
    """Tell whether the kubelet has just failed to get an image, and no other attempt would help.

    ImagePullBackOff has the error of an attempt that may be five minutes old.
    """
    return state.get("reason") in _JUST_NO_IMAGE and is_hopeless(state)


def claimed(pod: Mapping[str, Any], resource: str) -> Decimal:
    """Return how much of an extended resource the scheduler reserves for a pod.

    Init containers run one after another before the others start, so only the largest counts.
    Those that always restart (sidecars) continue to run, so they count with all later containers.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """

    def limit(container: Mapping[str, Any]) -> Decimal:
        amount = section(container, "resources", "limits").get(resource) or 0
        try:
            return parse_quantity(amount)
        except QuantityInvalid:
            return Decimal(1)  # it holds something, and nobody can tell how much

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
    """Return whether a pod can register devices: it mounts the kubelet's directory for that.

    Names and labels differ between manifests, charts and operators; the directory does not.
    """
    return any(map(_is_plugin_folder, pod["spec"].get("volumes", ())))


def plugin_container(pod: Mapping[str, Any]) -> str:
    """Return the name of the container of a device plugin pod that registers devices.

    With a configuration, the chart of k8s-device-plugin v0.20.0 has a sidecar before it.
    """
    spec = pod["spec"]
    folders = [volume.get("name") for volume in spec["volumes"] if _is_plugin_folder(volume)]
    found = (
        container["name"]
        for container in spec["containers"]
        if any(mount["name"] in folders for mount in container.get("volumeMounts", ()))
    )
    return str(next(found, spec["containers"][0]["name"]))


def _is_plugin_folder(volume: Mapping[str, Any]) -> bool:
    path: str = volume.get("hostPath", {}).get("path", "")
    return path.rstrip("/").endswith("/device-plugins")


def describe(pod: Mapping[str, Any]) -> str:
    """Describe in one line the phase of a pod and what blocks it."""
    status = pod.get("status", {})
    phase: str = status.get("phase", "Pending")
    if status.get("reason"):  # the kubelet rejected, evicted or stopped the pod
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


def target_node(pod: Mapping[str, Any]) -> str:
    """Return the node of a pod; for an unbound pod of a DaemonSet, the node it targets."""
    bound = pod["spec"].get("nodeName")
    if bound:
        return str(bound)
    terms = section(pod, "spec", "affinity", "nodeAffinity", _REQUIRED).get("nodeSelectorTerms")
    for term in terms or ():
        for rule in term.get("matchFields") or ():
            if rule.get("key") == "metadata.name" and rule.get("values"):
                return str(rule["values"][0])
    return ""


def waiting(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return reason and message of the first waiting container; empty if none waits."""
    found = (section(container, "state", "waiting") for container in statuses(pod))
    return next(filter(None, found), {})


def last_words(pod: Mapping[str, Any]) -> str:
    """Return the last termination message of a container; empty without one."""
    found = (
        section(container, "lastState", "terminated").get("message") for container in statuses(pod)
    )
    return next(filter(None, found), "").strip()


def has_crashed(pod: Mapping[str, Any]) -> bool:
    """Tell whether a container has failed, and does not wait for its next start yet."""
    found = (section(container, "state", "terminated") for container in statuses(pod))
    return any(state.get("exitCode") for state in found)


def unscheduled(pod: Mapping[str, Any]) -> str | None:
    """Return why the scheduler finds no node for a pod; None if it does not report that."""
    for condition in section(pod, "status").get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return str(condition.get("message") or "")
    return None


def statuses(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the status of each container, init containers first."""
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def preempted(pod: Mapping[str, Any]) -> str:
    """Return that the scheduler deletes a pod for one of higher priority; empty if it does not.

    Source: kubernetes v1.37.1, pkg/scheduler/framework/preemption/executor.go
    """
    for condition in section(pod, "status").get("conditions", ()):
        if condition.get("reason") == "PreemptionByScheduler" and condition["status"] == "True":
            return f"a pod of higher priority took its place: {condition.get('message')}"
    return ""


def event_time(event: Mapping[str, Any]) -> str:
    """Return when an event was last observed, as text that sorts by time."""
    series = event.get("series") or {}
    found = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"]["creationTimestamp"]
    )
    return str(found)


def parse_time(text: Any) -> datetime | None:
    """Parse a time as the API server writes it, with fractions of a second or without."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None


def event_text(event: Mapping[str, Any]) -> str:
    return _join(*_reason(event))


def _reason(data: Mapping[str, Any]) -> Sequence[str]:
    return [" ".join(str(data[key]).split()) for key in ("reason", "message") if data.get(key)]


def _join(*parts: str) -> str:
    return ": ".join(parts)
