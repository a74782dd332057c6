# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""The smoke pod: its manifest, and the verdict on its result. No I/O.

The pod writes the output of nvidia-smi to its termination message. The kubelet copies that
message to the pod's status. So one watch shows both progress and result, and reading logs, with
the permission for it, is not necessary.

Source: https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import (
    NO_IMAGE,
    describe,
    is_hopeless,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "metal.gpu"
RUN = "metal.gpu/smoke-run"  # label: id of the run that created the pod
PROCESS = "metal.gpu/smoke-process"  # annotation: identity of that run's process
ALL_RUNS = f"{MANAGED_BY}={MANAGER},{RUN}"  # selector of the pods of all runs

# How long a run and its pods may exist after the time limit: the time to clean up.
GRACE_S = 60

_CONTAINER = "nvidia-smi"
_COMMAND = "exec nvidia-smi --query-gpu=uuid --format=csv,noheader >/dev/termination-log 2>&1"
_UUID = re.compile(r"(GPU|MIG)-\S+")

# A sandbox that cannot be created shows only in events, and the kubelet retries forever.
_NO_RUNTIME = re.compile(r"no runtime for .* is configured|RuntimeHandler .* not supported")


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


class Request(NamedTuple):
    """What to test on a node."""

    node: str
    gpus: int
    # What to do when the scheduler finds fewer free GPUs: "wait", or report "busy" or "failed".
    shortage: str
    holders: Sequence[str] = ()  # pods that claim the other GPUs of the node, if they were read
    allocatable: int | None = None  # of the node at that time; None if it was not read
    claims: Mapping[str, str] = {}  # the holders by their UID
    # Of a node whose GPUs are shared: what its pod asks for. Empty: that of the template.
    resource: str = ""


class Verdict(NamedTuple):
    """The result of a pod."""

    state: str  # "ok", "failed", "busy"; "unknown" if the server is silent; empty while undecided
    phase: str
    message: str
    uuids: tuple[str, ...] = ()
    ran: bool = False  # nvidia-smi started and exited
    reason: str = ""  # why the container cannot start, such as "ErrImagePull"
    status: Mapping[str, Any] = {}  # last observed status of the pod
    refusal: str = ""  # the API server's message, if it rejected the pod


class Leftover(NamedTuple):
    """A smoke pod of an earlier run."""

    run: str
    process: str
    created: str  # RFC 3339, as the API server writes it
    lifetime_s: int


def pod_name(run: str, node: str) -> str:
    """Return the name of a run's pod for a node.

    The name is fixed before the pod is created. So a retry after a lost answer does not create a
    second pod. A host name has at most 63 characters, so long node names are cut; the digest keeps
    the names of two such nodes apart.
    """
    digest = hashlib.sha256(f"{run} {node}".encode()).hexdigest()[:8]
    return f"metal-gpu-smoke-{node[:38].rstrip('-.')}-{digest}"


def manifest(template: Template, request: Request) -> dict[str, Any]:
    """Return the pod for one node.

    An affinity to the node's name pins it, because with nodeName the scheduler would not count its
    GPUs. The pod meets the Pod Security Standard "restricted".
    """
    name = {"key": "metadata.name", "operator": "In", "values": [request.node]}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": template.limit_s + GRACE_S,
        # nvidia-smi as PID 1 ignores SIGTERM, so a longer wait is useless.
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [name]}]
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
                "resources": {"limits": {request.resource or template.resource: str(request.gpus)}},
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
            "labels": {MANAGED_BY: MANAGER, RUN: template.run},
            "annotations": {PROCESS: template.process},
        },
        "spec": spec,
    }


def judge(pod: Mapping[str, Any], request: Request, resource: str) -> Verdict:
    """Return the verdict on a pod; the state is empty while it is undecided."""
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


def parse_uuids(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the output of nvidia-smi into UUIDs and other lines, such as "[GPU is lost]"."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    uuids = [line for line in lines if _UUID.fullmatch(line)]
    return tuple(uuids), tuple(line for line in lines if not _UUID.fullmatch(line))


def no_runtime(event: Mapping[str, Any]) -> bool:
    """Return whether an event reports that the pod's runtime is not configured on the node."""
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
    message = f"the pod requested {gpus} GPUs, but nvidia-smi listed {len(distinct)}"
    if len(distinct) != len(uuids):
        message += f", some of them twice: {', '.join(uuids)}"
    if rest:
        message += f"; it printed: {' '.join(rest)}"
    return Verdict("failed", "Succeeded", message, distinct, ran=True)


def _judge_failure(pod: Mapping[str, Any], state: Mapping[str, Any]) -> Verdict:
    """Explain a pod in phase Failed: the kubelet rejected or killed it, or nvidia-smi failed."""
    ended = state.get("terminated", {"reason": "StartError"})
    started = ended.get("reason") not in ("StartError", "ContainerCannotRun")
    if not started or pod["status"].get("reason"):
        return Verdict("failed", "Failed", describe(pod))
    message = " ".join((ended.get("message") or ended.get("reason", "")).split())
    text = f"nvidia-smi exited with code {ended.get('exitCode')}: {message}"
    return Verdict("failed", "Failed", text, ran=True)
