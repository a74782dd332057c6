# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read from the cluster what the pods of a smoke run do not show themselves.

All functions talk to the API server. What `Kubelets` and `read_events` cannot read becomes a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    node_status,
    pod_status,
    proof_pod,
    smoke_pod,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import only
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiForbidden,
    KubeError,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_causes import Heartbeats
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from decimal import Decimal

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus

EVENTS_S = 2.0  # events appear a moment after the state they explain
_FEW = 32  # up to this many nodes, one LIST for each is cheaper than a LIST of all nodes
_LEASES = "kube-node-lease"


class Free(NamedTuple):
    """The GPUs of a node that no pod claims."""

    gpus: int
    holders: tuple[str, ...]  # namespace/name of the pods that claim the others, sorted
    claims: Mapping[str, str] = {}  # the same by UID, under which the kubelet knows them


NOTHING = Free(0, ())


def read_free_gpus(
    client: Client,
    allocatable: Mapping[str, Decimal],
    resource: str,
    timer: Timer,
    run: str = "",
) -> dict[str, Free]:
    """Return the GPUs of each node that no pod claims, given its allocatable amount.

    Pods of the run `run` do not count: one may get its GPUs at this very moment.
    """

    def keep(pod: dict[str, Any]) -> tuple[str, Decimal, str] | None:
        if run and section(pod, "metadata", "labels").get(proof_pod.RUN) == run:
            return None
        node = pod["spec"].get("nodeName")
        amount = pod_status.claimed(pod, resource)
        uid = str(pod["metadata"].get("uid", ""))
        return (node, amount, uid) if amount and node in allocatable else None

    alive = "status.phase!=Succeeded,status.phase!=Failed"
    pods = client.snapshot_each(
        "pods", keep, "spec.nodeName", allocatable, alive, cached=True, timer=timer
    )
    free = dict(allocatable)
    holders: dict[str, list[str]] = {node: [] for node in allocatable}
    claims: dict[str, dict[str, str]] = {node: {} for node in allocatable}
    for name, (node, amount, uid) in sorted(pods.items()):
        free[node] -= amount
        holders[node].append(name)
        claims[node][uid] = name
    return {
        node: Free(max(0, int(free[node])), tuple(holders[node]), claims[node])
        for node in allocatable
    }


def read_nodes(
    client: Client,
    names: Collection[str],
    resource: str,
    timer: Timer,
    others: Collection[str] = (),
) -> dict[str, NodeStatus]:
    """Return the nodes with these names; a name without a node is left out."""

    def keep(node: dict[str, Any]) -> NodeStatus | None:
        is_named = node["metadata"]["name"] in names
        return node_status.parse_node(node, resource, others) if is_named else None

    if len(names) > _FEW:
        return client.snapshot("nodes", keep, timer=timer)
    return client.snapshot_each("nodes", keep, "metadata.name", names, timer=timer)


class Look(NamedTuple):
    """What nodes say at one time."""

    nodes: dict[str, NodeStatus]
    silence: dict[str, str]  # for how long a kubelet has not reported; without those that report
    notes: list[str]  # what could not be read


class Kubelets:
    """The nodes and the Leases of their kubelets, looked at several times.

    `named` are the resources that pods ask for instead of `resource`.
    """

    def __init__(
        self, client: Client, resource: str, clock: Timer, named: Collection[str] = ()
    ) -> None:
        self._client = client
        self._resource = resource
        self._named = named
        self._clock = clock
        self._heartbeats = Heartbeats()

    def read(self, names: Collection[str]) -> Look:
        look, timer = Look({}, {}, []), Timer(0.0)

        def keep(lease: dict[str, Any]) -> dict[str, Any] | None:
            return lease if lease["metadata"]["name"] in names else None

        try:
            look.nodes.update(read_nodes(self._client, names, self._resource, timer, self._named))
        except KubeError as error:
            look.notes.append(f"the nodes could not be read: {error}")
            if not isinstance(error, ApiForbidden):  # other requests would fail likewise
                return look
        asked_s = self._clock.elapsed_s()
        try:
            leases = self._client.snapshot("leases", keep, namespace=_LEASES, timer=timer)
        except KubeError as error:
            look.notes.append(f"the Leases of the kubelets could not be read: {error}")
            return look
        answered_s = self._clock.elapsed_s()
        for name, lease in leases.items():
            text = self._heartbeats.read_silence(name, lease, asked_s, answered_s)
            if text:
                look.silence[name] = text
        return look


def read_unstartable(client: Client, namespace: str, pods: Collection[str]) -> dict[str, str]:
    """Return why the sandbox of a pod can never be created, keyed by pod name."""

    def keep(event: dict[str, Any]) -> tuple[str, str] | None:
        name = event["involvedObject"].get("name")
        hit = name in pods and smoke_pod.no_runtime(event)
        return (name, pod_status.event_text(event)) if hit else None

    query = {"fieldSelector": "involvedObject.kind=Pod,reason=FailedCreatePodSandBox"}
    try:
        return dict(client.snapshot("events", keep, namespace=namespace, query=query).values())
    except KubeError:
        return {}  # such a pod then fails at the time limit


def read_events(
    client: Client, namespace: str, pods: Collection[str]
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Return the events of pods, oldest first, and a note if they could not be read."""
    if not pods:
        return {}, []

    def keep(event: dict[str, Any]) -> dict[str, Any] | None:
        return event if event["involvedObject"].get("name") in pods else None

    events: dict[str, dict[str, Any]] = {}
    notes = []
    query = only("involvedObject.name", pods, "involvedObject.kind=Pod")
    try:
        for _round in client.follow(
            "events", events, keep, Timer(EVENTS_S), namespace=namespace, query=query
        ):
            warned = {
                event["involvedObject"]["name"]
                for event in events.values()
                if event.get("type") == "Warning"
            }
            if warned.issuperset(pods):
                break
    except KubeError as error:
        notes.append(f"the events could not be read: {error}")
    found: dict[str, list[dict[str, Any]]] = {}
    for event in sorted(events.values(), key=pod_status.event_time):
        found.setdefault(event["involvedObject"]["name"], []).append(event)
    return found, notes
