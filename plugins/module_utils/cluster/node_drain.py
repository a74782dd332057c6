# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Cordon nodes, evict the pods that claim GPUs there, and uncordon the nodes again.

All methods of `Drain` talk to the API server, except `cordoned` and `cordoned_now`. The order
matters: cordon, list, judge, evict. The list contains every pod that arrived before the cordon.
Pods that arrive later, as those of DaemonSets do, are judged like the others.

An admin or another run may cordon the same node. We uncordon a node only if it has our annotation
and `managedFields` names us as the manager of `spec.unschedulable`.

Source: https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import gpu_claims
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import only
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiBudget,
    ApiBusy,
    ApiConflict,
    ApiMissing,
    ApiUnreachable,
    KubeError,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import MANAGER, Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import parse_quantity
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.gpu_claims import Claim

CORDONED = "metal.gpu/cordoned"  # annotation: the run that cordoned the node
RETRY_S = 2.0  # how often the pods are listed, and a refused eviction is requested again
_ATTEMPTS = 20  # to patch a node that others change at the same time

_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"


class Stuck(Exception):
    """The wait ended without the expected result."""


class NodeRow(NamedTuple):
    """The needed fields of a Node object."""

    version: str
    unschedulable: bool
    mark: str | None  # the run that cordoned it
    cordoned: bool  # by us
    has_gpus: bool  # it is ready and has allocatable GPUs


def parse_row(node: Mapping[str, Any]) -> NodeRow:
    metadata, status = node["metadata"], section(node, "status")
    is_ready = any(
        (condition["type"], condition["status"]) == ("Ready", "True")
        for condition in status.get("conditions", ())
    )
    amounts = (
        parse_quantity(amount)
        for resource, amount in section(status, "allocatable").items()
        if gpu_claims.is_gpu(resource)
    )
    unschedulable = bool(section(node, "spec").get("unschedulable"))
    mark = section(metadata, "annotations").get(CORDONED)
    return NodeRow(
        version=metadata.get("resourceVersion", ""),
        unschedulable=unschedulable,
        mark=mark,
        cordoned=unschedulable and mark is not None and _is_ours(metadata),
        has_gpus=is_ready and any(amounts),
    )


def _is_ours(metadata: Mapping[str, Any]) -> bool:
    """Return whether we are the manager of the cordon; another client that cordons replaces us."""
    managers = [
        row.get("manager")
        for row in metadata.get("managedFields", ())
        if "f:unschedulable" in section(row, "fieldsV1", "f:spec")
    ]
    return MANAGER in managers or not managers


class Drain:
    """The nodes and the pods that claim their GPUs."""

    def __init__(self, client: Client, names: Collection[str], timer: Timer, run: str) -> None:
        self._client = client
        self._names = names
        self._timer = timer
        self._run = run
        self.evicted: set[str] = set()  # uids of the pods whose eviction was accepted
        self.nodes = self._read_nodes(names)
        self.claims = self._read_claims(names)

    def _read_nodes(self, names: Collection[str]) -> dict[str, NodeRow]:
        query = only("metadata.name", names)
        return self._client.snapshot("nodes", self._keep_node, query=query, timer=self._timer)

    def _read_claims(self, nodes: Collection[str]) -> dict[str, Claim]:
        """Read the claims from the server's cache, which may be a moment old."""
        keep = gpu_claims.parse_claim
        found = self._client.snapshot_each(
            "pods", keep, "spec.nodeName", nodes, _ALIVE, cached=True, timer=self._timer
        )
        return gpu_claims.holders(found)

    def _read_newest_claims(self) -> dict[str, Claim]:
        """Read the current claims. For several nodes, this lists all pods of the cluster."""

        def keep(pod: dict[str, Any]) -> Claim | None:
            claim = gpu_claims.parse_claim(pod)
            return claim if claim and claim.node in self._names else None

        query = only("spec.nodeName", self._names, _ALIVE)
        found = self._client.snapshot("pods", keep, query=query, timer=self._timer)
        return gpu_claims.holders(found)

    def _keep_node(self, node: dict[str, Any]) -> NodeRow | None:
        return parse_row(node) if node["metadata"]["name"] in self._names else None

    def cordoned(self) -> list[str]:
        return [name for name, row in self.nodes.items() if row.cordoned]

    def cordoned_now(self) -> list[str]:
        """Return the nodes that this run cordoned."""
        return [name for name in self.cordoned() if self.nodes[name].mark == self._run]

    def cordon(self) -> None:
        """Cordon the schedulable nodes."""

        def change(row: NodeRow) -> dict[str, Any] | None:
            if row.unschedulable:
                return None
            note = {"annotations": {CORDONED: self._run}}
            return {"metadata": note, "spec": {"unschedulable": True}}

        for name in list(self.nodes):
            self._change(name, change)

    def uncordon(self, names: Iterable[str]) -> dict[str, str]:
        """Uncordon the nodes that we cordoned; return the errors, keyed by node."""

        def change(row: NodeRow) -> dict[str, Any] | None:
            if row.mark is None:
                return None
            patch: dict[str, Any] = {"metadata": {"annotations": {CORDONED: None}}}
            return {**patch, "spec": {"unschedulable": None}} if row.cordoned else patch

        problems = {}
        for name in names:
            try:
                self._change(name, change)
            except KubeError as error:
                problems[name] = str(error)
        return problems

    def _change(self, name: str, change: Callable[[NodeRow], dict[str, Any] | None]) -> None:
        """Patch a node. If it changed in the meantime, read it and compute the patch again."""
        for attempt in range(_ATTEMPTS):
            patch = change(self.nodes[name]) if name in self.nodes else None
            if patch is None:
                return
            patch["metadata"]["resourceVersion"] = self.nodes[name].version
            try:
                self.nodes[name] = parse_row(
                    self._client.patch("nodes", name, patch, timer=self._timer)
                )
                return
            except ApiMissing:
                del self.nodes[name]
            except ApiConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                del self.nodes[name]
                self.nodes.update(self._read_nodes([name]))

    def evict(self) -> None:
        """Evict every pod that claims GPUs, and wait until all are gone. Raises Stuck."""
        left = self._read_newest_claims()
        while left:
            staying = describe_staying(left.values())
            if staying:
                raise Stuck("\n".join(["Pods with GPUs cannot be evicted:", *staying]))
            refused = {key: self._ask(claim) for key, claim in left.items()}
            if self._timer.remaining_s() <= 0:
                rows = [
                    f"{key} on {claim.node}: {refused[key] or 'evicted, but still running'}"
                    for key, claim in left.items()
                ]
                raise Stuck("\n".join(["Pods with GPUs still run when time is up:", *rows]))
            self._client.pause(min(RETRY_S, self._timer.remaining_s()))
            # An empty list may be outdated, so it is confirmed without the cache.
            holding = {claim.node for claim in left.values()}
            left = self._read_claims(holding) or self._read_newest_claims()

    def _ask(self, claim: Claim) -> str:
        """Evict one pod, unless that was done; return why the server refuses it for now."""
        if claim.uid in self.evicted:
            return ""
        try:
            self._client.evict(claim.name, claim.namespace, claim.uid)
        except ApiMissing:
            return ""
        # A conflict says that the pod is gone, or that its budget has changed: the next look tells.
        except (ApiBudget, ApiBusy, ApiConflict) as error:
            return error.reply
        except ApiUnreachable as error:
            return str(error)
        self.evicted.add(claim.uid)
        return ""

    def wait_for_no_gpus(self, names: Collection[str]) -> None:
        """Wait until none of the nodes has allocatable GPUs. Raises Stuck."""
        query = only("metadata.name", self._names)
        having: list[str] = []
        for _changed in self._client.follow(
            "nodes", self.nodes, self._keep_node, self._timer, query=query
        ):
            having = [name for name in names if name in self.nodes and self.nodes[name].has_gpus]
            if not having:
                return
        raise Stuck(
            f"Nodes still have allocatable GPUs when time is up: {', '.join(having)}. Check that "
            "no device plugin runs there."
        )


def describe_staying(claims: Iterable[Claim]) -> list[str]:
    """Return one line for each pod that must not be evicted, with the reason."""
    return [f"{claim.key} on {claim.node}: {claim.stays}" for claim in claims if claim.stays]
