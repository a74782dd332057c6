# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the plugin run on the nodes? No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.metal.gpu.plugins.module_utils.cluster import pod_status
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Member,
    Object,
    Row,
)

# This label identifies the template of a pod. The generation of the template does not: a rollback
# to an earlier template keeps its pods.
_REVISION = "controller-revision-hash"


def missing(members: Iterable[Member], rows: Mapping[str, Row]) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host whose node has not joined the cluster."""
    return {
        one["host"]: [finding("NODE_NOT_IN_CLUSTER", one["host"], node=one["node"])]
        for one in members
        if one["node"] in rows and rows[one["node"]]["state"] == "missing"
    }


def rollout(
    pods: Sequence[Object],
    nodes: Iterable[str],
    revisions: Sequence[Object] | None = None,
) -> dict[str, str]:
    """Return, for each node without a running pod of the DaemonSet, the reason.

    `pods` and `revisions` (ControllerRevisions) are those of the DaemonSet. Without revisions, a
    pod of any revision counts. Only the named nodes count: a node that is switched off would block
    the rollout. Pods that cannot register devices do not count: all DaemonSets of NVIDIA's chart
    have the same selector.
    """
    current = None
    if revisions:
        newest = max(revisions, key=lambda revision: revision["revision"])
        current = newest["metadata"]["labels"][_REVISION]
    found = {
        pod_status.target_node(pod): pod
        for pod in sorted(pods, key=_is_ready)  # of two on one node, one is terminating
        if pod_status.is_device_plugin(pod)
        and (revisions is None or pod["metadata"]["labels"].get(_REVISION) == current)
    }
    waiting = {}
    for node in nodes:
        pod = found.get(node)
        if pod is None:
            waiting[node] = "the node has no pod" + (
                "" if revisions is None else " of this version yet"
            )
        elif not _is_ready(pod):
            waiting[node] = f"{pod['metadata']['name']} is {pod_status.describe(pod)}"
    return waiting


def _is_ready(pod: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod.get("status", {}).get("conditions", ())
    )


def not_running(
    members: Iterable[Member], waiting: Mapping[str, str], seconds: int
) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host on whose node the plugin does not run; see `rollout`."""
    return {
        one["host"]: [
            finding("ROLLOUT_STUCK", one["host"], found=waiting[one["node"]], seconds=seconds)
        ]
        for one in members
        if one["node"] in waiting
    }
