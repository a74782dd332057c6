# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""May this cluster get the device plugin from us, and has it got it?

What there is to do is worked out by the API server, which the objects are applied to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils import pod_status
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

_PROGRAM = "k8s-device-plugin"
# Tells which template a pod was made from. The generation of the template does not: going back to
# an earlier template keeps the pods that have it.
_REVISION = "controller-revision-hash"
CLUSTER = "cluster"  # whom the refusal is about


def plan(daemonsets: Sequence[Mapping[str, Any]], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the DaemonSets of a cluster. Wishes: state, name and namespace of ours."""
    made = Plan(CLUSTER)
    if wishes["state"] == "absent":
        return made.result()
    ours = f"{wishes['namespace']}/{wishes['name']}"
    for daemonset in daemonsets:
        name = "{namespace}/{name}".format_map(daemonset["metadata"])
        if name != ours and _is_device_plugin(daemonset):
            made.refuse("DEVICE_PLUGIN_FOREIGN", found=name)
    return made.result()


def rollout(
    pods: Sequence[Mapping[str, Any]],
    nodes: Iterable[str],
    revisions: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Return what the rollout still waits for, one line for each of the nodes that wait.

    `pods` and `revisions` (ControllerRevisions) are those of the DaemonSet. Nodes that are not
    named do not count: one that is switched off would hold everybody up.
    """
    newest = max(revisions, key=lambda revision: revision["revision"], default=None)
    current = newest["metadata"]["labels"][_REVISION] if newest else None
    found = {_node(pod): pod for pod in pods if pod["metadata"]["labels"].get(_REVISION) == current}
    lines = []
    for node in nodes:
        pod = found.get(node)
        if pod is None:
            lines.append(f"{node}: no pod of this version yet")
        elif not _is_ready(pod):
            lines.append(f"{node}: {pod['metadata']['name']} is {pod_status.describe(pod)}")
    return lines


def _node(pod: Mapping[str, Any]) -> str:
    """Return the node that a pod of a DaemonSet is meant for, also before it is scheduled."""
    bound: str | None = pod["spec"].get("nodeName")
    if bound:
        return bound
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    name: str = terms[0]["matchFields"][0]["values"][0]
    return name


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod.get("status", {}).get("conditions", ())
    )


def _is_device_plugin(daemonset: Mapping[str, Any]) -> bool:
    """Whether a container has NVIDIA's image, from whatever registry.

    The image has feature discovery in it, too, which is started by a command of its own.
    """
    return any(
        container["image"].partition("@")[0].rpartition("/")[2].partition(":")[0] == _PROGRAM
        and "gpu-feature-discovery" not in " ".join(container.get("command") or ())
        for container in daemonset["spec"]["template"]["spec"]["containers"]
    )
