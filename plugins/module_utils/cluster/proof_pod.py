# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the pods of the smoke test and of the leak test have in common.

Each runs once on one node, belongs to a run, and carries who may delete it. Only `new_run` does
I/O: it reads the identity of this process.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ansible_collections.metal.gpu.plugins.module_utils.probe import process_identity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "metal.gpu"
RUN = "metal.gpu/smoke-run"  # label: id of the run that created the pod
PROCESS = "metal.gpu/smoke-process"  # annotation: identity of that run's process
ALL_RUNS = f"{MANAGED_BY}={MANAGER},{RUN}"  # selector of the pods of all runs

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


def parse_leftover(pod: Mapping[str, Any]) -> Leftover:
    metadata = pod["metadata"]
    return Leftover(
        run=metadata["labels"][RUN],
        process=metadata.get("annotations", {}).get(PROCESS, ""),
        created=metadata["creationTimestamp"],
        lifetime_s=pod["spec"].get("activeDeadlineSeconds", 0),
    )
