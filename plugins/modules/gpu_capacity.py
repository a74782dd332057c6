#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_capacity
short_description: Wait until nodes offer the expected number of GPUs
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Waits until every named node has exactly the expected amount of a resource, in its capacity and
    in what is allocatable.
  - Follows all nodes by one list and one watch, and returns at the moment the last of them is as
    expected.
  - When the time is up it fails and says for each node what is missing, with the newest evidence,
    which are conditions of the node and phase and last log line of its device plugin pods.
extends_documentation_fragment:
  - metal.gpu.attributes
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
attributes:
  check_mode:
    support: full
    description: Changes nothing in any mode, and waits in check mode too.
  diff_mode:
    support: N/A
    description: Changes nothing.
  idempotent:
    support: full
    description: Changes nothing.
options:
  nodes:
    description:
      - Names of the nodes in the cluster, which are all to have the amount O(expected).
      - Or a dictionary with the expected amount for each node, keyed by name.
      - Amounts are Kubernetes quantities, such as V(4) or V(16Gi).
      - A node without an amount (V(null)) has to exist, and is reported as it is.
    type: raw
    required: true
  expected:
    description:
      - The amount that each node has to have, where O(nodes) is a list. It cannot be combined with
        a dictionary.
      - If not set, the nodes have to exist, and are reported as they are.
    type: str
  resource:
    description: Name of the resource.
    type: str
    default: nvidia.com/gpu
  unawaited:
    description:
      - Names of further nodes, which are reported as they are, and which nothing is expected of,
        not even that they exist.
    type: list
    elements: str
    default: []
  ready:
    description:
      - Whether the nodes with an expected amount have to be ready, too, as RV(nodes.ready) tells.
        Capacity and allocatable alone are what the kubelet has said last, which may be long ago.
    type: bool
    default: false
  wait_timeout:
    description:
      - How many seconds to wait.
      - V(0) judges the present state and does not wait.
    type: int
    default: 300
  report_only:
    description:
      - Whether the answer is left to the caller to judge. Then nodes that differ do not fail the
        task, and neither does an API server that gives no answer, which RV(error) tells about.
    type: bool
    default: false
notes:
  - Needs the permission to list and watch nodes. The evidence needs the permission to list pods
    in all namespaces and to get C(pods/log), and is left out without it.
  - A node that the cluster does not have may still join, so it is waited for like all others.
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

- name: Look once at all nodes of a group, whatever they have
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
  returned: when the API server answered, also on failure; empty with RV(error)
  type: dict
  contains:
    state:
      description:
        - V(ok) when the node is as expected, V(missing) when the cluster does not have it,
          V(differs) otherwise.
      type: str
    capacity:
      description:
        - The resource in the node's capacity. V(null) where the node does not know the resource,
          or does not exist.
      type: int
    allocatable:
      description: The same for what is allocatable.
      type: int
    expected:
      description: The expected amount, V(null) where none was given.
      type: int
    ready:
      description:
        - Whether the condition C(Ready) of the node is true, and no taint is left from a time when
          it was not. V(null) where nobody knows, as with a kubelet that has fallen silent, and
          where the node does not exist.
      type: bool
    readiness:
      description:
        - Why the node is not ready. Empty where it is, and where it does not exist.
      type: str
    labels:
      description: The labels of the node. Empty where it does not exist.
      type: dict
    seconds:
      description: Seconds until the node was as expected, or until the module gave up.
      type: float
    message:
      description: What is missing. Empty when nothing is.
      type: str
    evidence:
      description:
        - What the node and its device plugin pods say, where the node is not as expected.
        - The last log line is there for the first 20 of these pods, less those of kubelets that
          have fallen silent.
      type: list
      elements: str
  sample:
    gpu-1:
      state: ok
      capacity: 4
      allocatable: 4
      expected: 4
      ready: true
      readiness: ""
      labels:
        nvidia.com/gpu.present: "true"
      seconds: 2.7
      message: ""
      evidence: []
    gpu-2:
      state: differs
      capacity: 8
      allocatable: 7
      expected: 8
      ready: true
      readiness: ""
      labels:
        nvidia.com/gpu.present: "true"
      seconds: 300.0
      message: "expected 8, capacity is 8, allocatable is 7: 1 not healthy"
      evidence:
        - "pod kube-system/nvidia-device-plugin-x2x9k is Running, and logged last: XidCriticalError:
          Xid=79 on Device=GPU-4d23e6a1; marking device as unhealthy."
error:
  description: Why the API server gave no answer. Empty where it did.
  returned: with O(report_only)
  type: str
  sample: ""
"""

import time
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.validation import check_type_dict, check_type_list

from ansible_collections.metal.gpu.plugins.module_utils import (
    kube,
    kube_settings,
    node_status,
    pod_status,
)
from ansible_collections.metal.gpu.plugins.module_utils.quantity import (
    QuantityInvalid,
    parse_quantity,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from decimal import Decimal

    from ansible_collections.metal.gpu.plugins.module_utils.node_status import (
        Judgement,
        NodeStatus,
    )

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_settings.AUTH_ARGUMENTS,
    "nodes": {"type": "raw", "required": True},
    "expected": {"type": "str"},
    "resource": {"type": "str", "default": "nvidia.com/gpu"},
    "unawaited": {"type": "list", "elements": "str", "default": []},
    "ready": {"type": "bool", "default": False},
    "wait_timeout": {"type": "int", "default": 300},
    "report_only": {"type": "bool", "default": False},
}

# A log costs a request that its node's kubelet has to answer; the first ones explain the others.
LOG_PODS = 20
LOG_LINES = 5  # the last can be empty


def parse_expected(nodes: Any, amount: str | None = None) -> dict[str, Decimal | None]:
    """Parse the options nodes and expected. Raises ValueError, with the name of what is wrong."""
    if isinstance(nodes, str):  # written as key=value, in a task or at the command line
        nodes = check_type_dict(nodes) if "=" in nodes or "{" in nodes else check_type_list(nodes)
    if isinstance(nodes, dict):
        if amount is not None:
            raise ValueError(
                "nodes is a dictionary, which has the amount of each node, so expected cannot be "
                "set: give nodes as a list of names, or leave expected out"
            )
        return {name: _parse_amount(f"nodes: {name}", each) for name, each in nodes.items()}
    if not isinstance(nodes, list) or not all(isinstance(name, str) for name in nodes):
        raise ValueError("nodes is neither a list of names nor a dictionary of amounts")
    return dict.fromkeys(nodes, _parse_amount("expected", amount))


def _parse_amount(where: str, amount: Any) -> Decimal | None:
    try:
        return None if amount is None else parse_quantity(amount)
    except QuantityInvalid as error:
        raise ValueError(f"{where}: {error}") from error


def run(
    client: kube.Client,
    expected: Mapping[str, Decimal | None],
    resource: str,
    wait_timeout: int,
    unawaited: Collection[str] = (),
    ready: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Return the module's result, with "failed" where a node differs; raise kube.KubeError."""
    timer = kube.Timer(wait_timeout, clock)
    found: dict[str, NodeStatus] = {}

    def judge(name: str) -> Judgement:
        return node_status.judge(found.get(name), expected.get(name), resource, ready=ready)

    reached = wait(client, expected, resource, found, timer, unawaited, judge)
    differing = [name for name in expected if name not in reached]
    evidence = read_evidence(client, {name: found[name] for name in differing if name in found})
    nodes = {
        name: {
            **_describe(found.get(name), amount, judge(name)),
            "seconds": round(reached.get(name, timer.elapsed_s()), 1),
            "evidence": evidence.get(name, []),
        }
        for name, amount in {**dict.fromkeys(unawaited), **expected}.items()
    }
    result: dict[str, Any] = {"changed": False, "nodes": nodes}
    if differing:
        head = (
            f"{len(differing)} of {len(expected)} nodes do not have the expected {resource} "
            f"after {timer.elapsed_s():.0f} s:"
        )
        rows = [
            "; ".join([f"{name}: {nodes[name]['message']}", *nodes[name]["evidence"]])
            for name in differing
        ]
        result.update(failed=True, msg="\n".join([head, *rows]))
    return result


def wait(
    client: kube.Client,
    expected: Mapping[str, Decimal | None],
    resource: str,
    found: dict[str, NodeStatus],
    timer: kube.Timer,
    unawaited: Collection[str],
    judge: Callable[[str], Judgement],
) -> dict[str, float]:
    """Fill `found` until all nodes are as expected or time is up, and once with the unawaited.

    Returns the seconds after which each node was as expected, without those that are not.
    """

    def keep(node: dict[str, Any]) -> NodeStatus | None:
        named = node["metadata"]["name"] in wanted
        return node_status.parse_node(node, resource) if named else None

    wanted = {*expected, *unawaited}
    reached: dict[str, float] = {}
    query = kube.only("metadata.name", wanted)
    for changed in client.follow("nodes", found, keep, timer, query=query):
        for name in expected.keys() & changed:
            if judge(name).state == "ok":
                reached.setdefault(name, timer.elapsed_s())
            else:
                reached.pop(name, None)
        if len(reached) == len(expected):
            break
    return reached


def read_evidence(client: kube.Client, nodes: Mapping[str, NodeStatus]) -> dict[str, list[str]]:
    """Return what explains the state of each node, by the newest knowledge there is."""
    evidence = {name: list(node.troubles.values()) for name, node in nodes.items()}
    if not nodes:
        return evidence
    try:
        pods = _list_device_plugins(client, nodes)
    except kube.KubeError as error:
        for said in evidence.values():
            said.append(f"its pods cannot be read: {error}")
        return evidence
    for number, (key, pod) in enumerate(pods.items()):
        text = f"pod {key} is {pod_status.describe(pod)}"
        node = pod["spec"]["nodeName"]
        is_silent = nodes[node].ready is None  # it would be waited for in vain
        last = "" if is_silent or number >= LOG_PODS else _read_last_line(client, pod)
        said = evidence[node]
        said.append(f"{text}, and logged last: {last}" if last else text)
    for name in nodes.keys() - {pod["spec"]["nodeName"] for pod in pods.values()}:
        evidence[name].append("no device plugin pod runs on it")
    return evidence


def _list_device_plugins(client: kube.Client, nodes: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the device plugin pods of the nodes, by one LIST."""

    def keep(pod: dict[str, Any]) -> dict[str, Any] | None:
        here = pod["spec"].get("nodeName") in nodes
        return pod if here and pod_status.is_device_plugin(pod) else None

    return client.snapshot("pods", keep, query=kube.only("spec.nodeName", nodes))


def _read_last_line(client: kube.Client, pod: Mapping[str, Any]) -> str:
    """Return the last line a pod has logged, empty where there is none to be had."""
    metadata, container = pod["metadata"], pod["spec"]["containers"][0]["name"]
    try:
        tail = client.log_tail(metadata["name"], metadata["namespace"], container, LOG_LINES)
    except kube.KubeError:
        return ""  # not started yet, or its kubelet does not answer: the phase tells that
    return next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")


def _describe(
    node: NodeStatus | None, expected: Decimal | None, judgement: Judgement
) -> dict[str, Any]:
    def number(amount: Decimal | None) -> int | float | None:
        return None if amount is None else plain(amount)

    return {
        "state": judgement.state,
        "message": judgement.message,
        "capacity": number(node.capacity) if node else None,
        "allocatable": number(node.allocatable) if node else None,
        "expected": number(expected),
        "ready": node.ready if node else None,
        "readiness": node.readiness if node else "",
        "labels": dict(node.labels) if node else {},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    params = module.params
    try:
        expected = parse_expected(params["nodes"], params["expected"])
        if not expected and not params["unawaited"]:
            raise ValueError("nodes is empty: name at least one node")
    except (TypeError, ValueError) as error:
        module.fail_json(msg=str(error))
    try:
        client = kube_settings.client_for(module)
        result = run(
            client,
            expected,
            params["resource"],
            params["wait_timeout"],
            params["unawaited"],
            params["ready"],
        )
    except kube.KubeError as error:
        if params["report_only"]:
            module.exit_json(nodes={}, error=str(error))
        module.fail_json(msg=str(error))
    if params["report_only"]:
        result.update(failed=False, error="")
    if result.pop("failed", False):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
