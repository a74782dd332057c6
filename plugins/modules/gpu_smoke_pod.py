#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_smoke_pod
short_description: Run a CUDA program on each GPU, in a pod on each node
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Runs a pod on each named node, on all nodes at once. The pod requests GPUs by its limits, and
    lists the GPUs that it sees. With O(level=compute), it also runs a CUDA program on each of them.
    A node passes if the pod sees exactly as many GPUs as it requested, and each passes.
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
  level:
    description:
      - How far the pods prove the GPUs. V(list) runs C(nvidia-smi).
      - V(compute) also runs C(vectorAdd) of NVIDIA's CUDA samples once for each GPU, on all GPUs of
        the node at the same time. A GPU passes if the program prints C(Test PASSED). It may take
        60 seconds.
      - V(exchange) also runs O(exchange_command), which sees all GPUs of the pod. It does so only
        if each GPU has computed, and only in pods with two GPUs or more.
    type: str
    choices: [list, compute, exchange]
    default: list
  image:
    description:
      - The image of the pods, by tag or by digest. O(images) has precedence.
      - It needs a shell. The container toolkit adds C(nvidia-smi) from the node.
      - With O(level=compute) and O(level=exchange), it needs C(vectorAdd) in C(/cuda-samples) or in
        the C(PATH), and C(timeout), C(sed), C(tail), C(tr) and C(cut), as the images
        C(nvcr.io/nvidia/k8s/cuda-sample:vectoradd-*) have.
    type: str
    default: ""
  images:
    description: Images of single nodes, keyed by node name. A node with an empty image fails
      without a pod, because no image fits.
    type: dict
    default: {}
  exchange_image:
    description: With O(level=exchange), the image for O(exchange_command). It needs C(sh),
      C(timeout), C(tail) and C(tr).
    type: str
    default: ""
  exchange_command:
    description:
      - With O(level=exchange), the program that exchanges data between GPUs, and its arguments.
      - An exit code other than 0 is a failure. C(nvbandwidth) must print a matrix that has a row
        for each GPU. A pair without access to each other, C(N/A), is no failure.
      - The program is stopped 60 seconds before O(wait_timeout).
    type: list
    elements: str
    default: [nvbandwidth, -t, device_to_device_memcpy_read_ce]
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
  resources:
    description:
      - What each container requests besides the GPUs, and its limits, as in a container's
        C(resources).
      - Set it if a ResourceQuota demands it. The programs of all GPUs run at the same time, and
        each of them needs some hundred MiB.
    type: dict
    default: {}
    suboptions:
      requests: {description: Requests by resource., type: dict}
      limits: {description: Limits by resource., type: dict}
  priority_class:
    description:
      - Name of the PriorityClass of the pods. Its C(preemptionPolicy) must be C(Never). Otherwise,
        the scheduler could delete other pods for these, and no pod is created.
      - The role P(metal.gpu.device_plugin#role) creates the default.
    type: str
    default: metal-gpu-proof
  resource:
    description: Name of the resource that the pods request.
    type: str
    default: nvidia.com/gpu
  listed:
    description:
      - Nodes whose pods only run C(nvidia-smi), whatever O(level) is.
      - For nodes that share GPUs by MPS. There, a CUDA program of another user than the other
        programs has to wait for these, and new programs wait for it.
    type: list
    elements: str
    default: []
  shared:
    description:
      - The nodes whose GPUs are shared or split, with the resource that their pods request instead
        of O(resource). A dictionary keyed by node name.
      - Such a pod requests one of it, so it sees one GPU. RV(nodes.shared) says so.
    type: dict
    default: {}
  renamed:
    description: The nodes whose whole GPUs have another name, with the resource that their pods
      request instead of O(resource). A dictionary keyed by node name.
    type: dict
    default: {}
  namespace: {description: Namespace of the pods., type: str, default: default}
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
    description: Report failures without failing. Nodes that failed do not fail the task. Neither
      does an API server that does not answer; RV(error) has its error.
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
  - Without a permission to delete pods, it creates none, and fails.
  - The pods meet the Pod Security Standard C(restricted), and have no service account token. They
    request no CPU or memory unless O(resources) does.
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

- name: Compute on every free GPU of a node
  metal.gpu.gpu_smoke_pod:
    level: compute
    image: nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0
    nodes: [gpu-1]
    gpus: free
    resources:
      requests: {cpu: 100m, memory: 1Gi}
      limits: {cpu: "4", memory: 8Gi}
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
        - V(ok) if the pod saw as many GPUs as it requested, and each of them passed O(level).
        - V(busy) if other pods claim all GPUs, or one of higher priority took them. V(planned) in
          check mode. V(unknown) if the API server stopped answering before there was a result.
          V(failed) otherwise.
      type: str
    gpus: {description: Number of GPUs that the pod requested. V(0) without a pod., type: int}
    allocatable:
      description: Number of allocatable GPUs of the node before the pod was created. V(null) if the
        cluster has no node of this name.
      type: int
    level: {description: "The O(level), or V(list) for a node in O(listed).", type: str}
    uuids: {description: UUIDs of the GPUs that the pod saw., type: list, elements: str}
    results:
      description: Each of these GPUs that a program was to run on. Empty with O(level=list).
      type: list
      elements: dict
      contains:
        uuid: {description: UUID of the GPU or of the MIG instance., type: str}
        ok: {description: Whether the program computed the right result., type: bool}
        error: {description: Last words of the program if it did not., type: str}
    exchange:
      description: With O(level=exchange), what the copies between GPUs proved; else V(null).
      type: dict
      contains:
        state:
          description: V(ok), V(failed), V(nothing) if there is nothing to prove, V(partial) if some
            pairs of GPUs have no access to each other, or V(not_run).
          type: str
        message: {description: Why it is not V(ok)., type: str}
        alone:
          description: With V(partial), the numbers of the GPUs that have access to no other one.
          type: list
          elements: int
    image: {description: The image of the pod., type: str}
    pod: {description: Name of the pod. Empty without a pod., type: str}
    namespace: {description: Namespace of the pod., type: str}
    holders:
      description:
        - With O(gpus=free), the pods that claim the other GPUs of the node, as namespace/name.
      type: list
      elements: str
    shared:
      description: Whether the node is in O(shared), so that its pod got a share and not all GPUs.
      type: bool
    claims:
      description: The same pods by their UID, which is what the kubelet of the node knows.
      type: dict
    phase: {description: Last phase of the pod. Empty without a pod., type: str}
    message: {description: Why the node is not V(ok)., type: str}
    reason:
      description: The kubelet's reason why the container cannot start, such as V(ErrImagePull), or
        V(preempted). Empty if there is none.
      type: str
    cause:
      description: Why the pod did not run. V(null) if it ran, or if no known cause matches.
      type: dict
      contains:
        code:
          description: A code of C(docs/troubleshooting.md), such as V(NODE_TAINTED).
          type: str
        evidence: {description: Values for the texts of this code., type: dict}
    events:
      description: Newest events of a pod that never ran, oldest first.
      type: list
      elements: str
    notes:
      description: Evidence for the failure that could not be read, with the errors.
      type: list
      elements: str
    left_behind: {description: Why the pod may still exist. Empty if it is deleted., type: str}
    seconds: {description: Seconds until the result., type: float}
  sample:
    gpu-1:
      state: ok
      gpus: 2
      allocatable: 2
      uuids: [GPU-0f5a7b7e-1c9e-4a54-9e0f-3c3c1c6d2f10, GPU-5c1f2a34-7d0b-4a0e-8a55-0e6a9b1f4c21]
      level: compute
      results:
        - {uuid: GPU-0f5a7b7e-1c9e-4a54-9e0f-3c3c1c6d2f10, ok: true, error: ""}
        - {uuid: GPU-5c1f2a34-7d0b-4a0e-8a55-0e6a9b1f4c21, ok: true, error: ""}
      exchange: null
      image: nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0
      holders: []
      claims: {}
      shared: false
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
      level: compute
      results: []
      exchange: null
      image: nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0
      holders: [default/training-0]
      claims: {"5c4fc37b-8d3a-4f9c-9d41-6f1c2f5f0a77": default/training-0}
      shared: false
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
left_behind:
  description: Pods of this run and of earlier runs that could not be deleted.
  returned: success
  type: list
  elements: str
error:
  description: Why the API server did not answer. Empty if it answered.
  returned: with O(report_only)
  type: str
"""

from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import interrupts
from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    kube_module,
    proof_pod,
    smoke_output,
    smoke_pod,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FREE = "free"

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_module.ARGUMENTS,
    **proof_pod.ARGUMENTS,
    "nodes": {"type": "list", "elements": "str", "required": True},
    "gpus": {"type": "str", "default": "1"},
    "level": {"type": "str", "choices": [*smoke_output.LEVELS], "default": smoke_output.LIST},
    "image": {"type": "str", "default": ""},
    "images": {"type": "dict", "default": {}},
    "exchange_image": {"type": "str", "default": ""},
    "exchange_command": {
        "type": "list",
        "elements": "str",
        "default": ["nvbandwidth", "-t", "device_to_device_memcpy_read_ce"],
    },
    "runtime_class": {"type": "str"},
    "resources": {
        "type": "dict",
        "default": {},
        "options": {"requests": {"type": "dict"}, "limits": {"type": "dict"}},
    },
    "listed": {"type": "list", "elements": "str", "default": []},
    "shared": {"type": "dict", "default": {}},
    "renamed": {"type": "dict", "default": {}},
    "wait_for_gpus": {"type": "bool", "default": False},
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


def check_images(params: Mapping[str, Any]) -> None:
    """Raise ValueError if an image or a command is missing, or if the resources claim GPUs."""
    unnamed = [name for name in params["nodes"] if name not in params["images"]]
    if unnamed and not params["image"]:
        raise ValueError(f"image is empty, and images does not have {', '.join(unnamed)}")
    if params["level"] == smoke_output.EXCHANGE:
        for name in ("exchange_image", "exchange_command"):
            if not params[name]:
                raise ValueError(f"level is exchange, but {name} is empty")
    for kind, amounts in (params["resources"] or {}).items():
        if params["resource"] in (amounts or {}):
            raise ValueError(f"resources.{kind} has {params['resource']}, which gpus decides")


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        counts = parse_counts(params["nodes"], params["gpus"])
        if params["wait_timeout"] <= 0:
            raise ValueError("wait_timeout must be greater than 0")
        check_images(params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    template = smoke_pod.Template(
        **proof_pod.new_run(params),
        image=params["image"],
        runtime_class=params["runtime_class"],
        level=params["level"],
        images=params["images"],
        exchange_image=params["exchange_image"],
        exchange_command=params["exchange_command"],
        resources=params["resources"] or {},
        listed=params["listed"],
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
            shared=params["shared"],
            renamed=params["renamed"],
        ),
        nodes={},
    )


if __name__ == "__main__":
    main()
