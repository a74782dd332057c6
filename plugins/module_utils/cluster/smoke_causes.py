# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out why a smoke pod did not run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    causes,
    pod_status,
    pull_causes,
    scheduling,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause, Subject
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import (
    CONTAINERS,
    EXCHANGE,
    LIST,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import (
        Request,
        Template,
    )
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_verdict import Verdict

# An engine cannot start the shell: words of runc and crun.
_NO_SHELL = re.compile(r'exec: "sh": executable file not found|executable file `sh` not found')
# The NVIDIA runtime compares the driver with what the image asks for (NVIDIA_REQUIRE_CUDA).
_MISFIT = re.compile(r"requirement error: unsatisfied condition|unsatisfied condition: cuda")
_ROOM = re.compile(r"Insufficient [\w./-]*\w|Too many pods")
# Reasons for which the kubelet rejects a pod that the scheduler placed: kubernetes v1.37.1,
# pkg/kubelet/lifecycle/predicate.go. The second is followed by the name of a resource.
_NOT_ADMITTED = ("UnexpectedAdmissionError", "OutOf")
# A kubelet that works begins within a second. One that is dead is known as such after 40 s.
UNTOUCHED_S = 60
# The kubelet asks a plugin that has exited. It keeps that connection and the capacity, and refuses
# the plugin that runs. kubernetes v1.37.1 in the laboratory, 2026-11-23.
_DEAD_PLUGIN = re.compile(r"dial unix \S*/device-plugins/\S+: connect")


class Facts(NamedTuple):
    """What is observed about a failed smoke pod. None: could not be read."""

    request: Request
    verdict: Verdict
    template: Template
    events: Sequence[Mapping[str, Any]]  # of the pod, oldest first
    node: NodeStatus | None
    silence: str  # for how long the kubelet has not reported; empty if it reports


def find_cause(facts: Facts) -> Cause | None:
    """Return why the pod failed; None if no known cause matches."""
    verdict, name = facts.verdict, facts.request.node
    subject = Subject(
        "the smoke pod",
        name,
        facts.template.namespace,
        "verify_smoke_tolerations",
        "verify_smoke_namespace",
        "set verify_smoke_resources",
    )
    if verdict.state != "failed" or verdict.ran:
        return None
    if verdict.refusal:
        return causes.of_refusal(verdict.refusal, subject)
    if _NO_SHELL.search(verdict.message):
        return no_program(facts.template, facts.request)
    if _MISFIT.search(verdict.message):
        image = facts.template.image_of(name)
        return Cause(
            "COMPUTE_IMAGE_UNFIT", {"image": image, "error": causes.quote(verdict.message)}
        )
    reason = str(verdict.status.get("reason") or "")
    if reason == "Evicted":
        return causes.of_eviction(str(verdict.status.get("message") or ""), subject)
    if reason.startswith(_NOT_ADMITTED):
        evidence = {"what": subject.what, "node": name, "error": causes.quote(verdict.message)}
        if _DEAD_PLUGIN.search(verdict.message):
            counted, pod = "the kubelet admits no pod with GPUs", "of this node"
            return Cause("DEVICE_PLUGIN_UNREGISTERED", {**evidence, "counted": counted, "pod": pod})
        return Cause("POD_NOT_ADMITTED", evidence)
    if verdict.reason in pod_status.NO_IMAGE:
        setting = image_setting(facts.template.level, verdict.container)
        error = _pull_error(facts)
        evidence = {"error": causes.quote(error), "setting": setting}
        known = pull_causes.of_pull(error, facts.template.image_of(name), setting)
        return known or Cause("SMOKE_IMAGE_UNAVAILABLE", evidence)
    unscheduled = pod_status.unscheduled({"status": verdict.status})
    if unscheduled is not None:
        return _of_scheduler(unscheduled, facts, subject)
    return causes.of_words(verdict.message, subject) or _of_start(facts, subject)


def _pull_error(facts: Facts) -> str:
    """Return why the image does not come.

    A kubelet of before 1.32 says it in the first state of a pull only, and else in an event:
    https://github.com/kubernetes/kubernetes/pull/127918.
    """
    message = facts.verdict.message
    texts = [pod_status.event_text(event) for event in facts.events]
    found = [text for text in texts if "Failed to pull image" in text]
    if not found or found[-1].partition('": ')[2] in message:
        return message
    return f"{message}; {found[-1]}"


def image_setting(level: str, container: str) -> str:
    """Return the variable that sets the image of a container."""
    if container == CONTAINERS[EXCHANGE]:
        return "verify_exchange_image"
    return "verify_smoke_image" if level == LIST else "verify_compute_image"


def no_program(template: Template, request: Request) -> Cause:
    """Return the cause for an image without a program that computes, or without a shell."""
    return Cause("COMPUTE_PROGRAM_MISSING", {"image": template.image_of(request.node)})


def no_image() -> Cause:
    """Return the cause for a node for which no image was chosen."""
    return Cause("COMPUTE_IMAGE_UNKNOWN", {})


def no_allocatable(resource: str, asked: int, found: int) -> Cause:
    """Return the cause for a node whose allocatable amount is too small, claimed or not."""
    evidence = {"resource": resource, "asked": asked, "found": found}
    return Cause("GPUS_NOT_ALLOCATABLE", evidence)


def _fewer_allocatable(before: int | None, found: int) -> Cause:
    """Return the cause for a node that has lost GPUs since the run read its amount."""
    evidence = f"; it could allocate {before} a moment before"
    return Cause("ALLOCATABLE_DIFFERS", {"expected": before, "found": found, "evidence": evidence})


def _of_scheduler(message: str, facts: Facts, subject: Subject) -> Cause | None:
    """Return why the scheduler cannot place the pod. Its message covers all nodes."""
    node = facts.node
    if node is not None:
        taints = scheduling.untolerated(node.taints, facts.template.tolerations)
        if taints:
            return causes.of_taints(taints, node.readiness, subject)
    room = _ROOM.search(message)
    if room is None:
        return None
    resource = facts.request.resource or facts.template.resource
    if node is not None and room[0] == f"Insufficient {resource}":
        allocatable = int(node.resources.get(resource, (0, node.allocatable or 0))[1])
        if allocatable < facts.request.gpus:
            return no_allocatable(resource, facts.request.gpus, allocatable)
        if allocatable < (facts.request.allocatable or 0):
            return _fewer_allocatable(facts.request.allocatable, allocatable)
    if facts.request.shortage == "busy" and room[0] == f"Insufficient {resource}":
        return None  # the claims of other pods do not explain it
    return Cause("NODE_FULL", {"what": subject.what, "node": facts.request.node, "error": room[0]})


def _of_start(facts: Facts, subject: Subject) -> Cause | None:
    """Return why a pod that is bound to its node does not start."""
    event = causes.telling_event(facts.events)
    if event:
        cause = causes.of_words(pod_status.event_text(event), subject)
        if cause:
            return cause
    if not facts.verdict.status:  # the pod was never created
        return None
    name, node = facts.request.node, facts.node
    if node is not None and not node.ready:
        cause = causes.of_words(node.readiness, subject)
        return cause or Cause("NODE_NOT_READY", {"node": name, "error": node.readiness})
    if facts.silence:
        evidence = {"node": name, "what": subject.what, "error": facts.silence}
        return Cause("KUBELET_SILENT", evidence)
    if is_untouched(facts.verdict.status):
        evidence = {"node": name, "what": subject.what, "seconds": str(UNTOUCHED_S)}
        return Cause("DEVICE_PLUGIN_HANGS", evidence)
    pulls = [event.get("reason") for event in facts.events if "mage" in str(event.get("message"))]
    if facts.verdict.phase == "Pending" and pulls[-1:] == ["Pulling"]:
        image = facts.template.image_of(name)
        error = f"the registry of {image} has not given it within {facts.template.limit_s} s"
        setting = image_setting(facts.template.level, facts.verdict.container)
        return Cause("SMOKE_IMAGE_UNAVAILABLE", {"error": error, "setting": setting})
    if facts.verdict.phase == "Pending" and not facts.verdict.status.get("conditions"):
        return Cause("POD_NOT_SCHEDULED", {"what": subject.what})
    return None


def is_untouched(status: Mapping[str, Any]) -> bool:
    """Tell whether a pod is bound to a node, and its kubelet has not begun with it.

    The kubelet asks the device plugin before it writes anything, without a time limit: kubernetes
    v1.37.1, pkg/kubelet/cm/devicemanager/manager.go.
    """
    bound = pod_status.is_true(status, "PodScheduled")
    return bound and not status.get("startTime") and not status.get("containerStatuses")


class Heartbeats:
    """The Leases of kubelets at each look.

    Nodes write renewTime by their own clocks, which may be slow. As in Kubernetes itself, only a
    change of it counts, by the clock of this machine.

    Source: kubernetes, pkg/controller/nodelifecycle/node_lifecycle_controller.go, nodeHealthData;
    https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, float]] = {}  # renewTime, and when it was first seen

    def read_silence(
        self, node: str, lease: Mapping[str, Any], asked_s: float, answered_s: float
    ) -> str:
        """Add a look; return for how long a kubelet has been silent, empty if it is not."""
        spec = section(lease, "spec")
        renewed = str(spec.get("renewTime") or "")
        lasts_s = spec.get("leaseDurationSeconds") or 40
        seen, since_s = self._first.get(node, ("", 0.0))
        if not renewed or renewed != seen:
            self._first[node] = (renewed, answered_s)
            return ""
        unchanged_s = asked_s - since_s
        if unchanged_s <= lasts_s:
            return ""
        return (
            f"the kubelet has not renewed its Lease for {unchanged_s:.0f} s, "
            f"but the Lease lasts {lasts_s} s"
        )
