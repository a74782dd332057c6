# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read from the cluster why nodes do not have the expected GPUs.

`read` talks to the API server. It raises nothing; what cannot be read is reported as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    causes,
    final_causes,
    plugin_causes,
    pod_status,
    scheduling,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiForbidden,
    KubeError,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus

# Each log is a request that a kubelet has to answer. The first logs usually explain the others.
LOG_PODS = 20
LOG_LINES = 500  # a plugin keeps logging noise after it marked a GPU unhealthy

_NOTHING = "no device plugin pod runs on this node"


class Evidence(NamedTuple):
    """What explains the state of a node."""

    texts: list[str]
    cause: Cause | None
    is_final: bool  # the cause lasts until somebody does something about it
    patience_s: float = 0.0  # for how long a final cause must be there
    told_at: str = ""  # when the event was observed that tells a final cause; empty without one


class _Cluster:
    """What was read; fields that could not be read are empty."""

    def __init__(self) -> None:
        self.daemonsets: list[Mapping[str, Any]] | None = None  # None: could not be read
        self.pods: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, list[str]] = {}  # by namespace/name
        self.events: list[dict[str, Any]] = []
        self.withheld: list[str] = []


def read(client: Client, nodes: Mapping[str, NodeStatus], resource: str) -> dict[str, Evidence]:
    """Return the newest evidence for the state of each node."""
    if not nodes:
        return {}
    cluster = _Cluster()
    try:
        _read_daemonsets(client, cluster, resource)
        _read_pods(client, cluster, nodes)
        _read_logs(client, cluster, nodes)
        _read_events(client, cluster, nodes)
    except KubeError as error:
        cluster.withheld.append(f"cannot read the device plugin pods: {error}")
    return {name: _explain(cluster, name, status) for name, status in nodes.items()}


def _read_daemonsets(client: Client, cluster: _Cluster, resource: str) -> None:
    def keep(daemonset: dict[str, Any]) -> dict[str, Any] | None:
        template = section(daemonset, "spec", "template")
        return daemonset if pod_status.is_device_plugin(template) else None

    try:
        found = client.snapshot("daemonsets", keep)
    except ApiForbidden as error:
        cluster.withheld.append(f"cannot read the DaemonSets: {error.reply}")
        return
    cluster.daemonsets = plugin_causes.choose_plugins(found.values(), resource)


def _read_pods(client: Client, cluster: _Cluster, nodes: Mapping[str, NodeStatus]) -> None:
    """Read the device plugin pods: those of the DaemonSets, or without these, those of the nodes.

    Only the former include pods that the scheduler has not yet bound to a node.
    """

    def keep(pod: dict[str, Any]) -> dict[str, Any] | None:
        here = pod_status.target_node(pod) in nodes
        return pod if here and pod_status.is_device_plugin(pod) else None

    if not cluster.daemonsets:
        cluster.pods = client.snapshot_each("pods", keep, "spec.nodeName", nodes, cached=True)
        return
    for daemonset in cluster.daemonsets:
        namespace = daemonset["metadata"]["namespace"]
        selector = scheduling.selector_text(section(daemonset, "spec", "selector"))
        query = {"labelSelector": selector}
        found = client.snapshot("pods", keep, namespace=namespace, query=query)
        cluster.pods.update({f"{namespace}/{name}": pod for name, pod in found.items()})


def _read_logs(client: Client, cluster: _Cluster, nodes: Mapping[str, NodeStatus]) -> None:
    count = 0
    for key, pod in cluster.pods.items():
        is_silent = nodes[pod_status.target_node(pod)].ready is None  # its kubelet would not answer
        if is_silent or not pod["spec"].get("nodeName"):
            continue
        count += 1
        if count > LOG_PODS:
            return
        metadata, container = pod["metadata"], pod_status.plugin_container(pod)
        try:
            tail = client.log_tail(metadata["name"], metadata["namespace"], container, LOG_LINES)
        except KubeError:
            continue  # not started yet, or no permission; the phase is evidence enough
        cluster.logs[key] = [line.strip() for line in tail.splitlines() if line.strip()]


def _read_events(client: Client, cluster: _Cluster, nodes: Mapping[str, NodeStatus]) -> None:
    """Read the warnings about pods that were not created or do not start."""
    reached = {pod_status.target_node(pod) for pod in cluster.pods.values()}
    waiting = [
        pod for pod in cluster.pods.values() if pod_status.waiting(pod) or "status" not in pod
    ]
    if not waiting and not (cluster.daemonsets and nodes.keys() - reached):
        return
    namespaces = {daemonset["metadata"]["namespace"] for daemonset in cluster.daemonsets or ()}
    namespaces.update(pod["metadata"]["namespace"] for pod in waiting)
    events: list[dict[str, Any]] = []
    for namespace in sorted(namespaces):
        query = {"fieldSelector": "type=Warning"}
        found = client.snapshot("events", lambda event: event, namespace=namespace, query=query)
        events += found.values()
    cluster.events = sorted(events, key=pod_status.event_time)


def _explain(cluster: _Cluster, name: str, status: NodeStatus) -> Evidence:
    pods = {key: pod for key, pod in cluster.pods.items() if pod_status.target_node(pod) == name}
    facts = plugin_causes.Facts(
        name,
        status,
        cluster.daemonsets,
        list(pods.values()),
        {pod["metadata"]["name"]: cluster.logs.get(key, ()) for key, pod in pods.items()},
        cluster.events,
    )
    texts = [*status.troubles.values(), *cluster.withheld]
    texts += [_describe(key, pod, cluster.logs.get(key, ())) for key, pod in pods.items()]
    if not pods and not cluster.withheld:
        texts.append(_NOTHING)
    cause = plugin_causes.find_cause(facts)
    if cause is None or not final_causes.is_final(cause, facts):
        return Evidence(texts, cause, is_final=False)
    patience_s, told_at = final_causes.patience_s(cause), final_causes.told_at(cause, facts)
    return Evidence(texts, cause, is_final=True, patience_s=patience_s, told_at=told_at)


def _describe(key: str, pod: Mapping[str, Any], lines: Sequence[str]) -> str:
    text = f"pod {key} is {causes.quote(pod_status.describe(pod))}"
    line = plugin_causes.telling_line(lines)
    return f"{text}, and logged: {causes.quote(line)}" if line else text
