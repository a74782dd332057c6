#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_capacity
short_description: Wait until nodes have the expected number of allocatable GPUs
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Waits until every named node has exactly the expected amount of a resource, in capacity and in
    allocatable.
  - Uses one list and one watch for all nodes. Returns as soon as the last node is as expected.
  - Fails when the time is up. The message has, for each node, what differs and the newest evidence.
    That is the node's conditions, and for each device plugin pod the phase and the most informative
    log line. RV(nodes.cause) names a known cause, such as a missing label or a taint.
extends_documentation_fragment:
  - metal.gpu.attributes.reads
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
attributes:
  check_mode:
    description: Changes nothing in any mode. Waits also in check mode.
options:
  nodes:
    description:
      - Names of the nodes in the cluster. Each must have the amount O(expected).
      - Or a dictionary of expected amounts, keyed by node name.
      - Amounts are Kubernetes quantities, such as V(4) or V(16Gi).
      - A node without an amount (V(null)) must exist. Its amounts are reported and not compared.
    type: raw
    required: true
  expected:
    description:
      - The amount that each node must have. Only for a list in O(nodes), not for a dictionary.
      - If not set, the nodes must exist. Their amounts are reported and not compared.
    type: str
  resource: {description: Name of the resource., type: str, default: nvidia.com/gpu}
  unawaited:
    description:
      - Names of further nodes to report. The module does not wait for them, and they never fail the
        task. They need not exist.
      - Or a dictionary of expected amounts, keyed by node name. Nodes that differ then have
        evidence and a cause, like those of O(nodes).
    type: raw
    default: []
  ready:
    description:
      - Also require that the nodes with an expected amount are ready, see RV(nodes.ready).
      - Capacity and allocatable are the last values that the kubelet reported. They can be old.
    type: bool
    default: false
  sharing:
    description:
      - Treat the amounts as numbers of GPUs. What a node must have follows from how the device
        plugin shares its GPUs, by time-slicing, MPS or MIG.
      - The module reads the DaemonSet of the plugin and its ConfigMap, or else the labels of GPU
        feature discovery.
    type: bool
    default: false
  by_hand:
    description: With O(sharing), what single nodes must have, instead of what the module finds out.
      A dictionary of amounts by resource, keyed by node name.
    type: dict
    default: {}
  split:
    description:
      - With O(sharing), how many GPUs of a node are in MIG mode. A dictionary keyed by node name.
      - The other GPUs are whole. Without it, nothing shows how many GPUs must be whole.
    type: dict
    default: {}
  machines:
    description:
      - The C(boot_id) and the C(machine_id) of nodes, as M(metal.gpu.node_info) returns them. A
        dictionary keyed by node name.
      - A Node with another boot id and another machine id is not the one that is asked for.
        RV(nodes.state) is V(missing), and RV(nodes.another) says why.
    type: dict
    default: {}
  give_up:
    description:
      - Do not wait for a node whose cause lasts until somebody does something about it, such as a
        missing label. The module looks for causes after 5 seconds, and then every 10 seconds.
      - An image that the kubelet tries to pull again, and a node that is not ready, are waited for.
    type: bool
    default: false
  surroundings:
    description: Also read the DaemonSets and the Leases of the kubelets. RV(nodes.surroundings)
      reports what is wrong about nodes whatever their amounts are, and who has cordoned them.
    type: bool
    default: false
  wait_timeout:
    description:
      - Number of seconds to wait.
      - V(0) compares once and does not wait.
    type: int
    default: 300
  report_only:
    description: Report differences without failing. Nodes that differ do not fail the task. Neither
      does an API server that does not answer; RV(error) has its error.
    type: bool
    default: false
notes:
  - Needs the permission to list and watch nodes. The evidence needs the permissions to list
    DaemonSets, pods and events in all namespaces, and to get C(pods/log). O(surroundings) needs
    those to list DaemonSets, and Leases in C(kube-node-lease). What cannot be read is left out.
  - Retries requests to an API server that is busy (429, 5xx) or stalls, until the time is up and
    for at least 30 seconds.
  - Waits also for nodes that are not yet in the cluster, because they may still join.
seealso:
  - module: metal.gpu.gpu_smoke_pod
  - name: Device plugins
    description: How GPUs get into capacity and allocatable.
    link: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
"""

EXAMPLES = r"""
- name: Wait for the GPUs of two nodes
  metal.gpu.gpu_capacity:
    kubeconfig: ~/.kube/config
    nodes:
      gpu-1: 4
      gpu-2: 8
  delegate_to: localhost
  run_once: true

- name: Wait for two GPUs of each of two nodes
  metal.gpu.gpu_capacity:
    nodes: [gpu-1, gpu-2]
    expected: 2
  delegate_to: localhost
  run_once: true

- name: Report the GPUs of all nodes of a group, without waiting
  metal.gpu.gpu_capacity:
    nodes: "{{ groups['gpu_nodes'] }}"
    wait_timeout: 0
    report_only: true
  delegate_to: localhost
  run_once: true
  register: gpus

- name: Wait for MIG slices
  metal.gpu.gpu_capacity:
    context: production
    resource: nvidia.com/mig-1g.10gb
    nodes:
      gpu-3: 7
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
nodes:
  description: Each node, keyed by name.
  returned: >-
    when the API server answered, also on failure; the last known values if it stopped answering,
    empty if it never answered
  type: dict
  contains:
    state:
      description: V(ok) if the node is as expected, V(missing) if it is not in the cluster,
        V(differs) otherwise.
      type: str
    capacity:
      description: The amount in the node's capacity. V(null) if the node does not have the resource
        or does not exist.
      type: int
    allocatable: {description: "The amount in the node's allocatable, likewise.", type: int}
    expected: {description: The expected amount. V(null) if none was given., type: int}
    ready:
      description:
        - Whether the condition C(Ready) of the node is true and its not-ready taints are removed.
        - V(null) if that is unknown because the kubelet stopped reporting, or if the node does not
          exist.
      type: bool
    readiness:
      description: Why the node is not ready. Empty if it is ready or does not exist.
      type: str
    resources:
      description: The resources of the node that are GPUs or parts of GPUs, each with its
        C(capacity) and C(allocatable).
      type: dict
    wanted:
      description: With O(sharing), what the node must have. C(resources) are amounts by resource,
        V(null) if nothing shows how many parts of GPUs there must be. Then C(known) are the amounts
        that are known all the same, and C(least) is the least number of parts. C(gpus) is the
        number of GPUs. C(source) is how these are shared and what says so, empty without sharing.
        C(resource) is what a pod asks for, and C(shared) whether it then gets less than a whole
        GPU. C(mps) is whether the GPUs are shared by MPS.
      type: dict
    labels: {description: The labels of the node. Empty if it does not exist., type: dict}
    annotations:
      description: The annotations of the node that start with C(metal.gpu/).
      type: dict
    seconds:
      description: Seconds until the node was as expected, or until the wait for it ended.
      type: float
    message: {description: What differs. Empty if nothing does., type: str}
    evidence:
      description:
        - Conditions of the node and states of its device plugin pods, if the node is not as
          expected.
        - Log lines are read for the first 20 of these pods whose kubelets report.
      type: list
      elements: str
    cause:
      description: Why the node is not as expected. V(null) if no known cause matches.
      type: dict
      contains:
        code:
          description: A code of C(docs/troubleshooting.md), such as V(DEVICE_PLUGIN_NOT_SELECTED).
          type: str
        evidence: {description: Values for the texts of this code., type: dict}
    another:
      description: The ids of the Node, if it is another machine than in O(machines). Else empty.
      type: str
    surroundings:
      description: Further findings in the form of RV(nodes.cause), such as a second device plugin
        on the node. Empty without O(surroundings), and where nothing can be read.
      type: list
      elements: dict
  sample:
    gpu-1:
      state: ok
      capacity: 4
      allocatable: 4
      expected: 4
      ready: true
      readiness: ""
      resources:
        nvidia.com/gpu: {capacity: 4, allocatable: 4}
      wanted: null
      labels:
        nvidia.com/gpu.present: "true"
      annotations:
        metal.gpu/labelled: nvidia.com/gpu.present
      seconds: 2.7
      message: ""
      evidence: []
      cause: null
      another: ""
      surroundings: []
    gpu-2:
      state: differs
      capacity: 8
      allocatable: 7
      expected: 8
      ready: true
      readiness: ""
      resources:
        nvidia.com/gpu: {capacity: 8, allocatable: 7}
      wanted: null
      labels: {}
      annotations: {}
      seconds: 300.0
      message: "expected 8, capacity is 8, allocatable is 7: 1 unhealthy"
      evidence:
        - "pod kube-system/nvidia-device-plugin-x2x9k is Running, and logged: XidCriticalError:
          Xid=79 on Device=GPU-4d23e6a1; marking device as unhealthy."
      cause:
        code: GPU_UNHEALTHY
        evidence:
          pod: kube-system/nvidia-device-plugin-x2x9k
          namespace: kube-system
          name: nvidia-device-plugin-x2x9k
          error: "XidCriticalError: Xid=79 on Device=GPU-4d23e6a1; marking device as unhealthy."
      another: ""
      surroundings: []
error:
  description: Why the API server did not answer. Empty if it answered.
  returned: with O(report_only)
  type: str
"""

from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.validation import check_type_dict, check_type_list

from ansible_collections.metal.gpu.plugins.module_utils.cluster import kube_module
from ansible_collections.metal.gpu.plugins.module_utils.cluster.capacity import run
from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import (
    QuantityInvalid,
    parse_quantity,
)

if TYPE_CHECKING:
    from decimal import Decimal

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_module.ARGUMENTS,
    "nodes": {"type": "raw", "required": True},
    "expected": {"type": "str"},
    "resource": {"type": "str", "default": "nvidia.com/gpu"},
    "unawaited": {"type": "raw", "default": []},
    "ready": {"type": "bool", "default": False},
    "sharing": {"type": "bool", "default": False},
    "by_hand": {"type": "dict", "default": {}},
    "split": {"type": "dict", "default": {}},
    "machines": {"type": "dict", "default": {}},
    "give_up": {"type": "bool", "default": False},
    "surroundings": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 300},
}


def parse_expected(
    nodes: Any, amount: str | None = None, option: str = "nodes"
) -> dict[str, Decimal | None]:
    """Parse nodes and their amounts. Raises ValueError, with the name of the wrong option."""
    if isinstance(nodes, str):  # from key=value, in a task or on the command line
        nodes = check_type_dict(nodes) if "=" in nodes or "{" in nodes else check_type_list(nodes)
    if isinstance(nodes, dict):
        if amount is not None:
            raise ValueError(
                f"expected cannot be combined with a dictionary in {option}. Set {option} to a "
                "list of names, or remove expected"
            )
        return {name: _parse_amount(f"{option}: {name}", each) for name, each in nodes.items()}
    if not isinstance(nodes, list) or not all(isinstance(name, str) for name in nodes):
        raise ValueError(f"{option} must be a list of names or a dictionary of amounts")
    return dict.fromkeys(nodes, _parse_amount("expected", amount))


def _parse_amount(where: str, amount: Any) -> Decimal | None:
    try:
        return None if amount is None else parse_quantity(amount)
    except QuantityInvalid as error:
        raise ValueError(f"{where}: {error}") from error


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        expected = parse_expected(params["nodes"], params["expected"])
        unawaited = parse_expected(params["unawaited"], option="unawaited")
        if not expected and not unawaited:
            raise ValueError("nodes is empty: name at least one node")
    except (TypeError, ValueError) as error:
        module.fail_json(msg=str(error))
    kube_module.run_module(
        module,
        lambda client: run(
            client,
            expected,
            params["resource"],
            params["wait_timeout"],
            unawaited,
            params["ready"],
            give_up=params["give_up"],
            surroundings=params["surroundings"],
            by_hand=params["by_hand"] if params["sharing"] else None,
            split=params["split"],
            machines=params["machines"],
        ),
        nodes={},
    )


if __name__ == "__main__":
    main()
