# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out why GPUs are missing from a node's capacity or allocatable.

The device plugin registers the GPUs. So the cause is why it does not run, why the kubelet rejects
its registration, or which GPU it marked unhealthy.

Source: the log lines are those of NVIDIA's device plugin v0.19.3 (internal/plugin/server.go,
internal/rm/health.go, internal/plugin/factory.go, cmd/nvidia-device-plugin/main.go) and v0.20.0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    causes,
    pod_status,
    rivals,
    scheduling,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause, Subject
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus

# A kubelet keeps the connection of a plugin that has exited; kubernetes v1.37.1,
# pkg/kubelet/cm/devicemanager/manager.go.
_UNREGISTERED = re.compile(r"device plugin already connected")
_REGISTERED = re.compile(r"Registered device plugin for ")
_UNHEALTHY = re.compile(
    r"(?i)XidCriticalError: Xid=\d+ on Device="
    r"|marked unhealthy|marking (?:\S+ ){1,3}(?:as )?unhealthy"
)
# Everyday lines about events that make no GPU unhealthy, such as a corrected ECC error.
_NOISE = re.compile(r"Skipping (?:non-nvmlEventTypeXidCriticalError )?event\b")
_BLIND = re.compile(
    r"No devices found\. Waiting indefinitely|could not load NVML library|ERROR_LIBRARY_NOT_FOUND"
    r"|nvml init failed|Incompatible strategy detected|invalid device discovery strategy"
)
_ROOM = re.compile(r"Insufficient [\w./-]+|Too many pods")


class Facts(NamedTuple):
    """What is observed about the device plugin on a node. None: cannot be read."""

    node: str
    status: NodeStatus
    daemonsets: Sequence[Mapping[str, Any]] | None  # of device plugins, in the whole cluster
    pods: Sequence[Mapping[str, Any]]  # of device plugins, bound to this node or targeting it
    logs: Mapping[str, Sequence[str]]  # last lines, by name of the pod
    events: Sequence[Mapping[str, Any]]  # of these DaemonSets and pods, oldest first


def choose_plugins(
    daemonsets: Iterable[Mapping[str, Any]], resource: str
) -> list[Mapping[str, Any]]:
    """Return the DaemonSets that can register a resource.

    Every device plugin mounts the kubelet's directory, including those for network cards. So
    those that register GPUs of NVIDIA are preferred to those with NVIDIA's name, and these to those
    with unknown names. AMD's are none of them.
    """
    plugins = [
        daemonset
        for daemonset in daemonsets
        if pod_status.is_device_plugin(section(daemonset, "spec", "template"))
    ]
    if not resource.startswith("nvidia.com/"):
        return plugins
    plugins = [one for one in plugins if not rivals.is_of_amd(section(one, "spec", "template"))]
    known = [one for one in plugins if rivals.is_nvidia_plugin(section(one, "spec", "template"))]
    return known or [one for one in plugins if "nvidia" in _names(one)] or plugins


def _names(daemonset: Mapping[str, Any]) -> str:
    spec = section(daemonset, "spec", "template", "spec")
    images = (str(container.get("image")) for container in spec.get("containers", ()))
    return " ".join((daemonset["metadata"]["name"], *images)).casefold()


def find_cause(facts: Facts) -> Cause | None:
    """Return why the node does not have the expected amount; None if no known cause matches."""
    if facts.status.ready is None:  # the kubelet is silent, so its last report is outdated
        return Cause("NODE_NOT_READY", {"node": facts.node, "error": facts.status.readiness})
    # An evicted pod remains for a while beside its successor.
    alive = [pod for pod in facts.pods if section(pod, "status").get("phase") != "Failed"]
    for pod in alive or facts.pods:
        cause = _of_pod(pod, facts)
        if cause:
            return cause
    if facts.pods or facts.daemonsets is None:
        return None
    if not facts.daemonsets:
        return Cause("DEVICE_PLUGIN_MISSING", {})
    found = (_of_daemonset(daemonset, facts) for daemonset in facts.daemonsets)
    return next(filter(None, found), None)


def _subject(namespace: str, name: str, node: str) -> Subject:
    what = f"the device plugin {namespace}/{name}"
    settings = ("device_plugin_tolerations", "device_plugin_namespace")
    return Subject(what, node, namespace, *settings, "set device_plugin_resources")


def _of_daemonset(daemonset: Mapping[str, Any], facts: Facts) -> Cause | None:
    """Return why a DaemonSet has no pod on the node."""
    metadata, spec = daemonset["metadata"], section(daemonset, "spec", "template", "spec")
    name = f"{metadata['namespace']}/{metadata['name']}"
    subject = _subject(metadata["namespace"], metadata["name"], facts.node)
    labels = scheduling.missing_labels(facts.status.labels, spec)
    if labels:
        required = " ".join(f"{key}={value}" for key, value in labels.items())
        has = [f"{key}={facts.status.labels[key]}" for key in labels if key in facts.status.labels]
        evidence = {"daemonset": name, "node": facts.node, "labels": required}
        found = f"has {' '.join(has)}" if has else "does not have it"
        return Cause("DEVICE_PLUGIN_NOT_SELECTED", {**evidence, "found": found})
    affinity = scheduling.unmet_affinity(facts.node, facts.status.labels, spec)
    if affinity:
        evidence = {"daemonset": name, "node": facts.node, "affinity": affinity}
        evidence |= {"namespace": metadata["namespace"], "name": metadata["name"]}
        return Cause("DEVICE_PLUGIN_AFFINITY", evidence)
    taints = scheduling.untolerated(facts.status.taints, scheduling.daemon_tolerations(spec))
    if taints:
        return causes.of_taints(taints, facts.status.readiness, subject)
    event = causes.telling_event(_events_of("DaemonSet", metadata["name"], facts.events))
    return causes.of_refusal(event.get("message") or "", subject) if event else None


def _events_of(
    kind: str, name: str, events: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    return [
        event
        for event in events
        if (section(event, "involvedObject").get("kind"), event["involvedObject"].get("name"))
        == (kind, name)
    ]


def _of_pod(pod: Mapping[str, Any], facts: Facts) -> Cause | None:
    metadata, status = pod["metadata"], section(pod, "status")
    namespace, name = metadata["namespace"], metadata["name"]
    subject = _subject(namespace, name, facts.node)
    evidence = {"pod": f"{namespace}/{name}", "namespace": namespace, "name": name}
    if status.get("reason") == "Evicted":
        return causes.of_eviction(status.get("message") or "", subject)
    unscheduled = pod_status.unscheduled(pod)
    if unscheduled is not None:
        tolerations = section(pod, "spec").get("tolerations") or ()
        taints = scheduling.untolerated(facts.status.taints, tolerations)
        room = _ROOM.search(unscheduled)
        if taints or not room:
            return causes.of_taints(taints, facts.status.readiness, subject)
        return Cause("NODE_FULL", {"what": subject.what, "node": facts.node, "error": room[0]})
    words = _words(pod, facts)
    for text in (words, pod_status.last_words(pod)):
        cause = causes.of_words(text, subject)
        if cause:
            return cause
    lines = _without_noise(facts.logs.get(name, ()))
    waiting = pod_status.waiting(pod)
    blind = _since_registered(lines, _BLIND)
    reason = waiting.get("reason")
    if reason in pod_status.NO_IMAGE:
        return Cause("DEVICE_PLUGIN_IMAGE_UNAVAILABLE", {**evidence, "error": causes.quote(words)})
    if blind:
        return Cause("DEVICE_PLUGIN_BLIND", {**evidence, "error": causes.quote(blind)})
    if reason == "CrashLoopBackOff" or pod_status.has_crashed(pod):
        last = pod_status.last_words(pod) or next(iter(reversed(lines)), "") or words
        return Cause("DEVICE_PLUGIN_CRASHES", {**evidence, "error": causes.quote(last)})
    if reason in pod_status.HOPELESS:
        return Cause("DEVICE_PLUGIN_NOT_STARTED", {**evidence, "error": causes.quote(words)})
    return _of_log(lines, evidence, facts)


def _of_log(lines: Sequence[str], evidence: Mapping[str, Any], facts: Facts) -> Cause | None:
    """Return the cause that the log of a running plugin shows."""
    refused = _since_registered(lines, _UNREGISTERED)
    if refused:
        return Cause("DEVICE_PLUGIN_UNREGISTERED", {**evidence, "error": causes.quote(refused)})
    unhealthy = _last(lines, _UNHEALTHY)
    if unhealthy and (facts.status.allocatable or 0) < (facts.status.capacity or 0):
        return Cause("GPU_UNHEALTHY", {**evidence, "error": causes.quote(unhealthy)})
    return None


def _words(pod: Mapping[str, Any], facts: Facts) -> str:
    """Return what blocks the pod: its status, or its newest event while a container is created."""
    state = pod_status.describe(pod)
    if pod_status.waiting(pod).get("reason") != "ContainerCreating":
        return state
    event = causes.telling_event(_events_of("Pod", pod["metadata"]["name"], facts.events))
    return pod_status.event_text(event) if event else state


def told_at(facts: Facts) -> str:
    """Return when the newest event was observed that says why pods do not start, or are not made.

    Empty if the status of the pods says it.
    """
    if facts.pods:
        creating = (
            pod["metadata"]["name"]
            for pod in facts.pods
            if pod_status.waiting(pod).get("reason") == "ContainerCreating"
        )
        found = [_events_of("Pod", name, facts.events) for name in creating]
    else:
        names = (daemonset["metadata"]["name"] for daemonset in facts.daemonsets or ())
        found = [_events_of("DaemonSet", name, facts.events) for name in names]
    telling = filter(None, map(causes.telling_event, found))
    return max(map(pod_status.event_time, telling), default="")


def count_refusals(lines: Sequence[str]) -> int:
    """Return how often the kubelet has refused the plugin since it last accepted it."""
    newer = lines[_place(lines, _REGISTERED) + 1 :]
    return sum(bool(_UNREGISTERED.search(line)) for line in newer)


def telling_line(lines: Sequence[str]) -> str:
    """Return the most informative line of a log; empty for an empty log."""
    lines = _without_noise(lines)
    found = (
        _since_registered(lines, _UNREGISTERED),
        _last(lines, _UNHEALTHY),
        _since_registered(lines, _BLIND),
        *lines[-1:],
    )
    return next(filter(None, found), "")


def _without_noise(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if not _NOISE.search(line)]


def _place(lines: Sequence[str], pattern: re.Pattern[str]) -> int:
    """Return the number of the last line that matches a pattern; -1 if none does."""
    return max((number for number, line in enumerate(lines) if pattern.search(line)), default=-1)


def _since_registered(lines: Sequence[str], pattern: re.Pattern[str]) -> str:
    """Return the last matching line, unless the plugin registered after it."""
    return _last(lines[_place(lines, _REGISTERED) + 1 :], pattern)


def _last(lines: Sequence[str], pattern: re.Pattern[str]) -> str:
    place = _place(lines, pattern)
    return "" if place < 0 else lines[place]
