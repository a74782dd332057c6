# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Cordon nodes, evict the pods that hold GPUs there, and uncordon the nodes again.

All methods of `Drain` but `cordoned` talk to the API server. The order matters: cordon, then list,
then judge, then evict. A pod that arrives before the cordon is on the list; one that arrives after
it, as those of DaemonSets do, is judged like the others.

Two others may cordon the same node: an admin, and another run. A node is ours to uncordon only if
it has our annotation and if the API server has us noted as the manager of `spec.unschedulable`.

Source: https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils import gpu_claims, kube
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.module_utils.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.gpu_claims import Claim

CORDONED = "metal.gpu/cordoned"  # annotation: the run that has cordoned the node
RETRY_S = 2.0  # how often the pods are looked at, and a budget is asked again
_ATTEMPTS = 20  # at a node that others change at the same time

_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"


class Stuck(Exception):
    """What was waited for did not come."""


class NodeRow(NamedTuple):
    """What matters of a Node object."""

    version: str
    unschedulable: bool
    mark: str | None  # of the run that has cordoned it
    cordoned: bool  # by us
    has_gpus: bool  # to hand out


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
    """Tell whether nobody else has cordoned the node since, who would be noted for it."""
    managers = [
        row.get("manager")
        for row in metadata.get("managedFields", ())
        if "f:unschedulable" in section(row, "fieldsV1", "f:spec")
    ]
    return kube.MANAGER in managers or not managers


class Drain:
    """The nodes and the pods that hold their GPUs, as the API server has them."""

    def __init__(
        self, client: kube.Client, names: Collection[str], timer: kube.Timer, run: str
    ) -> None:
        self._client = client
        self._names = names
        self._timer = timer
        self._run = run
        self.asked: set[str] = set()  # uids of the pods that were evicted
        self.nodes = self._read_nodes(names)
        self.claims = self._read_claims(names)

    def _read_nodes(self, names: Collection[str]) -> dict[str, NodeRow]:
        query = kube.only("metadata.name", names)
        return self._client.snapshot("nodes", self._keep_node, query=query, timer=self._timer)

    def _read_claims(self, nodes: Collection[str]) -> dict[str, Claim]:
        """Read who holds GPUs, as the server's cache has it: it may be a moment old."""
        keep = gpu_claims.parse_claim
        found = self._client.snapshot_each(
            "pods", keep, "spec.nodeName", nodes, _ALIVE, cached=True, timer=self._timer
        )
        return gpu_claims.holders(found)

    def _read_newest_claims(self) -> dict[str, Claim]:
        """Read who holds GPUs now. For several nodes that is a list of all pods there are."""

        def keep(pod: dict[str, Any]) -> Claim | None:
            claim = gpu_claims.parse_claim(pod)
            return claim if claim and claim.node in self._names else None

        query = kube.only("spec.nodeName", self._names, _ALIVE)
        found = self._client.snapshot("pods", keep, query=query, timer=self._timer)
        return gpu_claims.holders(found)

    def _keep_node(self, node: dict[str, Any]) -> NodeRow | None:
        return parse_row(node) if node["metadata"]["name"] in self._names else None

    def cordoned(self) -> list[str]:
        return [name for name, row in self.nodes.items() if row.cordoned]

    def cordoned_now(self) -> list[str]:
        """Return the nodes that this run has cordoned."""
        return [name for name in self.cordoned() if self.nodes[name].mark == self._run]

    def cordon(self) -> None:
        """Cordon the nodes that are open."""

        def change(row: NodeRow) -> dict[str, Any] | None:
            if row.unschedulable:
                return None
            note = {"annotations": {CORDONED: self._run}}
            return {"metadata": note, "spec": {"unschedulable": True}}

        for name in list(self.nodes):
            self._change(name, change)

    def uncordon(self, names: Iterable[str]) -> dict[str, str]:
        """Uncordon nodes as far as they are ours; return why one is not, by name."""

        def change(row: NodeRow) -> dict[str, Any] | None:
            if row.mark is None:
                return None
            patch: dict[str, Any] = {"metadata": {"annotations": {CORDONED: None}}}
            return {**patch, "spec": {"unschedulable": None}} if row.cordoned else patch

        problems = {}
        for name in names:
            try:
                self._change(name, change)
            except kube.KubeError as error:
                problems[name] = str(error)
        return problems

    def _change(self, name: str, change: Callable[[NodeRow], dict[str, Any] | None]) -> None:
        """Patch a node, as long as it is what the change was made for."""
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
            except kube.ApiMissing:
                del self.nodes[name]
            except kube.ApiConflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                del self.nodes[name]
                self.nodes.update(self._read_nodes([name]))

    def evict(self) -> None:
        """Evict every pod that holds GPUs, and wait until all are gone. Raises Stuck."""
        left = self._read_newest_claims()
        while left:
            staying = describe_staying(left.values())
            if staying:
                raise Stuck("\n".join(["Pods with GPUs cannot be evicted:", *staying]))
            refused = {key: self._ask(claim) for key, claim in left.items()}
            if self._timer.remaining_s() <= 0:
                rows = [
                    f"{key} on {claim.node}: {refused[key] or 'has not ended yet'}"
                    for key, claim in left.items()
                ]
                raise Stuck("\n".join(["Pods still hold GPUs:", *rows]))
            self._client.pause(min(RETRY_S, self._timer.remaining_s()))
            # What looks empty is looked at once more, past the cache.
            holding = {claim.node for claim in left.values()}
            left = self._read_claims(holding) or self._read_newest_claims()

    def _ask(self, claim: Claim) -> str:
        """Evict one pod, if that was not done; return why it may not go yet."""
        if claim.uid in self.asked:
            return ""
        try:
            self._client.evict(claim.name, claim.namespace)
        except kube.ApiMissing:
            return ""
        except (kube.ApiBudget, kube.ApiBusy, kube.ApiConflict) as error:
            return error.found
        except kube.ApiUnreachable as error:
            return str(error)
        self.asked.add(claim.uid)
        return ""

    def wait_for_no_gpus(self, names: Collection[str]) -> None:
        """Wait until none of the nodes has GPUs to hand out. Raises Stuck."""
        query = kube.only("metadata.name", self._names)
        having: list[str] = []
        for _changed in self._client.follow(
            "nodes", self.nodes, self._keep_node, self._timer, query=query
        ):
            having = [name for name in names if name in self.nodes and self.nodes[name].has_gpus]
            if not having:
                return
        raise Stuck(f"The cluster still hands out GPUs of {', '.join(having)}.")


def describe_staying(claims: Iterable[Claim]) -> list[str]:
    """Return why pods must not be evicted, a line for each of those."""
    return [f"{claim.key} on {claim.node}: {claim.stays}" for claim in claims if claim.stays]
