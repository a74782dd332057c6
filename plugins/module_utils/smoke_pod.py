# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The smoke pod: its manifest, and the verdict over what became of it. No I/O.

The pod writes what nvidia-smi says into its termination message, which the kubelet copies into
the pod's status. So one watch brings progress and result, no log has to be fetched from any
node, and no permission to read logs is needed.

Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.module_utils.pod_status import (
    NO_IMAGE,
    describe,
    is_hopeless,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MANAGED_BY = "app.kubernetes.io/managed-by"
OWNER = "metal.gpu"
RUN = "metal.gpu/smoke-run"  # label: id of the run that made the pod
PROCESS = "metal.gpu/smoke-process"  # annotation: identity of that run's process
OWNED = f"{MANAGED_BY}={OWNER},{RUN}"  # selector of the pods of all runs

# How long a run may live beyond its time limit, and so its pods: the time to clean up.
GRACE_S = 60

_CONTAINER = "nvidia-smi"
_COMMAND = "exec nvidia-smi --query-gpu=uuid --format=csv,noheader >/dev/termination-log 2>&1"
_UUID = re.compile(r"(GPU|MIG)-\S+")

# A sandbox that cannot be made shows in events only, and the kubelet tries for ever.
_NO_RUNTIME = re.compile(r"no runtime for .* is configured|RuntimeHandler .* not supported")


class Template(NamedTuple):
    """What all pods of a run have in common."""

    run: str
    process: str
    image: str
    resource: str
    runtime_class: str | None
    pull_secrets: Sequence[str]
    tolerations: Sequence[Mapping[str, Any]]
    limit_s: int


class Request(NamedTuple):
    """What to test on a node."""

    node: str
    gpus: int
    # What it means that the scheduler finds fewer: "wait" on, "busy" or "failed".
    shortage: str
    holders: Sequence[str] = ()  # pods that have the other GPUs of the node, where that was asked


class Verdict(NamedTuple):
    """What became of a pod."""

    state: str  # "ok", "failed", "busy"; "unknown" where nobody can tell; empty while open
    phase: str
    message: str
    uuids: tuple[str, ...] = ()
    ran: bool = False  # nvidia-smi has run to its end
    reason: str = ""  # the kubelet's word for why the container cannot start
    status: Mapping[str, Any] = {}  # of the pod, as it was seen last
    refusal: str = ""  # the API server's words, where it does not take the pod


class Leftover(NamedTuple):
    """A smoke pod found in the cluster."""

    run: str
    process: str
    created: str  # RFC 3339, as the API server writes it
    lifetime_s: int


def pod_name(run: str, node: str) -> str:
    """Return the name of a run's pod for a node.

    It is known before the pod is made, so that one whose creation nobody confirms is not made
    twice. As a host name it has at most 63 characters, and those of a long node name may be the
    same as another's.
    """
    digest = hashlib.sha256(f"{run} {node}".encode()).hexdigest()[:8]
    return f"metal-gpu-smoke-{node[:38].rstrip('-.')}-{digest}"


def manifest(template: Template, request: Request) -> dict[str, Any]:
    """Return the pod for one node.

    It is pinned by affinity to the node's name rather than by nodeName, so that the scheduler
    counts its GPUs. It meets the Pod Security Standard "restricted".
    """
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": template.limit_s + GRACE_S,
        # nvidia-smi as PID 1 ignores SIGTERM: waiting for it longer is of no use.
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [request.node]}
                            ]
                        }
                    ]
                }
            }
        },
        "tolerations": [dict(toleration) for toleration in template.tolerations],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": _CONTAINER,
                "image": template.image,
                "command": ["sh", "-c", _COMMAND],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": {"limits": {template.resource: str(request.gpus)}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
    if template.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in template.pull_secrets]
    if template.runtime_class:
        spec["runtimeClassName"] = template.runtime_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(template.run, request.node),
            "labels": {MANAGED_BY: OWNER, RUN: template.run},
            "annotations": {PROCESS: template.process},
        },
        "spec": spec,
    }


def judge(pod: Mapping[str, Any], request: Request, resource: str) -> Verdict:
    """Say what became of a pod; the state is empty while that is open."""
    return _judge(pod, request, resource)._replace(status=section(pod, "status"))


def _judge(pod: Mapping[str, Any], request: Request, resource: str) -> Verdict:
    status = section(pod, "status")
    phase = status.get("phase", "Pending")
    container: dict[str, Any] = next(iter(status.get("containerStatuses", ())), {})
    state = container.get("state", {})
    if phase == "Succeeded":
        return _judge_output(state.get("terminated", {}).get("message", ""), request.gpus)
    if phase == "Failed":
        return _judge_failure(pod, state)
    waiting = state.get("waiting", {})
    reason = waiting.get("reason", "")
    if is_hopeless(waiting):
        return Verdict("failed", phase, describe(pod), reason=reason)
    if reason in NO_IMAGE:
        return Verdict("", phase, describe(pod), reason=reason)
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            short = f"Insufficient {resource}" in condition.get("message", "")
            if not short:
                return Verdict("failed", phase, describe(pod))
            if request.shortage != "wait":
                return Verdict(request.shortage, phase, describe(pod))
    return Verdict("", phase, describe(pod))


def parse_uuids(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the output of nvidia-smi into UUIDs and anything else, such as "[GPU is lost]"."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    uuids = [line for line in lines if _UUID.fullmatch(line)]
    return tuple(uuids), tuple(line for line in lines if not _UUID.fullmatch(line))


def no_runtime(event: Mapping[str, Any]) -> bool:
    """Tell whether an event says that the node lacks the container runtime of the pod."""
    return bool(_NO_RUNTIME.search(event.get("message") or ""))


def parse_leftover(pod: Mapping[str, Any]) -> Leftover:
    metadata = pod["metadata"]
    return Leftover(
        run=metadata["labels"][RUN],
        process=metadata.get("annotations", {}).get(PROCESS, ""),
        created=metadata["creationTimestamp"],
        lifetime_s=pod["spec"].get("activeDeadlineSeconds", 0),
    )


def _judge_output(output: str, gpus: int) -> Verdict:
    uuids, rest = parse_uuids(output)
    distinct = tuple(dict.fromkeys(uuids))
    if len(distinct) == len(uuids) == gpus and not rest:
        return Verdict("ok", "Succeeded", "", uuids, ran=True)
    message = f"asked for {gpus} GPUs, but nvidia-smi sees {len(distinct)}"
    if len(distinct) != len(uuids):
        message += f", some of them twice: {', '.join(uuids)}"
    if rest:
        message += f"; it says: {' '.join(rest)}"
    return Verdict("failed", "Succeeded", message, distinct, ran=True)


def _judge_failure(pod: Mapping[str, Any], state: Mapping[str, Any]) -> Verdict:
    """Explain a pod in phase Failed: the kubelet gave it up, or nvidia-smi failed."""
    ended = state.get("terminated", {"reason": "StartError"})
    started = ended.get("reason") not in ("StartError", "ContainerCannotRun")
    if not started or pod["status"].get("reason"):
        return Verdict("failed", "Failed", describe(pod))
    message = " ".join((ended.get("message") or ended.get("reason", "")).split())
    text = f"nvidia-smi ended with exit code {ended.get('exitCode')}: {message}"
    return Verdict("failed", "Failed", text, ran=True)
