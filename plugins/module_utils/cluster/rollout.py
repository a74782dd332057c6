# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Does a DaemonSet of the device plugin run on the nodes? Wait until it does.

Source: https://kubernetes.io/docs/tasks/manage-daemon/update-daemon-set/
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import pod_status
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import only
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer

# This label identifies the template of a pod. The generation of the template does not: a rollback
# to an earlier template keeps its pods.
_REVISION = "controller-revision-hash"
_LOOK_S = 2.0


class Pod(NamedTuple):
    """A pod of the DaemonSet. In a large cluster there are thousands."""

    uid: str
    node: str
    revision: str
    is_ready: bool
    restarts: int
    is_backing_off: bool
    has_no_image: bool  # and another attempt would not find it
    name: str
    state: str


class DaemonSet(NamedTuple):
    """What the controller does."""

    is_seen: bool  # the controller has seen the newest change
    slots: int  # how many pods it replaces at a time


def wait(client: Client, asked: Mapping[str, Any], timer: Timer) -> dict[str, Any]:
    """Wait until each node has a running pod, or those of the others fail again and again.

    `asked` is the option of metal.gpu.gpu_cluster_info, which returns the result. Lists, because a
    list is never out of date: an update of thousands of pods has more events than a watch delivers
    in time. Raises KubeError.
    """
    namespace = asked["namespace"]
    query = {"labelSelector": ",".join(asked["selectors"])}
    first: dict[str, Pod] = {}
    failed: set[str] = set()  # uids of pods that do not start
    before: set[Pod] | None = None
    while True:
        started_s = timer.elapsed_s()
        newest, daemonset = None, DaemonSet(is_seen=True, slots=1)
        if asked["revisions"]:
            found = client.snapshot(
                "daemonsets",
                _read,
                namespace=namespace,
                query=only("metadata.name", [asked["name"]]),
            )
            daemonset = found.get(asked["name"], daemonset)
            newest = _newest(client, namespace, query, asked["name"])
        pods = [*client.snapshot("pods", _keep, namespace=namespace, query=query).values()]
        for pod in pods:
            grown = pod.restarts - first.setdefault(pod.uid, pod).restarts
            if pod.has_no_image or grown >= (1 if first[pod.uid].is_backing_off else 2):
                failed.add(pod.uid)
        current = {pod.node: pod for pod in pods if newest in (None, pod.revision)}
        former = {pod.node for pod in pods if pod.node not in current}
        mine = {pod for pod in pods if pod.node in asked["nodes"]}
        waiting = _not_running(pods, asked["nodes"], current, former, is_any=newest is None)
        if not daemonset.is_seen:
            waiting = dict.fromkeys(
                asked["nodes"], "the controller manager does not see the change"
            )
        elif waiting:
            stuck = {pod.node for pod in pods if pod.uid in failed and not pod.is_ready}
            others = waiting.keys() - stuck
            # The controller replaces pods only as long as fewer than so many do not run.
            if not others or (others <= former and len(stuck) >= daemonset.slots):
                break
        # A container that ends at once is ready for a moment.
        elif before is None or before == mine:
            break
        if timer.remaining_s() <= 0:
            break
        before = mine
        # Lists of a large cluster take seconds.
        pause_s = max(_LOOK_S, timer.elapsed_s() - started_s)
        client.pause(min(pause_s, timer.remaining_s()))
    return {
        "not_running": waiting,
        "without_image": {
            pod.node: {"pod": pod.name, "error": pod.state}
            for pod in pods
            if pod.uid in failed and pod.has_no_image
        },
        "has_former": newest is not None and any(pod.revision != newest for pod in pods),
        "seconds": round(timer.elapsed_s()),
    }


def _newest(client: Client, namespace: str, query: dict[str, str], name: str) -> str:
    """Return the newest revision. All DaemonSets of NVIDIA's chart have the same selector."""

    def keep(item: dict[str, Any]) -> tuple[int, str] | None:
        owners = {one.get("name") for one in item["metadata"].get("ownerReferences", ())}
        labels = section(item, "metadata", "labels")
        return (item["revision"], labels[_REVISION]) if owners == {name} else None

    found = client.snapshot("controllerrevisions", keep, namespace=namespace, query=query)
    return max(found.values(), default=(0, ""))[1]


def _read(item: dict[str, Any]) -> DaemonSet:
    status = section(item, "status")
    is_seen = (status.get("observedGeneration") or 0) >= item["metadata"].get("generation", 0)
    update = section(item, "spec", "updateStrategy", "rollingUpdate")
    limit = str(update.get("maxUnavailable", 1))
    slots = int(limit) if limit.isdigit() else _share(limit, status)
    return DaemonSet(is_seen, max(slots, 1))


def _share(percent: str, status: Mapping[str, Any]) -> int:
    wanted = int(status.get("desiredNumberScheduled") or 0)
    return math.ceil(int(percent.rstrip("%")) * wanted / 100)


def _keep(pod: dict[str, Any]) -> Pod | None:
    """Leave out pods that end, and those that cannot register devices, which share the selector."""
    if pod["metadata"].get("deletionTimestamp") or not pod_status.is_device_plugin(pod):
        return None
    state = pod_status.waiting(pod)
    return Pod(
        uid=pod["metadata"].get("uid", pod["metadata"]["name"]),
        node=pod_status.target_node(pod),
        revision=section(pod, "metadata", "labels").get(_REVISION, ""),
        is_ready=pod_status.is_true(section(pod, "status"), "Ready"),
        restarts=sum(one.get("restartCount") or 0 for one in pod_status.statuses(pod)),
        is_backing_off=state.get("reason") == "CrashLoopBackOff",
        has_no_image=pod_status.has_no_image(state),
        name=pod["metadata"]["name"],
        state=pod_status.describe(pod),
    )


def _not_running(
    pods: Iterable[Pod],
    nodes: Iterable[str],
    current: Mapping[str, Pod],
    former: Collection[str],
    *,
    is_any: bool,
) -> dict[str, str]:
    """Return, for each of these nodes without a running pod, the reason.

    With `is_any`, a pod of any revision counts. Other nodes do not count: one that is switched off
    would never end the wait. But the controller may wait for it, so it is named.
    """
    blockers = sorted({pod.node for pod in pods if not pod.is_ready})
    waiting = {}
    for node in nodes:
        if node in current:
            if not current[node].is_ready:
                waiting[node] = f"{current[node].name} is {current[node].state}"
        elif is_any:
            waiting[node] = "the node has no pod"
        else:
            waiting[node] = "the node has no pod of this version"
            if node in former and blockers:
                waiting[node] += f"; the update may wait for {', '.join(blockers[:3])}"
    return waiting
