# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does a DaemonSet of the device plugin run on the nodes? Wait until it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import pod_status
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import only
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client

# This label identifies the template of a pod. The generation of the template does not: a rollback
# to an earlier template keeps its pods.
_REVISION = "controller-revision-hash"
_NO_POD = "the node has no pod"


def wait(client: Client, asked: Mapping[str, Any]) -> dict[str, str]:
    """Return why the DaemonSet does not run on nodes, when nobody has to wait any longer.

    `asked` is the option of metal.gpu.gpu_cluster_info. Raises KubeError.
    """
    timer, namespace = Timer(asked["wait_timeout"]), asked["namespace"]
    query = {"labelSelector": ",".join(asked["selectors"])}
    revisions = None
    if asked["revisions"]:
        # Until the controller has seen a change, the newest revision is the former one.
        seen: dict[str, bool] = {}
        name = only("metadata.name", [asked["name"]])
        for _changed in client.follow(
            "daemonsets", seen, _is_seen, timer, namespace=namespace, query=name
        ):
            if all(seen.values()):
                break
        if not all(seen.values()):
            return dict.fromkeys(asked["nodes"], "the controller manager does not see the change")
        revisions = client.snapshot("controllerrevisions", dict, namespace=namespace, query=query)
    pods: dict[str, dict[str, Any]] = {}
    waiting: dict[str, str] = {}
    for _changed in client.follow("pods", pods, dict, timer, namespace=namespace, query=query):
        found = current(pods.values(), None if revisions is None else revisions.values())
        waiting = not_running(found, asked["nodes"], is_any=revisions is None)
        # Pods that do not start keep the controller from updating other nodes.
        with_pod = [node for node in waiting if node in found]
        if not waiting or (with_pod and all(pod_status.is_stuck(found[one]) for one in with_pod)):
            break
    return waiting


def _is_seen(daemonset: dict[str, Any]) -> bool:
    seen = section(daemonset, "status").get("observedGeneration") or 0
    return bool(seen >= daemonset["metadata"].get("generation", 0))


def current(
    pods: Iterable[dict[str, Any]], revisions: Iterable[Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the pod of each node, in the newest revision, or without revisions in any.

    Pods that cannot register devices do not count: all DaemonSets of NVIDIA's chart have the same
    selector.
    """
    newest = None
    if revisions:
        newest = max(revisions, key=lambda one: one["revision"])["metadata"]["labels"][_REVISION]
    return {
        pod_status.target_node(pod): pod
        for pod in sorted(pods, key=_is_ready)  # of two on one node, one is terminating
        if pod_status.is_device_plugin(pod)
        and (revisions is None or pod["metadata"]["labels"].get(_REVISION) == newest)
    }


def not_running(
    pods: Mapping[str, dict[str, Any]], nodes: Iterable[str], *, is_any: bool = True
) -> dict[str, str]:
    """Return, for each of these nodes without a running pod, the reason.

    Other nodes do not count: one that is switched off would block the rollout.
    """
    waiting = {}
    for node in nodes:
        if node not in pods:
            waiting[node] = _NO_POD if is_any else f"{_NO_POD} of this version yet"
        elif not _is_ready(pods[node]):
            waiting[node] = f"{pods[node]['metadata']['name']} is {pod_status.describe(pods[node])}"
    return waiting


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in section(pod, "status").get("conditions", ())
    )
