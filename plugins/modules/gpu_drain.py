#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_drain
short_description: Evict pods with GPUs from nodes
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Cordons nodes and evicts the pods with GPUs there, on all nodes at once. Pods without GPUs stay.
    M(kubernetes.core.k8s_drain) cannot do that, because it selects pods only by labels.
  - A pod with a claim of dynamic resource allocation (C(spec.resourceClaims)) counts as a pod with
    GPUs on nodes where NVIDIA's driver for such claims runs. The pod does not say what its claims
    are for.
  - Uses the eviction API. If a PodDisruptionBudget forbids an eviction, the module retries until
    the time is up.
  - Does not evict pods of DaemonSets, pods without a controller, and static pods. They would come
    back or be lost. If there is such a pod, the module names it, evicts nothing and fails. If one
    arrives later, the module stops evicting and fails.
extends_documentation_fragment:
  - metal.gpu.attributes
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
attributes:
  check_mode:
    support: full
    description: Returns the pods with GPUs. Changes nothing, and does not fail because of them.
  diff_mode:
    support: none
    description: RV(nodes) has the pods.
  idempotent:
    support: full
    description: A second run changes nothing.
options:
  nodes:
    description:
      - Names of the nodes in the cluster. A name that is not in the cluster is reported as
        V(missing).
    type: list
    elements: str
    required: true
  state:
    description:
      - V(drained) cordons the nodes and evicts the pods with GPUs. If that fails, the module
        uncordons the nodes that it cordoned. If uncordoning fails too, the message has both errors,
        the nodes that stay cordoned, and the command to uncordon them.
      - V(released) uncordons the nodes that V(drained) cordoned, and no others. It first waits
        until they have no allocatable GPUs, because otherwise the pods would come back. It does not
        wait for nodes that are not ready, because they get no pods.
      - V(drained) marks the nodes that it cordons with the annotation C(metal.gpu/cordoned). A node
        that an admin cordons, before or after, stays cordoned.
    type: str
    choices: [drained, released]
    default: drained
  wait_timeout:
    description: Number of seconds to wait until the pods, or the allocatable GPUs, are gone.
    type: int
    default: 300
  report_only:
    description:
      - Only report the pods and change nothing. An API server that does not answer does not fail
        the task; RV(error) has its error.
    type: bool
    default: false
notes:
  - Needs the permissions to list, watch and patch nodes, to list and watch pods in all namespaces,
    and to create C(pods/eviction).
  - The eviction of a pod deletes its scratch data (C(emptyDir)).
seealso:
  - module: kubernetes.core.k8s_drain
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
    state:
      description: V(ok), or V(missing) if the node is not in the cluster.
      type: str
    cordoned:
      description: Whether O(state=drained) cordoned it, and it is cordoned when the module ends.
      type: bool
    pods:
      description: The pods with GPUs on the node when the module started.
      type: list
      elements: dict
      contains:
        name:
          description: Namespace and name.
          type: str
        gpus:
          description: Number of GPUs or of DRA claims that it holds.
          type: int
        stays:
          description: Why it must not be evicted. V(null) if it may be evicted.
          type: str
  sample:
    gpu-1:
      state: ok
      cordoned: true
      pods:
        - name: default/training-5c9d7
          gpus: 2
          stays: null
error:
  description: Why the API server did not answer. Empty if it answered.
  returned: with O(report_only)
  type: str
  sample: ""
"""

import uuid
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import interrupts
from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
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
    "wait_timeout": {"type": "int", "default": 300},
}


def run(client: Client, params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the module's result, with "failed" if nodes could not be drained or released.

    Raises KubeError.
    """
    names = list(dict.fromkeys(params["nodes"]))
    timer = Timer(params["wait_timeout"])
    drain = Drain(client, names, timer, uuid.uuid4().hex[:12])
    pods = _describe_pods(drain)
    if params["report_only"]:
        result = {"changed": False}
    elif params["state"] == "drained":
        result = _drain(drain, check_mode)
    else:
        result = _release(drain, check_mode)
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
        msg = "\n".join(["Nothing was evicted. Pods with GPUs cannot be evicted:", *staying])
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


def _release(drain: Drain, check_mode: bool) -> dict[str, Any]:
    cordoned = drain.cordoned()
    if check_mode or not cordoned:
        return {"changed": bool(cordoned)}
    try:
        drain.wait_for_no_gpus(cordoned)
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
