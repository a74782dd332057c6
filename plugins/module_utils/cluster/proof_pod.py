# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the pods of the smoke test and of the leak test have in common.

Each runs once on one node, belongs to a run, carries who may delete it, and never displaces another
pod. Only `new_run` and `create` do I/O.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import ApiRefused
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.module_utils.probe import process_identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "metal.gpu"
RUN = "metal.gpu/smoke-run"  # label: id of the run that created the pod
PROCESS = "metal.gpu/smoke-process"  # annotation: identity of that run's process
ALL_RUNS = f"{MANAGED_BY}={MANAGER},{RUN}"  # selector of the pods of all runs

# A pod gets its preemptionPolicy from its class only. With the lowest value, a pod that has work
# for the GPUs takes them at once.
PRIORITY_CLASS, PRIORITY, NEVER = "metal-gpu-proof", -(2**31), "Never"

# How long a run and its pods may exist after the time limit: the time to clean up.
GRACE_S = 60

# The options of a module that runs such pods.
ARGUMENTS: dict[str, Any] = {
    "image_pull_secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "resource": {"type": "str", "default": "nvidia.com/gpu"},
    "tolerations": {
        "type": "list",
        "elements": "dict",
        "default": [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"}
            for key in ("nvidia.com/gpu", "node.kubernetes.io/unschedulable")
        ],
    },
    "namespace": {"type": "str", "default": "default"},
    "priority_class": {"type": "str", "default": PRIORITY_CLASS},
    "wait_timeout": {"type": "int", "default": 300},
}


class Common(Protocol):
    """What the template of a run must have, whatever its pods do."""

    @property
    def run(self) -> str:
        """The mark of the pods of this run."""

    @property
    def process(self) -> str:
        """The mark of the process that made them."""

    @property
    def namespace(self) -> str:
        """The namespace of the pods."""

    @property
    def pull_secrets(self) -> Sequence[str]:
        """The names of the secrets for the registry."""

    @property
    def tolerations(self) -> Sequence[Mapping[str, Any]]:
        """The tolerations of the pods."""

    @property
    def priority_class(self) -> str:
        """The name of their PriorityClass."""

    @property
    def limit_s(self) -> int:
        """How long a pod may live, in seconds."""


class Leftover(NamedTuple):
    """A pod of an earlier run."""

    run: str
    process: str
    created: str  # RFC 3339, as the API server writes it
    lifetime_s: int


def new_run(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a template for a new run, from the options of a module."""
    return {
        "run": uuid.uuid4().hex[:12],
        "process": process_identity.read_identity(os.getpid()),
        "namespace": params["namespace"],
        "priority_class": params["priority_class"],
        "resource": params["resource"],
        "pull_secrets": params["image_pull_secrets"],
        "tolerations": params["tolerations"],
        "limit_s": params["wait_timeout"],
    }


def manifest(
    template: Common,
    name: str,
    node: str,
    spec: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a pod that runs once on a node. `spec` is what it does there.

    An affinity to the node's name pins it, because with nodeName the scheduler would not count its
    GPUs.
    """
    only = {"key": "metadata.name", "operator": "In", "values": [node]}
    whole: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": template.limit_s + GRACE_S,
        # nvidia-smi as PID 1 ignores SIGTERM, so a longer wait is useless.
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [only]}]
                }
            }
        },
        "tolerations": [dict(toleration) for toleration in template.tolerations],
        "priorityClassName": template.priority_class,
        **spec,
    }
    if template.pull_secrets:
        whole["imagePullSecrets"] = [{"name": secret} for secret in template.pull_secrets]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {MANAGED_BY: MANAGER, RUN: template.run},
            "annotations": {PROCESS: template.process, **(annotations or {})},
        },
        "spec": whole,
    }


def create(
    client: Client, template: Common, pod: Mapping[str, Any], timer: Timer
) -> dict[str, Any]:
    """Create a pod, unless the scheduler may delete other pods for it; raise KubeErrors.

    Only the answer of admission shows the policy: it can change the class, or have another default.
    """
    tried = client.create("pods", pod, template.namespace, timer, dry_run=True)
    spec = section(tried, "spec")
    if spec.get("preemptionPolicy") != NEVER:
        name, policy = spec.get("priorityClassName"), spec.get("preemptionPolicy")
        reply = f"the PriorityClass {name} has the preemptionPolicy {policy}, not {NEVER}"
        raise ApiRefused(f"No pod was created: {reply}.", reply)
    return client.create("pods", pod, template.namespace, timer)


def parse_leftover(pod: Mapping[str, Any]) -> Leftover:
    metadata = pod["metadata"]
    return Leftover(
        run=metadata["labels"][RUN],
        process=metadata.get("annotations", {}).get(PROCESS, ""),
        created=metadata["creationTimestamp"],
        lifetime_s=pod["spec"].get("activeDeadlineSeconds", 0),
    )
