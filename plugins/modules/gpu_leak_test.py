#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_leak_test
short_description: Try to get GPUs in pods that request none
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Runs pods on each named node that request no GPU, and try to get one in different ways. Each
    container under test looks for C(/dev/nvidia*) and for mounts of the driver.
  - A node passes if no container sees anything. An attempt that the API server or the engine
    rejects passes as well, if V(plain) ran on the node. Otherwise something rejects every pod, and
    nothing is known about GPUs.
  - A node that offers no GPU proves nothing, and fails. Its device files can outlive the driver, so
    a privileged container sees them nevertheless.
  - A privileged container sees all devices of its node by design. That is reported, and fails
    nothing. If it sees no GPU, the others prove nothing, and the node fails. V(runtime_class_mount)
    asks as the device plugin itself does, by a C(hostPath), and may see GPUs by design, too.
  - Always deletes its pods and its namespace. If it is killed before, the next run in the same
    namespace deletes them.
extends_documentation_fragment:
  - metal.gpu.attributes
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
attributes:
  check_mode:
    support: full
    description: Creates no pod, and reports what it would try.
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
  attempts:
    description:
      - What to try. Default is everything.
      - V(plain) and V(privileged) are always tried, because they are the controls. Without them, a
        result could mean that nothing ran.
      - V(image_variable) is an image with C(NVIDIA_VISIBLE_DEVICES=all). V(pod_variable) sets the
        variable in the pod. V(plain) does nothing.
      - V(volume_mount) mounts C(/dev/null) at C(/var/run/nvidia-container-devices/all).
        V(cdi_annotation) has the annotation C(cdi.k8s.io/…).
      - V(runtime_class) has O(runtime_class) and the image of V(image_variable).
        V(runtime_class_annotation) has it with the annotation of V(cdi_annotation), and
        V(runtime_class_mount) with the mount of V(volume_mount).
      - V(second_container), V(init_container) and V(ephemeral_container) have the image of
        V(image_variable). The first is in a pod whose other container requests a GPU.
      - V(unknown_resource) has that image, a limit for a resource that no node has, and a
        C(nodeName), with which no scheduler looks at the limit.
      - V(privileged) is a privileged container.
    type: list
    elements: str
    choices:
      - image_variable
      - pod_variable
      - plain
      - volume_mount
      - cdi_annotation
      - runtime_class
      - runtime_class_annotation
      - runtime_class_mount
      - second_container
      - init_container
      - ephemeral_container
      - unknown_resource
      - privileged
  image:
    description: An image without C(NVIDIA_VISIBLE_DEVICES), by tag or by digest. Needs a shell.
    type: str
    required: true
  cuda_image:
    description: An image with C(NVIDIA_VISIBLE_DEVICES=all), as CUDA images. Needs a shell.
    type: str
    required: true
  image_pull_secrets:
    description: Names of Secrets in O(namespace) with the credentials for the images.
    type: list
    elements: str
    default: []
  runtime_class:
    description: Name of the RuntimeClass of the NVIDIA runtime.
    type: str
    default: nvidia
  resource:
    description: Name of the resource that a pod with a GPU requests.
    type: str
    default: nvidia.com/gpu
  other_resources:
    description: Names of other resources that are GPUs, as another device plugin gives them. A node
      that offers one of them offers GPUs. Those of NVIDIA's device plugin need not be named.
    type: list
    elements: str
    default: []
  tolerations:
    description: Tolerations of the pods, as in M(metal.gpu.gpu_smoke_pod).
    type: list
    elements: dict
    default:
      - key: nvidia.com/gpu
        operator: Exists
        effect: NoSchedule
      - key: node.kubernetes.io/unschedulable
        operator: Exists
        effect: NoSchedule
  namespace:
    description:
      - Namespace of the pods. Admission policies can differ between namespaces.
      - The privileged pod runs in a namespace of its own, which the module creates and deletes.
        Otherwise, whoever may run programs in pods of O(namespace) would have the node.
    type: str
    default: default
  priority_class:
    description: Name of the PriorityClass of the pods, as in M(metal.gpu.gpu_smoke_pod).
    type: str
    default: metal-gpu-proof
  wait_timeout:
    description: Number of seconds to wait for the pods of a batch of nodes.
    type: int
    default: 300
  machines:
    description: The ids of the machines, as in M(metal.gpu.gpu_capacity). No pod runs on others.
    type: dict
    default: {}
  batch: {description: Number of nodes that are tested at the same time., type: int, default: 10}
  report_only:
    description: Report failures without failing. Nodes that failed do not fail the task. Neither
      does an API server that does not answer; RV(error) has its error.
    type: bool
    default: false
notes:
  - Needs the permissions to list nodes, to create, list, watch and C(deletecollection) or delete
    pods in O(namespace), and to patch C(pods/ephemeralcontainers) there.
  - For the privileged pod, needs the permissions to create, list and delete namespaces, and those
    for pods in all of them. O(image_pull_secrets) are not there.
seealso:
  - module: metal.gpu.gpu_smoke_pod
"""

EXAMPLES = r"""
- name: Try to get GPUs without a request
  metal.gpu.gpu_leak_test:
    nodes: [gpu-1, gpu-2]
    image: docker.io/library/busybox:1.35
    cuda_image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
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
      description: V(ok) if no container saw a GPU. V(leaked) if one did. V(unproven) if an attempt
        has no result, or the node offers no GPU. V(busy) if only V(second_container) has none,
        because pods have all GPUs; that is no failure. V(planned) in check mode.
      type: str
    attempts:
      description: Each attempt of O(attempts) and the controls, keyed by its name.
      type: dict
      contains:
        state:
          description:
            - V(nothing) if the container saw nothing. V(refused) if the API server rejected the
              pod, or an engine that accepts no RuntimeClass. V(leaked) if it saw something;
              V(by_design) for V(privileged) and V(runtime_class_mount).
            - V(busy) if no GPU of the node was free for V(second_container). V(unproven) without a
              result, also if the engine does not have the runtime of O(runtime_class). V(planned)
              in check mode.
          type: str
        seen:
          description: The device files and mounts that the container saw, at most 20 of them.
          type: list
          elements: str
        total: {description: How many it saw., type: int}
        message: {description: "Why it was refused, or has no result.", type: str}
  sample:
    gpu-1:
      state: leaked
      attempts:
        image_variable: {state: leaked, seen: [/dev/nvidia0], total: 1, message: ""}
        plain: {state: nothing, seen: [], total: 0, message: ""}
findings:
  description: The findings about nodes, for P(metal.gpu.explain#filter).
  returned: when the API server answered, also on failure; empty with RV(error)
  type: list
  elements: dict
summary:
  description: One line about each node, and one about all of them.
  returned: when the API server answered, also on failure; empty with RV(error)
  type: list
  elements: str
  sample: ["gpu-1: leaked: image_variable; nothing: plain"]
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

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import interrupts
from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    kube_module,
    leak_pods,
    leak_run,
    leak_verdict,
    proof_pod,
    smoke_cleanup,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.leak_pods import Result, Try

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_module.ARGUMENTS,
    **proof_pod.ARGUMENTS,
    "nodes": {"type": "list", "elements": "str", "required": True},
    "attempts": {"type": "list", "elements": "str", "choices": [*leak_pods.ATTEMPTS]},
    "image": {"type": "str", "required": True},
    "cuda_image": {"type": "str", "required": True},
    "runtime_class": {"type": "str", "default": "nvidia"},
    "other_resources": {"type": "list", "elements": "str", "default": []},
    "batch": {"type": "int", "default": 10},
    "machines": {"type": "dict", "default": {}},
}


def run(
    client: Client,
    nodes: Sequence[str],
    attempts: Sequence[str],
    template: leak_pods.Template,
    *,
    batch: int,
    check_mode: bool,
    others: Sequence[str] = (),
    machines: Mapping[str, Mapping[str, str | None]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Return the module's result, with "failed" if a node failed; raise KubeError."""
    swept, left = smoke_cleanup.sweep(
        client, template.namespace, check_mode=check_mode, clock=clock
    )
    old = leak_run.ended_namespaces(client)
    left |= leak_run.remove_namespaces(client, [] if check_mode else old)
    swept += [name for name in old if name not in left]
    results: dict[str, dict[str, Result]] = {name: {} for name in nodes}
    there = leak_run.nodes_of(client, nodes, template.resource, others, machines)
    known = [name for name in nodes if name in there]
    for name in nodes:
        if name not in there:
            text = "the cluster has no node of this name, or it is another machine"
            absent = Result(leak_pods.UNPROVEN, message=text)
            results[name] = dict.fromkeys(attempts, absent)
    if check_mode:
        planned = dict.fromkeys(attempts, Result(leak_pods.PLANNED))
        results |= dict.fromkeys(known, planned)
    elif known:
        smoke_cleanup.refuse_leavings(client, template.namespace)
        for start in range(0, len(known), batch):
            tries = [Try(name, one) for name in known[start : start + batch] for one in attempts]
            timer = Timer(template.limit_s, clock)
            found, kept = leak_run.prove(client, template, tries, timer)
            left |= kept
            for one in tries:
                results[one.node][one.attempt] = found[one]
        # Meanwhile, a device plugin that had just started has offered its GPUs. Without an answer,
        # what the pods have seen still counts.
        with suppress(KubeError):
            there = leak_run.nodes_of(client, nodes, template.resource, others, machines)

    no_gpu = {name: leak_pods.offers_no_gpu(one, template.resource) for name, one in there.items()}
    findings: list[dict[str, str]] = []
    for name in nodes:
        why = no_gpu.get(name, "")
        results[name] = leak_pods.controlled(results[name], why)
        first = leak_verdict.NODE_FIRST if why else ""
        findings += leak_verdict.findings(name, results[name], first=first)
    rows = {name: leak_verdict.row(results[name]) for name in nodes}
    lines = [leak_verdict.summary(name, results[name]) for name in nodes]
    result: dict[str, Any] = {
        "changed": bool(swept),
        "nodes": rows,
        "findings": findings,
        "summary": [*lines, *leak_verdict.tally(rows)],
        "swept": swept,
        "left_behind": sorted(left),
    }
    if findings:
        head = f"{len({one['host'] for one in findings})} of {len(nodes)} nodes failed:"
        texts = [f"{one['code']} {one['message']}" for one in findings]
        result.update(failed=True, msg="\n".join([head, *texts]))
    return result


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    for name in ("nodes", "image", "cuda_image"):
        if not params[name]:
            module.fail_json(msg=f"{name} is empty")
    for name in ("wait_timeout", "batch"):
        if params[name] <= 0:
            module.fail_json(msg=f"{name} must be greater than 0")
    template = leak_pods.Template(
        **proof_pod.new_run(params),
        image=params["image"],
        cuda_image=params["cuda_image"],
        runtime_class=params["runtime_class"],
    )
    interrupts.raise_on_signals()
    kube_module.run_module(
        module,
        lambda client: run(
            client,
            [*dict.fromkeys(params["nodes"])],
            leak_pods.to_try(params["attempts"]),
            template,
            batch=params["batch"],
            check_mode=module.check_mode,
            others=params["other_resources"],
            machines=params["machines"],
        ),
        nodes={},
        findings=[],
        summary=[],
    )


if __name__ == "__main__":
    main()
