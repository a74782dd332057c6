# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The smoke pod: its manifest, and the verdict on its result.

The containers write their results to their termination messages. The kubelet copies these
messages to the pod's status. So one watch shows both progress and result, and reading logs, with
the permission for it, is not necessary. `smoke_output` has what they run and write.

At the level "exchange", the pod computes in an init container, and then exchanges data between the
same GPUs: the kubelet gives the devices of an init container to the containers after it.

Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    causes,
    proof_pod,
    smoke_output,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import (
    NO_IMAGE,
    PREEMPTED,
    describe,
    is_hopeless,
    preempted,
    statuses,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import (
    COMPUTE,
    CONTAINERS,
    EXCHANGE,
    LIST,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_verdict import (
    Verdict,
    is_result,
    judge_failure,
    judge_output,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence


class Template(NamedTuple):
    """What all pods of a run have in common."""

    run: str
    process: str
    namespace: str
    image: str
    resource: str
    runtime_class: str | None
    pull_secrets: Sequence[str]
    tolerations: Sequence[Mapping[str, Any]]
    limit_s: int
    priority_class: str = proof_pod.PRIORITY_CLASS
    level: str = LIST
    images: Mapping[str, str] = {}  # by node; the other nodes use `image`
    exchange_image: str = ""
    exchange_command: Sequence[str] = ()
    resources: Mapping[str, Mapping[str, Any]] = {}  # requests and limits besides the GPUs
    listed: Collection[str] = ()  # nodes whose pods start no CUDA program

    def level_of(self, node: str) -> str:
        return LIST if node in self.listed else self.level

    def image_of(self, node: str) -> str:
        return self.images.get(node, self.image)


class Request(NamedTuple):
    """What to test on a node."""

    node: str
    gpus: int
    # What to do when the scheduler finds fewer free GPUs: "wait", or report "busy" or "failed".
    shortage: str
    holders: Sequence[str] = ()  # pods that claim the other GPUs of the node, if they were read
    allocatable: int | None = None  # of the node at that time; None if it was not read
    claims: Mapping[str, str] = {}  # the holders by their UID
    # What the pod of a node asks for whose GPUs are shared, or have another name. Empty: that of
    # the template.
    resource: str = ""
    is_share: bool = False  # of a GPU, and not a whole one


def pod_name(run: str, node: str) -> str:
    """Return the name of a run's pod for a node.

    The name is fixed before the pod is created. So a retry after a lost answer does not create a
    second pod. A host name has at most 63 characters, so long node names are cut; the digest keeps
    the names of two such nodes apart.
    """
    digest = hashlib.sha256(f"{run} {node}".encode()).hexdigest()[:8]
    return f"metal-gpu-smoke-{node[:38].rstrip('-.')}-{digest}"


def manifest(template: Template, request: Request) -> dict[str, Any]:
    """Return the pod for one node. It meets the Pod Security Standard "restricted"."""
    spec: dict[str, Any] = {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **_containers(template, request),
    }
    if template.runtime_class:
        spec["runtimeClassName"] = template.runtime_class
    name = pod_name(template.run, request.node)
    return proof_pod.manifest(template, name, request.node, spec)


def exchanges(template: Template, request: Request) -> bool:
    """Tell whether the pod of a request exchanges data between GPUs. One GPU has nobody to."""
    return template.level_of(request.node) == EXCHANGE and request.gpus > 1


def _containers(template: Template, request: Request) -> dict[str, Any]:
    image = template.image_of(request.node)
    if not exchanges(template, request):
        level = LIST if template.level_of(request.node) == LIST else COMPUTE
        return {"containers": [_container(template, request, level, image)]}
    other = _container(template, request, EXCHANGE, template.exchange_image)
    return {
        "initContainers": [_container(template, request, COMPUTE, image)],
        "containers": [other],
    }


def _container(template: Template, request: Request, level: str, image: str) -> dict[str, Any]:
    resources = {key: dict(amounts) for key, amounts in template.resources.items() if amounts}
    gpus = {request.resource or template.resource: str(request.gpus)}
    limits = {**resources.get("limits", {}), **gpus}
    return {
        "name": CONTAINERS[level],
        "image": image,
        "command": smoke_output.command(level, template.exchange_command, template.limit_s),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {**resources, "limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def judge(pod: Mapping[str, Any], request: Request, resource: str, exchange: str = "") -> Verdict:
    """Return the verdict on a pod; the state is empty while it is undecided.

    `exchange` is the program that exchanges data.
    """
    return _judge(pod, request, resource, exchange)._replace(status=section(pod, "status"))


def _judge(pod: Mapping[str, Any], request: Request, resource: str, exchange: str) -> Verdict:
    status = section(pod, "status")
    phase = status.get("phase", "Pending")
    ended = {name: found for name, found in _ended(pod) if found}
    if phase == "Succeeded" or (phase == "Failed" and is_result(pod, ended)):
        return judge_output(phase, ended, request.gpus, exchange)
    why = preempted(pod)
    if why:
        return Verdict(PREEMPTED, phase, why)
    if phase == "Failed":
        return judge_failure(pod, ended)
    name, waiting = _waiting(pod)
    reason = waiting.get("reason", "")
    # What the init container has proven is proven, whatever the next container waits for.
    done = Verdict("", phase, "")
    if CONTAINERS[COMPUTE] in ended:
        done = judge_output(phase, ended, request.gpus)._replace(ran=False)
    if is_hopeless(waiting):
        return done._replace(state="failed", message=describe(pod), reason=reason, container=name)
    if reason in NO_IMAGE:
        return done._replace(state="", message=describe(pod), reason=reason, container=name)
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            short = f"Insufficient {resource}" in condition.get("message", "")
            if not short:
                return Verdict("failed", phase, describe(pod))
            if request.shortage != "wait":
                return Verdict(request.shortage, phase, describe(pod))
    return done._replace(state="", message=describe(pod))


def _ended(pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each container, and how it ended: empty if it did not run, or not yet."""
    for container in statuses(pod):
        yield container.get("name", ""), section(container, "state", "terminated")


def _waiting(pod: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the first container that waits for something of its own, and for what."""
    for container in statuses(pod):
        waiting = section(container, "state", "waiting")
        if waiting and waiting.get("reason") != "PodInitializing":
            return container.get("name", ""), waiting
    return "", {}


def judge_shortage(
    verdict: Verdict,
    request: Request,
    resource: str,
    allocatable: int,
    free: int,
    holders: Sequence[str],
) -> Verdict:
    """Return why the scheduler finds too few free GPUs, given a new look at node and claims.

    The state is "busy" if other pods claim them, and "failed" if the node has fewer than before. It
    is empty if neither explains the lack.
    """
    if allocatable < (request.allocatable or 0):
        return verdict._replace(state="failed")
    if holders and free < request.gpus:
        message = f"{verdict.message}; claimed by {', '.join(holders)}"
        return verdict._replace(state="busy", message=message)
    claimed = f"pods claim {allocatable - free} of {allocatable} {resource}"
    return verdict._replace(state="", message=f"{claimed}, but: {verdict.message}")


def no_runtime(event: Mapping[str, Any]) -> bool:
    """Return whether an event reports that the pod's runtime is not configured on the node."""
    return causes.has_no_runtime(event.get("message") or "")
