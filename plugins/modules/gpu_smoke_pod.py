#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_smoke_pod
short_description: Run nvidia-smi in a pod on each node
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Runs a pod on each named node, on all nodes at once. The pod requests GPUs by its limits, and
    lists the GPUs that it sees. A node passes if the pod sees exactly as many GPUs as it requested.
  - Fails without waiting if a pod can never run. Reasons are its image, its RuntimeClass, admission
    control, a taint, a lack of GPUs, or a dead kubelet. The result has the pod's events.
    RV(nodes.cause) names a known cause.
  - Waits for an image that may still arrive, for example from a busy registry.
  - Always deletes its pods, and waits until their GPUs are free again. If it is killed before, the
    next run in the same namespace deletes them.
  - Keeps results. If the API server stops answering, only the nodes without a result become
    V(unknown). RV(left_behind) names the pods that cannot be deleted.
extends_documentation_fragment:
  - metal.gpu.attributes
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
attributes:
  check_mode:
    support: full
    description: Reads the nodes and reports how many GPUs it would request. Creates no pod.
  diff_mode:
    support: N/A
    description: Its pods are temporary, so there is nothing to compare.
  idempotent:
    support: full
    description: Reports a change only if it deletes pods that an earlier run left behind.
options:
  nodes:
    description: Names of the nodes in the cluster.
    type: list
    elements: str
    required: true
  gpus:
    description:
      - Number of GPUs that the pod of each node requests by its limits.
      - V(free) means all GPUs of the node that no other pod claims. A node whose GPUs are all
        claimed by other pods is V(busy), and does not fail the task. A node without allocatable
        GPUs fails, and so does a node that has lost GPUs which no pod claims.
    type: str
    default: "1"
  image:
    description:
      - The image of the pods, by tag or by digest.
      - It needs a shell. The container toolkit adds C(nvidia-smi) from the node.
    type: str
    required: true
  image_pull_secrets:
    description: Names of Secrets in O(namespace) with the credentials for the image.
    type: list
    elements: str
    default: []
  runtime_class:
    description: Name of the RuntimeClass of the pods. If not set, the node's default runtime.
    type: str
  tolerations:
    description:
      - Tolerations of the pods, in the form of a Pod's C(spec.tolerations).
      - With the default, cordoned nodes are tested as well. So you can test a node before you
        uncordon it.
    type: list
    elements: dict
    default:
      - key: nvidia.com/gpu
        operator: Exists
        effect: NoSchedule
      - key: node.kubernetes.io/unschedulable
        operator: Exists
        effect: NoSchedule
  resource:
    description: Name of the resource that the pods request.
    type: str
    default: nvidia.com/gpu
  namespace:
    description: Namespace of the pods.
    type: str
    default: default
  wait_for_gpus:
    description:
      - Wait while other pods claim the requested GPUs.
      - If V(false), such a node fails, or is V(busy) with O(gpus=free).
    type: bool
    default: false
  wait_timeout:
    description: Number of seconds to wait for the pods. Must be greater than V(0).
    type: int
    default: 300
  report_only:
    description:
      - Report failures without failing. Nodes that failed do not fail the task. Neither does an API
        server that does not answer; RV(error) has its error.
    type: bool
    default: false
notes:
  - Needs the permissions to list nodes, and to create, list, watch and C(deletecollection) or
    delete pods in O(namespace). O(gpus=free) also needs the permission to list pods in all
    namespaces.
  - Causes need the permissions to list and watch events in O(namespace), and to list Leases in the
    namespace C(kube-node-lease). RV(nodes.notes) reports it if they are missing.
  - Retries requests to an API server that is busy (429, 5xx) or stalls, until the time is up and
    for at least 30 seconds.
  - The pods meet the Pod Security Standard C(restricted), request no CPU or memory, and have no
    service account token.
seealso:
  - module: metal.gpu.gpu_capacity
"""

EXAMPLES = r"""
- name: Test two GPUs of each of two nodes
  metal.gpu.gpu_smoke_pod:
    image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
    runtime_class: nvidia
    nodes: [gpu-1, gpu-2]
    gpus: 2
  delegate_to: localhost
  run_once: true

- name: Test every free GPU of a group, with an image from a private registry
  metal.gpu.gpu_smoke_pod:
    kubeconfig: /etc/kubernetes/admin.conf
    image: "{{ registry }}/cuda@{{ digest }}"
    image_pull_secrets: [registry]
    namespace: gpu-tests
    nodes: "{{ groups['gpu_nodes'] }}"
    gpus: free
    tolerations:
      - operator: Exists
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
nodes:
  description: Each node, keyed by name.
  returned: when the API server answered, also on failure; empty with RV(error)
  type: dict
  contains:
    state:
      description:
        - V(ok) if the pod saw as many GPUs as it requested. V(busy) if other pods claim all GPUs.
          V(planned) in check mode. V(unknown) if the API server stopped answering before there was
          a result. V(failed) otherwise.
      type: str
    gpus:
      description: Number of GPUs that the pod requested. V(0) without a pod.
      type: int
    allocatable:
      description:
        - Number of allocatable GPUs of the node before the pod was created. V(null) if the cluster
          has no node of this name.
      type: int
    uuids:
      description: UUIDs of the GPUs that the pod saw.
      type: list
      elements: str
    pod:
      description: Name of the pod. Empty without a pod.
      type: str
    namespace:
      description: Namespace of the pod.
      type: str
    holders:
      description:
        - With O(gpus=free), the pods that claim the other GPUs of the node, as namespace/name.
      type: list
      elements: str
    phase:
      description: Last phase of the pod. Empty without a pod.
      type: str
    message:
      description: Why the node is not V(ok).
      type: str
    reason:
      description:
        - The kubelet's reason why the container cannot start, such as V(ErrImagePull). Empty if
          there is none.
      type: str
    cause:
      description:
        - Why the pod did not run. V(null) if it ran, or if no known cause matches.
      type: dict
      contains:
        code:
          description: A code of C(docs/troubleshooting.md), such as V(NODE_TAINTED).
          type: str
        evidence:
          description: Values for the texts of this code.
          type: dict
    events:
      description: Newest events of a pod that never ran, oldest first.
      type: list
      elements: str
    notes:
      description: Evidence for the failure that could not be read, with the errors.
      type: list
      elements: str
    left_behind:
      description: Why the pod may still exist. Empty if it is deleted.
      type: str
    seconds:
      description: Seconds until the result.
      type: float
  sample:
    gpu-1:
      state: ok
      gpus: 2
      allocatable: 2
      uuids:
        - GPU-0f5a7b7e-1c9e-4a54-9e0f-3c3c1c6d2f10
        - GPU-5c1f2a34-7d0b-4a0e-8a55-0e6a9b1f4c21
      holders: []
      pod: metal-gpu-smoke-gpu-1-0b7e1c9e
      namespace: default
      phase: Succeeded
      message: ""
      reason: ""
      cause: null
      events: []
      notes: []
      left_behind: ""
      seconds: 1.9
    gpu-2:
      state: busy
      gpus: 0
      allocatable: 4
      uuids: []
      holders: [default/training-0]
      pod: ""
      namespace: default
      phase: ""
      message: "other pods claim all 4 nvidia.com/gpu: default/training-0"
      reason: ""
      cause: null
      events: []
      notes: []
      left_behind: ""
      seconds: 0.1
swept:
  description: Pods of earlier runs that were deleted; in check mode, that would be deleted.
  returned: success
  type: list
  elements: str
  sample: []
left_behind:
  description: Pods of this run and of earlier runs that could not be deleted.
  returned: success
  type: list
  elements: str
  sample: []
error:
  description: Why the API server did not answer. Empty if it answered.
  returned: with O(report_only)
  type: str
  sample: ""
"""

import os
import time
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import interrupts
from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    kube_module,
    smoke_causes,
    smoke_cleanup,
    smoke_evidence,
    smoke_pod,
    smoke_run,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import Request, Verdict
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_run import Outcome
from ansible_collections.metal.gpu.plugins.module_utils.probe import process_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FREE = "free"
SWEEP_S = 30.0

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_module.ARGUMENTS,
    "nodes": {"type": "list", "elements": "str", "required": True},
    "gpus": {"type": "str", "default": "1"},
    "image": {"type": "str", "required": True},
    "image_pull_secrets": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "runtime_class": {"type": "str"},
    "tolerations": {
        "type": "list",
        "elements": "dict",
        "default": [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"}
            for key in ("nvidia.com/gpu", "node.kubernetes.io/unschedulable")
        ],
    },
    "resource": {"type": "str", "default": "nvidia.com/gpu"},
    "namespace": {"type": "str", "default": "default"},
    "wait_for_gpus": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 300},
}


def parse_counts(nodes: Sequence[str], gpus: str) -> dict[str, int | None]:
    """Return how many GPUs to test on each node; None means all free GPUs.

    Raises ValueError.
    """
    if not nodes:
        raise ValueError("nodes is empty: name at least one node")
    if gpus != FREE and not (gpus.isdecimal() and int(gpus) > 0):
        raise ValueError(f"gpus must be an integer greater than 0 or {FREE!r}, not {gpus!r}")
    return dict.fromkeys(nodes, None if gpus == FREE else int(gpus))


def run(
    client: Client,
    counts: Mapping[str, int | None],
    template: smoke_pod.Template,
    *,
    wait_for_gpus: bool,
    check_mode: bool,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Return the module's result, with "failed" if a node failed; raise KubeError."""
    timer = Timer(template.limit_s, clock)
    leftovers = smoke_cleanup.read_leftovers(client, template.namespace)
    left: dict[str, str] = {}
    if leftovers and not check_mode:
        sweep = Timer(SWEEP_S, clock)
        left = smoke_cleanup.remove_leftovers(client, template.namespace, leftovers, sweep)
    swept = sorted(leftovers.keys() - left.keys())

    desired, outcomes = choose(client, counts, template.resource, wait_for_gpus, timer)
    if check_mode:
        outcomes += [Outcome(request, "", Verdict("planned", "", ""), 0.0) for request in desired]
    elif desired:
        outcomes += smoke_run.prove(client, template, desired, timer)

    by_node = {outcome.request.node: _describe(outcome, template.namespace) for outcome in outcomes}
    nodes = {name: by_node[name] for name in counts}
    left.update({row["pod"]: row["left_behind"] for row in nodes.values() if row["left_behind"]})
    result: dict[str, Any] = {
        "changed": bool(swept),
        "nodes": nodes,
        "swept": swept,
        "left_behind": sorted(left),
    }
    failed = {name: row for name, row in nodes.items() if row["state"] in ("failed", "unknown")}
    if failed:
        rows = [f"{name}: {_explain(node)}" for name, node in failed.items()]
        head = f"{len(failed)} of {len(nodes)} nodes failed the smoke test:"
        result.update(failed=True, msg="\n".join([head, *rows]))
    return result


def choose(
    client: Client,
    counts: Mapping[str, int | None],
    resource: str,
    wait_for_gpus: bool,
    timer: Timer,
) -> tuple[list[Request], list[Outcome]]:
    """Return the requests, and the outcomes of nodes without anything to test."""
    observed = smoke_evidence.read_nodes(client, counts, resource, timer)
    allocatable = {
        name: observed[name].allocatable or Decimal(0)
        for name, count in counts.items()
        if count is None and name in observed
    }
    free = smoke_evidence.read_free_gpus(client, allocatable, resource, timer)

    desired, outcomes = [], []
    for name, count in counts.items():
        shortage = "wait" if wait_for_gpus else "failed" if count else "busy"
        rest = free.get(name, smoke_evidence.NOTHING)
        offered = int(observed[name].allocatable or 0) if name in observed else None
        request = Request(name, count or rest.gpus, shortage, rest.holders, offered)
        cause = None
        if name not in observed:
            verdict = Verdict("failed", "", "the cluster has no node of this name")
            cause = Cause("NODE_NOT_IN_CLUSTER", {"node": name})
        elif request.gpus:
            desired.append(request)
            continue
        elif allocatable[name] < 1:
            verdict = Verdict("failed", "", f"the node has no allocatable {resource}")
            cause = smoke_causes.no_allocatable(resource, 1, int(allocatable[name]))
        else:
            holders = ", ".join(rest.holders)
            message = f"other pods claim all {int(allocatable[name])} {resource}: {holders}"
            verdict = Verdict("busy", "", message)
        outcomes.append(Outcome(request, "", verdict, timer.elapsed_s(), cause=cause))
    return desired, outcomes


def _describe(outcome: Outcome, namespace: str) -> dict[str, Any]:
    verdict = outcome.verdict
    return {
        "state": verdict.state,
        "gpus": outcome.request.gpus,
        "allocatable": outcome.request.allocatable,
        "uuids": list(verdict.uuids),
        "holders": list(outcome.request.holders),
        "pod": outcome.pod,
        "namespace": namespace,
        "phase": verdict.phase,
        "message": verdict.message,
        "reason": verdict.reason,
        "cause": outcome.cause.as_row() if outcome.cause else None,
        "events": list(outcome.events),
        "notes": list(outcome.notes),
        "left_behind": outcome.left_behind,
        "seconds": round(outcome.seconds, 1),
    }


def _explain(node: Mapping[str, Any]) -> str:
    """Return message and events of a node, without events that repeat the message."""
    message: str = node["message"]
    news = [text for text in node["events"] if text.partition(": ")[2] not in message]
    left = [f"pod {node['pod']} may still exist: {node['left_behind']}"]
    return "; ".join([message, *news, *(left if node["left_behind"] else ())])


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        counts = parse_counts(params["nodes"], params["gpus"])
        if params["wait_timeout"] <= 0:
            raise ValueError("wait_timeout must be greater than 0")
    except ValueError as error:
        module.fail_json(msg=str(error))
    template = smoke_pod.Template(
        run=uuid.uuid4().hex[:12],
        process=process_identity.read_identity(os.getpid()),
        namespace=params["namespace"],
        image=params["image"],
        resource=params["resource"],
        runtime_class=params["runtime_class"],
        pull_secrets=params["image_pull_secrets"],
        tolerations=params["tolerations"],
        limit_s=params["wait_timeout"],
    )
    interrupts.raise_on_signals()
    kube_module.run_module(
        module,
        lambda client: run(
            client,
            counts,
            template,
            wait_for_gpus=params["wait_for_gpus"],
            check_mode=module.check_mode,
        ),
        nodes={},
    )


if __name__ == "__main__":
    main()
