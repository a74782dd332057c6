# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Pods that request no GPU and try to get one: their manifests, and what they have seen.

Each attempt is a pod of its own, because the API server accepts or rejects a pod as a whole. The
container under test looks for device files and for mounts, with a shell and no other program:
container runtimes mount the files of the driver one by one, and the kernel lists every mount. Files
that an image brings itself, such as those of cuda-compat, are no mounts.

Source: tests/recorded/isolation.yml
"""

from __future__ import annotations

import hashlib
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import proof_pod, quantity
from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import (
    describe,
    is_hopeless,
    preempted,
    statuses,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
VOLUME_MOUNT = "/var/run/nvidia-container-devices/all"
ANNOTATION = {"cdi.k8s.io/metal-gpu-leak": "nvidia.com/gpu=all"}

# What a container tries, in the order of reports.
IMAGE, POD, PLAIN = "image_variable", "pod_variable", "plain"
MOUNT, CDI = "volume_mount", "cdi_annotation"
CLASS, CLASS_CDI = "runtime_class", "runtime_class_annotation"
CLASS_MOUNT = "runtime_class_mount"
SECOND, INIT, EPHEMERAL, UNKNOWN, PRIVILEGED = (
    "second_container",
    "init_container",
    "ephemeral_container",
    "unknown_resource",
    "privileged",
)
ATTEMPTS: Mapping[str, str] = {
    IMAGE: f"an image with {VARIABLE}=all",
    POD: f"{VARIABLE}=all in the pod",
    PLAIN: "an image without the variable",
    MOUNT: f"a mount at {VOLUME_MOUNT}",
    CDI: "the annotation {}: {}".format(*next(iter(ANNOTATION.items()))),
    CLASS: f"the RuntimeClass of NVIDIA, with an image with {VARIABLE}=all",
    CLASS_CDI: "the RuntimeClass of NVIDIA, with that annotation",
    CLASS_MOUNT: "the RuntimeClass of NVIDIA, with that mount",
    SECOND: f"another container of a pod with a GPU, its image with {VARIABLE}=all",
    INIT: f"an init container, its image with {VARIABLE}=all",
    EPHEMERAL: f"an ephemeral container, its image with {VARIABLE}=all",
    UNKNOWN: f"a nodeName and a resource that no node has, with an image with {VARIABLE}=all",
    PRIVILEGED: "a privileged container",
}

# Without them, nobody knows whether anything ran, and whether anybody could have seen a GPU.
CONTROLS = frozenset({PLAIN, PRIVILEGED})
# Pods that see GPUs by design. The second one asks as the device plugin itself does, by a hostPath:
# who may use any of those becomes root of the node anyway.
_BY_DESIGN = frozenset({PRIVILEGED, CLASS_MOUNT})
# Attempts whose image has to set the variable. Without it, nobody asked for a GPU.
_OF_IMAGE = frozenset({IMAGE, CLASS, SECOND, INIT, EPHEMERAL, UNKNOWN})
_OF_MOUNT = frozenset({MOUNT, CLASS_MOUNT})

# Results of an attempt. Only the first one is a leak; BUSY and UNPROVEN prove nothing.
LEAKED = "leaked"
NOTHING, REFUSED, BY_DESIGN = "nothing", "refused", "by_design"
BUSY, UNPROVEN = "busy", "unproven"
PLANNED = "planned"
OK = "ok"  # of a node

LOOK, OTHER = "look", "other"  # the container under test, and what the pod has besides
_BLIND = "a privileged container sees no GPU either: is the driver loaded?"
_NAMED = 20  # how many findings a container names

# A shell reads mountinfo by itself; the fifth field is the mount point. The end is written last: an
# output without it is of a container that was stopped.
SCRIPT = f"""\
count=0
say() {{
  count=$((count + 1))
  if [ "$count" -le {_NAMED} ]; then printf '%s %s\\n' "$1" "$2"; fi
}}
look() {{
  for file in /dev/nvidia* /dev/nvidia-caps/*; do
    if [ -e "$file" ]; then say device "$file"; fi
  done
  while read -r id parent number root point rest; do
    case $point in
      */nvidia-container-devices*) ;;
      /dev/*) ;;
      *nvidia*|*libcuda*) say mount "$point" ;;
    esac
  done </proc/self/mountinfo
  printf 'variable %s\\n' "${{{VARIABLE}:+set}}"
  printf 'seen %s\\n' "$count"
}}
look >/dev/termination-log
"""
_END = re.compile(r"^seen (?P<count>\d+)$", re.MULTILINE)
_SET = re.compile(r"^variable set$", re.MULTILINE)
_SEEN = re.compile(r"^(?:device|mount) (?P<path>/.*)$", re.MULTILINE)


class Template(NamedTuple):
    """What all pods of a run have in common."""

    run: str
    process: str
    namespace: str
    image: str  # without the variable
    cuda_image: str  # with NVIDIA_VISIBLE_DEVICES=all
    resource: str
    runtime_class: str
    pull_secrets: Sequence[str]
    tolerations: Sequence[Mapping[str, Any]]
    limit_s: int
    priority_class: str = proof_pod.PRIORITY_CLASS


class Try(NamedTuple):
    """An attempt on a node."""

    node: str
    attempt: str


class Result(NamedTuple):
    """What an attempt came to."""

    state: str
    seen: tuple[str, ...] = ()
    total: int = 0  # of what was seen; not all of it has a name
    message: str = ""  # why it was refused, or proves nothing


def to_try(attempts: Sequence[str] | None) -> list[str]:
    """Return the attempts of a run, in the order of reports: all, or these and the controls."""
    return [one for one in ATTEMPTS if not attempts or one in (*attempts, *CONTROLS)]


def pod_name(run: str, one: Try) -> str:
    """Return the name of a pod; see smoke_pod.pod_name."""
    digest = hashlib.sha256(f"{run} {one.node} {one.attempt}".encode()).hexdigest()[:8]
    return f"metal-gpu-leak-{one.attempt.replace('_', '-')}-{digest}"


def manifest(template: Template, one: Try) -> dict[str, Any]:
    """Return the pod of an attempt. It is as harmless as the attempt allows."""
    attempt = one.attempt
    spec: dict[str, Any] = {
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **_containers(template, attempt),
    }
    if attempt in _OF_MOUNT:
        spec["volumes"] = [{"name": "request", "hostPath": {"path": "/dev/null"}}]
    if attempt in (CLASS, CLASS_CDI, CLASS_MOUNT):
        spec["runtimeClassName"] = template.runtime_class
    # NVIDIA's runtime reads annotations that the engine does not.
    annotations = ANNOTATION if attempt in (CDI, CLASS_CDI) else {}
    if attempt == UNKNOWN:  # the scheduler would leave it pending; the kubelet drops its request
        spec["nodeName"] = one.node
    return proof_pod.manifest(template, pod_name(template.run, one), one.node, spec, annotations)


def _containers(template: Template, attempt: str) -> dict[str, Any]:
    look = _container(LOOK, template.cuda_image if attempt in _OF_IMAGE else template.image)
    other = _container(OTHER, template.image, ":")
    if attempt == POD:
        look["env"] = [{"name": VARIABLE, "value": "all"}]
    elif attempt in _OF_MOUNT:
        look["volumeMounts"] = [{"name": "request", "mountPath": VOLUME_MOUNT}]
    elif attempt == UNKNOWN:
        look["resources"] = {"limits": {f"{template.resource}-none": "1"}}
    elif attempt == PRIVILEGED:
        look["securityContext"] = {"privileged": True}
    elif attempt == SECOND:
        other["resources"] = {"limits": {template.resource: "1"}}
        return {"containers": [other, look]}
    elif attempt == INIT:
        return {"initContainers": [look], "containers": [other]}
    elif attempt == EPHEMERAL:  # that one comes when this one runs
        wait = f"sleep {template.limit_s}"
        return {"containers": [_container(OTHER, template.image, wait)]}
    return {"containers": [look]}


def ephemeral(template: Template) -> dict[str, Any]:
    """Return the patch that adds the ephemeral container."""
    return {"spec": {"ephemeralContainers": [_container(LOOK, template.cuda_image)]}}


def _container(name: str, image: str, script: str = SCRIPT) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "command": ["sh", "-c", script],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
        },
    }


def needs_ephemeral(pod: Mapping[str, Any], attempt: str) -> bool:
    """Tell whether it is time to add the ephemeral container."""
    is_running = section(pod, "status").get("phase") == "Running"
    return (
        attempt == EPHEMERAL and is_running and not section(pod, "spec").get("ephemeralContainers")
    )


def judge(pod: Mapping[str, Any], attempt: str, resource: str) -> Result | None:
    """Return what a pod came to; None while it is undecided."""
    status = section(pod, "status")
    found = [*statuses(pod), *status.get("ephemeralContainerStatuses", ())]
    for container in found:
        ended = section(container, "state", "terminated")
        if container.get("name") == LOOK and ended:
            return judge_output(str(ended.get("message") or ""), attempt, describe(pod))
    if preempted(pod):
        return Result(BUSY if attempt == SECOND else UNPROVEN, message=preempted(pod))
    waiting = [section(container, "state", "waiting") for container in found]
    if any(is_hopeless(state) for state in waiting) or status.get("phase") in (
        "Failed",
        "Succeeded",
    ):
        return Result(UNPROVEN, message=_why(pod, waiting))
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            is_short = f"Insufficient {resource}" in condition.get("message", "")
            state = BUSY if is_short and attempt == SECOND else UNPROVEN
            return Result(state, message=describe(pod))
    return None


def _why(pod: Mapping[str, Any], waiting: Sequence[Mapping[str, Any]]) -> str:
    """Describe a pod. `describe` does not know ephemeral containers."""
    for state in waiting:
        if is_hopeless(state):
            return ": ".join(filter(None, (state.get("reason"), state.get("message"))))
    return describe(pod)


def judge_output(output: str, attempt: str, otherwise: str = "") -> Result:
    """Return what the container under test has seen."""
    end = _END.search(output)
    if end is None:
        text = " ".join(output.split()) or otherwise
        return Result(UNPROVEN, message=f"the container did not finish: {text}")
    total = int(end["count"])
    seen = tuple(match["path"] for match in _SEEN.finditer(output))
    if not total and attempt in _OF_IMAGE and not _SET.search(output):
        return Result(UNPROVEN, message=f"the image does not set {VARIABLE}")
    if not total:
        return Result(NOTHING)
    return Result(BY_DESIGN if attempt in _BY_DESIGN else LEAKED, seen, total)


def offers_no_gpu(node: NodeStatus, resource: str) -> str:
    """Tell why no pod of a node gets a GPU, whatever it asks for; empty if one can.

    Pods that hold GPUs do not change what is allocatable. A node may have them by other names.
    """
    if node.allocatable or any(allocatable for _capacity, allocatable in node.resources.values()):
        return ""
    capacity = quantity.plain(node.capacity or Decimal(0))
    return f"the node offers no GPU: its capacity of {resource} is {capacity}, its allocatable 0"


def controlled(results: Mapping[str, Result], no_gpu: str = "") -> dict[str, Result]:
    """Return the results of a node; those that prove nothing without a control are unproven.

    A pod that is rejected shows a protection only if `plain` ran: what rejects that one rejects
    everything, GPUs or not. And nobody sees a GPU that a privileged container does not see, or that
    the node does not offer: `no_gpu` is why. Its device files alone are no GPUs.
    """
    found = {**results}
    if no_gpu:
        nothing = Result(UNPROVEN, message=no_gpu)
        found |= {name: nothing for name, one in found.items() if one.state in (NOTHING, BUSY)}
    plain, privileged = results.get(PLAIN), results.get(PRIVILEGED)
    if plain and plain.state not in (NOTHING, LEAKED):
        other = Result(UNPROVEN, message=plain.message)
        found |= {name: other for name, one in found.items() if one.state == REFUSED}
    if privileged and privileged.state == NOTHING:
        blind = Result(UNPROVEN, message=_BLIND)
        found |= {name: blind for name, one in found.items() if one.state == NOTHING}
    return found


def state_of(results: Mapping[str, Result]) -> str:
    """Return the state of a node: leaked, unproven, busy, planned or ok."""
    states = {result.state for result in results.values()}
    return next((state for state in (LEAKED, UNPROVEN, BUSY, PLANNED) if state in states), OK)
