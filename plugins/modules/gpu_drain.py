#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_drain
short_description: Evict the pods that hold GPUs from nodes
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Cordons nodes, then lists the pods that hold GPUs there, and evicts them, on all nodes at once.
    Pods without GPUs stay, other than with M(kubernetes.core.k8s_drain), whose selectors know only
    labels.
  - A pod with a claim of dynamic resource allocation (C(spec.resourceClaims)) counts as one that
    holds GPUs on nodes where NVIDIA's driver for that hands out GPUs. The pod does not say what its
    claims are for.
  - Goes through the eviction API. Where a PodDisruptionBudget forbids an eviction, it is tried
    again until the time is up.
  - Evicts no pod that would be lost or come back. Such pods are of a DaemonSet, of no controller,
    or run from a file of the node. Where there is one, it is named, and nothing is evicted. Where
    one arrives later, nothing more is evicted, and the module fails.
extends_documentation_fragment:
  - metal.gpu.attributes
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
attributes:
  check_mode:
    support: full
    description: Returns the pods that hold GPUs. Changes nothing, and does not fail for them.
  diff_mode:
    support: none
    description: RV(nodes) tells what was found.
  idempotent:
    support: full
    description: A second run changes nothing.
options:
  nodes:
    description:
      - Names of the nodes in the cluster. One that the cluster does not have has no pods either.
    type: list
    elements: str
    required: true
  state:
    description:
      - V(drained) cordons the nodes, and evicts the pods that hold GPUs. Where that fails, it
        uncordons the nodes that it has cordoned. Where that fails as well, the message has both
        errors, the nodes that stay cordoned, and the command that uncordons them.
      - V(released) uncordons the nodes that V(drained) has cordoned, and no others, once they have
        no GPUs to hand out any more. Otherwise the pods would come back. Nodes that are not ready
        get no pods anyway, and are not waited for.
      - A node is known as cordoned by V(drained) by its annotation C(metal.gpu/cordoned). A node
        that an admin has cordoned, before or since, stays cordoned.
    type: str
    choices: [drained, released]
    default: drained
  wait_timeout:
    description: How many seconds to wait until the pods, or the GPUs, are gone.
    type: int
    default: 300
  report_only:
    description:
      - Whether only to look, in any mode, and to leave the answer to the caller to judge. Then an
        API server that gives no answer does not fail the task, and RV(error) tells about it.
    type: bool
    default: false
notes:
  - Needs the permissions to list, watch and patch nodes, to list and watch pods in all namespaces,
    and to create C(pods/eviction).
  - Scratch data of an evicted pod (C(emptyDir)) goes with it.
seealso:
  - module: kubernetes.core.k8s_drain
"""

EXAMPLES = r"""
- name: See who holds GPUs
  metal.gpu.gpu_drain:
    nodes: [gpu-1, gpu-2]
    report_only: true
  delegate_to: localhost
  run_once: true
  register: gpus

- name: Evict them
  metal.gpu.gpu_drain:
    nodes: [gpu-1, gpu-2]
    wait_timeout: 600
  delegate_to: localhost
  run_once: true

- name: Let other pods onto the nodes again, after the device plugin has left
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
      description: V(ok), or V(missing) where the cluster does not have it.
      type: str
    cordoned:
      description: Whether it is cordoned by O(state=drained) when the module ends.
      type: bool
    pods:
      description: The pods that held GPUs there when the module began.
      type: list
      elements: dict
      contains:
        name:
          description: Namespace and name.
          type: str
        gpus:
          description: How many it holds, or how many claims of dynamic resource allocation.
          type: int
        stays:
          description: Why it must not be evicted. V(null) where it may be.
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
  description: Why the API server gave no answer. Empty where it did.
  returned: with O(report_only)
  type: str
  sample: ""
"""

import uuid
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import (
    interrupts,
    kube,
    kube_settings,
    node_drain,
)
from ansible_collections.metal.gpu.plugins.module_utils.node_drain import Drain, Stuck

if TYPE_CHECKING:
    from collections.abc import Mapping

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_settings.AUTH_ARGUMENTS,
    "nodes": {"type": "list", "elements": "str", "required": True},
    "state": {"type": "str", "choices": ["drained", "released"], "default": "drained"},
    "wait_timeout": {"type": "int", "default": 300},
    "report_only": {"type": "bool", "default": False},
}


def run(client: kube.Client, params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the module's result, with "failed" where something is in the way.

    Raises kube.KubeError.
    """
    names = list(dict.fromkeys(params["nodes"]))
    timer = kube.Timer(params["wait_timeout"])
    drain = Drain(client, names, timer, uuid.uuid4().hex[:12])
    pods = _describe_pods(drain)
    if params["report_only"]:
        result = {"changed": False, "error": ""}
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
        if not isinstance(error, (Stuck, kube.KubeError)):
            raise
        changed = bool(drain.asked or left)
        return {"changed": changed, "failed": True, "msg": _say(str(error), left)}
    return {"changed": changed}


def _release(drain: Drain, check_mode: bool) -> dict[str, Any]:
    cordoned = drain.cordoned()
    if check_mode or not cordoned:
        return {"changed": bool(cordoned)}
    try:
        drain.wait_for_no_gpus(cordoned)
    except (Stuck, kube.KubeError) as error:
        left = dict.fromkeys(cordoned, "")
        return {"changed": False, "failed": True, "msg": _say(str(error), left)}
    left = drain.uncordon(cordoned)
    if left:
        msg = _say("Not every node was uncordoned.", left)
        return {"changed": len(left) < len(cordoned), "failed": True, "msg": msg}
    return {"changed": True}


def _say(msg: str, left: Mapping[str, str]) -> str:
    """Add to a message which nodes stay cordoned, why, and what to do about it."""
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
    try:
        client = kube_settings.client_for(module)
        result = run(client, module.params, check_mode=module.check_mode)
    except kube.KubeError as error:
        if module.params["report_only"]:
            module.exit_json(nodes={}, error=str(error))
        module.fail_json(msg=str(error))
    if result.pop("failed", False):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
