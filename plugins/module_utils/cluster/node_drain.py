# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Cordon nodes, evict pods there, and uncordon the nodes again.

All methods of `Drain` talk to the API server, except `cordoned` and `cordoned_now`. The order
matters: cordon, list, judge, evict. The list contains every pod that arrived before the cordon.
Pods that arrive later, as those of DaemonSets do, are judged like the others.

An admin or another run may cordon the same node. We uncordon a node only if it has our annotation
and `managedFields` names us as the manager of `spec.unschedulable`. The annotation is the memory of
the cordon: which run, and how many allocatable GPUs the node had.

Source: https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import gpu_claims, pod_status
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

CORDONED = "metal.gpu/cordoned"  # annotation: the Mark
GPUS, OTHERS = "gpus", "others"  # which pods are evicted
GONE, BACK, ANY = "gone", "back", "any"  # which GPUs a node must have to be uncordoned
RETRY_S = 2.0  # how often the pods are listed, and a refused eviction is requested again
_ATTEMPTS = 20  # to patch a node that others change at the same time

_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"


class Stuck(Exception):
    """The wait ended without the expected result."""


class Mark(NamedTuple):
    """What our annotation says about a cordon."""

    run: str
    gpus: int = 0  # allocatable ones at that time

    def __str__(self) -> str:
        return f"{self.run} {self.gpus}"


class NodeRow(NamedTuple):
    """The needed fields of a Node object."""

    version: str
    unschedulable: bool
    mark: Mark | None
    cordoned: bool  # by us
    ready: bool
    gpus: int  # allocatable ones
    boot_id: str  # of the boot that the kubelet has reported

    @property
    def has_gpus(self) -> bool:
        return self.ready and self.gpus > 0

    def is_back(self, boot_id: str) -> bool:
        """Tell whether a node that was cordoned has all its GPUs again, since this boot.

        A node that had none is not waited for: nobody knows whether it shall get some.
        """
        wanted = self.mark.gpus if self.mark else 0
        return not wanted or (self.ready and self.is_of(boot_id) and self.gpus >= wanted)

    def is_of(self, boot_id: str) -> bool:
        return not boot_id or self.boot_id == boot_id


def parse_row(node: Mapping[str, Any]) -> NodeRow:
    metadata, status = node["metadata"], section(node, "status")
    amounts = (
        parse_quantity(amount)
        for resource, amount in section(status, "allocatable").items()
        if gpu_claims.is_gpu(resource)
    )
    unschedulable = bool(section(node, "spec").get("unschedulable"))
    mark = _parse_mark(metadata)
    return NodeRow(
        version=metadata.get("resourceVersion", ""),
        unschedulable=unschedulable,
        mark=mark,
        cordoned=unschedulable and mark is not None and _is_ours(metadata),
        ready=pod_status.is_true(status, "Ready"),
        gpus=int(sum(amounts)),
        boot_id=str(section(status, "nodeInfo").get("bootID") or ""),
    )


def describe_cordon(node: Mapping[str, Any]) -> str:
    """Return who has cordoned a node, and since when; empty if nobody has."""
    if not section(node, "spec").get("unschedulable"):
        return ""
    by = [
        f"by {'this collection' if manager == MANAGER else manager}, since {since}"
        for manager, since in _cordoners(node["metadata"])
    ]
    return ", ".join(by) or "by somebody"


def _parse_mark(metadata: Mapping[str, Any]) -> Mark | None:
    text = section(metadata, "annotations").get(CORDONED)
    run, _space, gpus = (text or "").partition(" ")
    return None if text is None else Mark(run, int(gpus) if gpus.isdigit() else 0)


def _is_ours(metadata: Mapping[str, Any]) -> bool:
    """Return whether we are the manager of the cordon; another client that cordons replaces us."""
    managers = [manager for manager, _since in _cordoners(metadata)]
    return MANAGER in managers or not managers


def _cordoners(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the managers of the cordon, and when each changed the node last."""
    return [
        (str(row.get("manager")), str(row.get("time") or "an unknown time"))
        for row in metadata.get("managedFields", ())
        if "f:unschedulable" in section(row, "fieldsV1", "f:spec")
    ]


class Drain:
    """The nodes, and the pods that claim their GPUs or, with OTHERS, must leave for a reboot."""

    def __init__(
        self,
        client: Client,
        names: Collection[str],
        timer: Timer,
        run: str,
        pods: str = GPUS,
        may_lose: Collection[str] = (),
    ) -> None:
        self._client = client
        self._names = names
        self._timer = timer
        self._run = run
        self._parse = gpu_claims.parse_claim if pods == GPUS else gpu_claims.parse_pod
        self._choose: Callable[[Mapping[str, Claim]], dict[str, Claim]] = gpu_claims.holders
        if pods == OTHERS:
            self._choose = lambda found: gpu_claims.others(found, may_lose)
        self.evicted: set[str] = set()  # uids of the pods whose eviction was accepted
        self.nodes = self._read_nodes(names)
        self.claims: dict[str, Claim] = {}

    def look(self) -> None:
        """Read which pods are on the nodes."""
        self.claims = self._read_claims(self._names)

    def _read_nodes(self, names: Collection[str]) -> dict[str, NodeRow]:
        query = only("metadata.name", names)
        return self._client.snapshot("nodes", self._keep_node, query=query, timer=self._timer)

    def _read_claims(self, nodes: Collection[str]) -> dict[str, Claim]:
        """Read the claims from the server's cache, which may be a moment old."""
        found = self._client.snapshot_each(
            "pods", self._parse, "spec.nodeName", nodes, _ALIVE, cached=True, timer=self._timer
        )
        return self._choose(found)

    def _read_newest_claims(self) -> dict[str, Claim]:
        """Read the current claims. For several nodes, this lists all pods of the cluster."""

        def keep(pod: dict[str, Any]) -> Claim | None:
            claim = self._parse(pod)
            return claim if claim and claim.node in self._names else None

        query = only("spec.nodeName", self._names, _ALIVE)
        found = self._client.snapshot("pods", keep, query=query, timer=self._timer)
        return self._choose(found)

    def _keep_node(self, node: dict[str, Any]) -> NodeRow | None:
        return parse_row(node) if node["metadata"]["name"] in self._names else None

    def cordoned(self) -> list[str]:
        return [name for name, row in self.nodes.items() if row.cordoned]

    def cordoned_now(self) -> list[str]:
        """Return the nodes that this run cordoned."""
        return [
            name
            for name in self.cordoned()
            if (mark := self.nodes[name].mark) and mark.run == self._run
        ]

    def cordon(self) -> None:
        """Cordon the schedulable nodes."""

        def change(row: NodeRow) -> dict[str, Any] | None:
            if row.unschedulable:
                return None
            note = {"annotations": {CORDONED: str(Mark(self._run, row.gpus))}}
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
        """Evict every pod, and wait until all are gone. Raises Stuck."""
        left = self._read_newest_claims()
        while left:
            staying = describe_staying(left.values())
            if staying:
                raise Stuck("\n".join(["Pods cannot be evicted:", *staying]))
            refused = {key: self._ask(claim) for key, claim in left.items()}
            if self._timer.remaining_s() <= 0:
                rows = [
                    f"{key} on {claim.node}: {refused[key] or 'evicted, but still running'}"
                    for key, claim in left.items()
                ]
                raise Stuck("\n".join(["Pods still run when time is up:", *rows]))
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

    def wait_for_gpus(self, names: Collection[str], until: str, boot_id: str) -> None:
        """Wait until all allocatable GPUs of the nodes are GONE, or BACK. Raises Stuck."""
        query = only("metadata.name", self._names)
        rows: dict[str, NodeRow] = {}
        for _changed in self._client.follow(
            "nodes", self.nodes, self._keep_node, self._timer, query=query
        ):
            rows = {name: self.nodes[name] for name in names if name in self.nodes}
            rows = {
                name: row
                for name, row in rows.items()
                if (row.has_gpus if until == GONE else not row.is_back(boot_id))
            }
            if not rows:
                return
        if until == GONE:
            raise Stuck(
                f"Nodes still have allocatable GPUs when time is up: {', '.join(rows)}. Check that "
                "no device plugin runs there."
            )
        lacking = (
            f"{name} ({row.gpus} of {row.mark.gpus if row.mark else 0}"
            f"{'' if row.ready else ', not ready'}"
            f"{'' if row.is_of(boot_id) else ', reported before the boot'})"
            for name, row in rows.items()
        )
        raise Stuck(
            "Nodes do not have the allocatable GPUs that they had before, when time is up: "
            f"{', '.join(lacking)}. Look at the device plugin there."
        )


def describe_staying(claims: Iterable[Claim]) -> list[str]:
    """Return one line for each pod that must not be evicted, with the reason."""
    return [f"{claim.key} on {claim.node}: {claim.stays}" for claim in claims if claim.stays]
