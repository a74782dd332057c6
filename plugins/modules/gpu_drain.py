#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_drain
short_description: Evict pods from GPU nodes
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Cordons nodes and evicts pods there, on all nodes at once. By default these are the pods with
    GPUs, and pods without GPUs stay. Before a reboot, it is the other way round.
  - A pod with C(spec.resourceClaims) counts as a pod with GPUs on nodes where NVIDIA's driver for
    such claims (dynamic resource allocation) runs.
  - Uses the eviction API. If a PodDisruptionBudget forbids an eviction, the module retries until
    the time is up. Pods that still run when the time is up fail the module.
  - Does not evict pods that would come back or be lost. If there is such a pod, the module names
    it, evicts nothing and fails. If one arrives later, the module stops evicting and fails.
extends_documentation_fragment:
  - metal.gpu.attributes
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
attributes:
  check_mode:
    support: full
    description: Returns the pods. Changes nothing, and does not fail because of them.
  diff_mode:
    support: none
    description: RV(nodes) has the pods.
  idempotent:
    support: full
    description: A second run changes nothing.
options:
  nodes:
    description: Names of the nodes in the cluster. A name that is not in the cluster is reported as
      V(missing).
    type: list
    elements: str
    required: true
  state:
    description:
      - V(drained) cordons the nodes, marks them with the annotation C(metal.gpu/cordoned), and
        evicts the pods. If that fails, the module uncordons the nodes that it cordoned, or names
        those that stay cordoned, with the command to uncordon them.
      - V(released) first waits for O(gpus), then uncordons the nodes that V(drained) cordoned, in
        this run or in an earlier one. Nodes that an admin cordoned stay cordoned. A C(kubectl
        cordon) of a node that V(drained) has cordoned changes nothing on it, so it is not known.
    type: str
    choices: [drained, released]
    default: drained
  pods:
    description:
      - V(gpus) evicts the pods with GPUs. Pods of DaemonSets, pods without a controller, and static
        pods fail the module.
      - V(others) evicts all pods but those of DaemonSets and static pods. Pods with GPUs fail the
        module, and so do pods that lose something, unless O(may_lose) allows it.
    type: str
    choices: [gpus, others]
    default: gpus
  may_lose:
    description: What O(pods=others) may delete for good. V(bare_pods) are pods without a controller
      that recreates them, and V(scratch_data) is what pods have in an C(emptyDir).
    type: list
    elements: str
    choices: [bare_pods, scratch_data]
    default: []
  gpus:
    description:
      - For which allocatable GPUs O(state=released) waits. V(gone) waits until a ready node has
        none, because otherwise the pods would come back. V(any) does not wait.
      - V(back) waits until a node is ready, and has as many as when it was cordoned.
    type: str
    choices: [gone, back, any]
    default: gone
  boot_id:
    description: Boot of the node from which O(gpus=back) counts what the kubelet has reported. If
      empty, any.
    type: str
    default: ""
  wait_timeout:
    description: Number of seconds to wait until the pods are gone, or for O(gpus).
    type: int
    default: 300
  report_only:
    description: Only report the pods and change nothing. An API server that does not answer does
      not fail the task; RV(error) has its error.
    type: bool
    default: false
notes:
  - Needs the permissions to list, watch and patch nodes, to list and watch pods in all namespaces,
    and to create C(pods/eviction).
  - The eviction of a pod with GPUs deletes its scratch data (C(emptyDir)).
"""

EXAMPLES = r"""
- name: Report the pods with GPUs
  metal.gpu.gpu_drain:
    nodes: [gpu-1, gpu-2]
    report_only: true
  delegate_to: localhost
  run_once: true
  register: gpus

- name: Evict the pods with GPUs
  metal.gpu.gpu_drain:
    nodes: [gpu-1, gpu-2]
    wait_timeout: 600
  delegate_to: localhost
  run_once: true

- name: Uncordon the nodes after the device plugin is removed
  metal.gpu.gpu_drain:
    nodes: [gpu-1, gpu-2]
    state: released
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
nodes:
  description: Each node, keyed by name.
  returned: when the API server answered, also on failure; empty with RV(error)
  type: dict
  contains:
    state: {description: "V(ok), or V(missing) if the node is not in the cluster.", type: str}
    cordoned:
      description: Whether O(state=drained) cordoned it, and it is cordoned when the module ends.
      type: bool
    pods:
      description: The pods on the node when the module started, as far as O(pods) is about them.
        Empty with O(state=released).
      type: list
      elements: dict
      contains:
        name: {description: Namespace and name., type: str}
        gpus: {description: Number of GPUs or of DRA claims that it holds., type: int}
        stays: {description: Why it must not be evicted. V(null) if it may be evicted., type: str}
  sample:
    gpu-1: {state: ok, cordoned: true, pods: [{name: default/training-5c9d7, gpus: 2, stays: null}]}
error:
  description: Why the API server did not answer. Empty if it answered.
  returned: with O(report_only)
  type: str
"""

import uuid
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import interrupts
from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    gpu_claims,
    kube_module,
    node_drain,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_drain import Drain, Stuck

if TYPE_CHECKING:
    from collections.abc import Mapping

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_module.ARGUMENTS,
    "nodes": {"type": "list", "elements": "str", "required": True},
    "state": {"type": "str", "choices": ["drained", "released"], "default": "drained"},
    "pods": {"type": "str", "choices": ["gpus", "others"], "default": "gpus"},
    "may_lose": {
        "type": "list",
        "elements": "str",
        "choices": [gpu_claims.BARE_PODS, gpu_claims.SCRATCH_DATA],
        "default": [],
    },
    "gpus": {"type": "str", "choices": ["gone", "back", "any"], "default": "gone"},
    "boot_id": {"type": "str", "default": ""},
    "wait_timeout": {"type": "int", "default": 300},
}


def run(client: Client, params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the module's result, with "failed" if nodes could not be drained or released.

    Raises KubeError.
    """
    names = list(dict.fromkeys(params["nodes"]))
    timer = Timer(params["wait_timeout"])
    if params["state"] == "released":
        client.is_expected = True
    pods_of = (params["pods"], params["may_lose"])
    drain = Drain(client, names, timer, uuid.uuid4().hex[:12], *pods_of)
    if params["state"] == "drained":
        drain.look()
    pods = _describe_pods(drain)
    if params["report_only"]:
        result = {"changed": False}
    elif params["state"] == "drained":
        result = _drain(drain, check_mode)
    else:
        result = _release(drain, check_mode, params["gpus"], params["boot_id"])
    nodes = {
        name: {
            "state": "ok" if name in drain.nodes else "missing",
            "cordoned": name in drain.cordoned(),
            "pods": pods.get(name, []),
        }
        for name in names
    }
    return {**result, "nodes": nodes}


def _drain(drain: Drain, check_mode: bool) -> dict[str, Any]:
    opened = any(not row.unschedulable for row in drain.nodes.values())
    changed = bool(opened or drain.claims)
    if check_mode:
        return {"changed": changed}
    staying = node_drain.describe_staying(drain.claims.values())
    if staying:
        msg = "\n".join(["Nothing was evicted. Pods cannot be evicted:", *staying])
        return {"changed": False, "failed": True, "msg": msg}
    try:
        drain.cordon()
        drain.evict()
    except BaseException as error:
        left = drain.uncordon(drain.cordoned_now())
        if not isinstance(error, (Stuck, KubeError)):
            raise
        changed = bool(drain.evicted or left)
        return {"changed": changed, "failed": True, "msg": _say(str(error), left)}
    return {"changed": changed}


def _release(drain: Drain, check_mode: bool, gpus: str, boot_id: str) -> dict[str, Any]:
    cordoned = drain.cordoned()
    if check_mode or not cordoned:
        return {"changed": bool(cordoned)}
    try:
        if gpus != node_drain.ANY:
            drain.wait_for_gpus(cordoned, gpus, boot_id)
    except (Stuck, KubeError) as error:
        left = dict.fromkeys(cordoned, "")
        return {"changed": False, "failed": True, "msg": _say(str(error), left)}
    left = drain.uncordon(cordoned)
    if left:
        msg = _say("Some nodes could not be uncordoned.", left)
        return {"changed": len(left) < len(cordoned), "failed": True, "msg": msg}
    return {"changed": True}


def _say(msg: str, left: Mapping[str, str]) -> str:
    """Add to a message the nodes that stay cordoned, the reasons, and the command to uncordon."""
    if not left:
        return msg
    rows = [f"{name} stays cordoned{': ' if why else ''}{why}" for name, why in left.items()]
    return "\n".join([msg, *rows, f"To uncordon: kubectl uncordon {' '.join(left)}"])


def _describe_pods(drain: Drain) -> dict[str, list[dict[str, Any]]]:
    pods: dict[str, list[dict[str, Any]]] = {}
    for _key, claim in sorted(drain.claims.items()):
        row = {"name": claim.key, "gpus": claim.gpus, "stays": claim.stays}
        pods.setdefault(claim.node, []).append(row)
    return pods


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    interrupts.raise_on_signals()
    kube_module.run_module(
        module,
        lambda client: run(client, module.params, check_mode=module.check_mode),
        nodes={},
    )


if __name__ == "__main__":
    main()
