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
  - Cordons nodes and evicts the pods that hold GPUs there, of all nodes at once. Pods without GPUs
    stay, other than with M(kubernetes.core.k8s_drain), whose selectors know only labels.
  - Goes through the eviction API. Where a PodDisruptionBudget forbids an eviction, it is tried
    again until the time is up.
  - Evicts no pod that would be lost or come back. Such pods are of a DaemonSet, of no controller,
    or run from a file of the node. Where there is one, it is named, and nothing is evicted.
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
      - V(drained) cordons the nodes, and evicts the pods that hold GPUs. Where that fails, nodes
        that it has cordoned are uncordoned.
      - V(released) uncordons the nodes that V(drained) has cordoned, and no others, once they have
        no GPUs to hand out any more. Otherwise the pods would come back. Nodes that are not ready
        get no pods anyway, and are not waited for.
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
  description: Each node as it was found, keyed by name.
  returned: when the API server answered, also on failure; empty with RV(error)
  type: dict
  contains:
    state:
      description: V(ok), or V(missing) where the cluster does not have it.
      type: str
    cordoned:
      description: Whether O(state=drained) has cordoned it, now or earlier.
      type: bool
    pods:
      description: The pods that hold GPUs there.
      type: list
      elements: dict
      contains:
        name:
          description: Namespace and name.
          type: str
        gpus:
          description: How many it holds.
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

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import gpu_claims, kube, kube_settings
from ansible_collections.metal.gpu.plugins.module_utils.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.gpu_claims import Claim

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_settings.AUTH_ARGUMENTS,
    "nodes": {"type": "list", "elements": "str", "required": True},
    "state": {"type": "str", "choices": ["drained", "released"], "default": "drained"},
    "wait_timeout": {"type": "int", "default": 300},
    "report_only": {"type": "bool", "default": False},
}

CORDONED = "metal-gpu-cordoned"  # an annotation: what we have cordoned, we uncordon
RETRY_S = 5.0  # a budget allows an eviction when another pod is ready, which no watch here tells


class Stuck(Exception):
    """What was waited for did not come."""


class NodeRow(NamedTuple):
    """What matters of a Node object."""

    unschedulable: bool
    cordoned: bool  # by us
    has_gpus: bool  # to hand out


def parse_row(node: Mapping[str, Any]) -> NodeRow:
    status = node.get("status", {})
    is_ready = any(
        (condition["type"], condition["status"]) == ("Ready", "True")
        for condition in status.get("conditions", ())
    )
    amounts = (
        parse_quantity(amount)
        for resource, amount in status.get("allocatable", {}).items()
        if resource.startswith(gpu_claims.DOMAIN)
    )
    return NodeRow(
        unschedulable=bool(node.get("spec", {}).get("unschedulable")),
        cordoned=CORDONED in node["metadata"].get("annotations", {}),
        has_gpus=is_ready and any(amounts),
    )


class Drain:
    """The nodes and the pods that hold their GPUs, as the API server has them."""

    def __init__(self, client: kube.Client, names: Collection[str], timer: kube.Timer) -> None:
        self._client = client
        self._names = names
        self._timer = timer
        self.nodes = client.snapshot(
            "nodes", self._keep_node, query=kube.only("metadata.name", names)
        )
        self.claims = client.snapshot("pods", self._keep_claim, query=self._pod_query)

    @property
    def _pod_query(self) -> dict[str, str]:
        alive = "status.phase!=Succeeded,status.phase!=Failed"
        return kube.only("spec.nodeName", self._names, alive)

    def _keep_node(self, node: dict[str, Any]) -> NodeRow | None:
        return parse_row(node) if node["metadata"]["name"] in self._names else None

    def _keep_claim(self, pod: dict[str, Any]) -> Claim | None:
        claim = gpu_claims.parse_claim(pod)
        return claim if claim and claim.node in self._names else None

    def to_cordon(self) -> list[str]:
        return [name for name, row in self.nodes.items() if not row.unschedulable]

    def cordoned(self) -> list[str]:
        return [name for name, row in self.nodes.items() if row.cordoned]

    def cordon(self, names: Iterable[str]) -> None:
        for name in names:
            note = {"annotations": {CORDONED: "true"}}
            self._client.patch("nodes", name, {"metadata": note, "spec": {"unschedulable": True}})

    def uncordon(self, names: Iterable[str]) -> None:
        for name in names:
            note = {"annotations": {CORDONED: None}}
            self._client.patch("nodes", name, {"metadata": note, "spec": {"unschedulable": None}})

    def evict(self) -> None:
        """Evict every pod that holds GPUs, and wait until all are gone. Raises Stuck."""
        left: dict[str, Claim] = {}
        asked: set[str] = set()
        refused: dict[str, str] = {}
        for _changed in self._client.follow(
            "pods", left, self._keep_claim, self._timer, query=self._pod_query, round_s=RETRY_S
        ):
            for key, claim in left.items():
                if key in asked:
                    continue
                refused[key] = self._ask(claim)
                if not refused[key]:
                    asked.add(key)
            if not left:
                return
        rows = [
            f"{key} on {claim.node}: {refused[key] or 'has not ended yet'}"
            for key, claim in left.items()
        ]
        raise Stuck("\n".join(["Pods still hold GPUs:", *rows]))

    def _ask(self, claim: Claim) -> str:
        """Evict one pod; return why it may not go yet, empty where it may."""
        try:
            self._client.evict(claim.name, claim.namespace)
        except kube.ApiMissing:
            return ""
        except kube.ApiBusy as error:
            return error.found
        return ""

    def wait_for_no_gpus(self, names: Collection[str]) -> None:
        """Wait until no node has GPUs to hand out. Raises Stuck."""
        rows: dict[str, NodeRow] = {}
        query = kube.only("metadata.name", self._names)
        for _changed in self._client.follow(
            "nodes", rows, self._keep_node, self._timer, query=query
        ):
            having = [name for name, row in rows.items() if name in names and row.has_gpus]
            if not having:
                return
        raise Stuck(
            f"The cluster goes on handing out GPUs of {', '.join(having)}, so these stay cordoned"
        )


def run(client: kube.Client, params: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the module's result, with "failed" where something is in the way.

    Raises kube.KubeError.
    """
    drain = Drain(client, params["nodes"], kube.Timer(params["wait_timeout"]))
    if params["report_only"]:
        return {"changed": False, "nodes": _describe(drain, params["nodes"]), "error": ""}
    if params["state"] == "drained":
        return _drain(drain, params["nodes"], check_mode)
    return _release(drain, params["nodes"], check_mode)


def _drain(drain: Drain, names: Iterable[str], check_mode: bool) -> dict[str, Any]:
    to_cordon = drain.to_cordon()
    result = {"changed": bool(to_cordon or drain.claims), "nodes": _describe(drain, names)}
    if check_mode:
        return result
    staying = [f"{claim.key}: {claim.stays}" for claim in drain.claims.values() if claim.stays]
    if staying:
        head = "Nothing was evicted, because of pods that an eviction does not help with:"
        return {**result, "changed": False, "failed": True, "msg": "\n".join([head, *staying])}
    try:
        drain.cordon(to_cordon)
        drain.evict()
    except (Stuck, kube.KubeError) as error:
        drain.uncordon(to_cordon)
        return {**result, "failed": True, "msg": str(error)}
    return result


def _release(drain: Drain, names: Iterable[str], check_mode: bool) -> dict[str, Any]:
    cordoned = drain.cordoned()
    result = {"changed": bool(cordoned), "nodes": _describe(drain, names)}
    if check_mode or not cordoned:
        return result
    try:
        drain.wait_for_no_gpus(cordoned)
    except Stuck as error:
        return {**result, "changed": False, "failed": True, "msg": str(error)}
    drain.uncordon(cordoned)
    return result


def _describe(drain: Drain, names: Iterable[str]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name in names:
        found = drain.nodes.get(name)
        rows[name] = {
            "state": "ok" if found else "missing",
            "cordoned": bool(found and found.cordoned),
            "pods": [],
        }
    for _key, claim in sorted(drain.claims.items()):
        rows[claim.node]["pods"].append(
            {"name": claim.key, "gpus": claim.gpus, "stays": claim.stays}
        )
    return rows


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
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
