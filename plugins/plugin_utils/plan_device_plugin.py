# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""May this cluster get the device plugin from us, which one, and has it got it?

What there is to do is worked out by the API server, which the objects are applied to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils import pod_status
from ansible_collections.metal.gpu.plugins.module_utils.smoke_pod import MANAGED_BY, OWNER
from ansible_collections.metal.gpu.plugins.plugin_utils import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.forbidden import explain_error
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

_PROGRAM = "k8s-device-plugin"
# Tells which template a pod was made from. The generation of the template does not: going back to
# an earlier template keeps the pods that have it.
_REVISION = "controller-revision-hash"
CLUSTER = "cluster"  # whom the refusal is about

REFUSE = "refuse"  # what to do about a plugin of somebody else's
AUTO = "auto"
# cri-dockerd 0.4.3 knows no RuntimeClass but its own, and passes no CDI devices on: it is up to
# Docker's default runtime. With that one under containerd, too, one DaemonSet serves both.
_STRATEGIES = {engines.CONTAINERD: "cdi-cri", engines.DOCKER: "envvar"}


def members(hosts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return node name and engine of each inventory host, from its variables.

    Hosts that nobody has observed are left out.
    """
    return [
        {
            "host": host,
            "node": variables["metal_gpu_node"]["kubelet"]["node_name"],
            "engine": engines.choose(
                variables["metal_gpu_node"], variables.get("metal_gpu_engine", engines.AUTO)
            ),
        }
        for host, variables in hosts.items()
        if variables.get("metal_gpu_node")
    ]


def plan(daemonsets: Sequence[Mapping[str, Any]], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the DaemonSets of a cluster, and choose how GPUs get into containers.

    Wishes: state, name and namespace of ours, foreign (refuse or adopt), strategy, runtime_class
    (empty for none), the members, and the error where the DaemonSets could not be listed.
    """
    made = Plan(CLUSTER)
    made.data["adopted"] = None
    if wishes["state"] == "absent":
        return made.result()
    if wishes["error"]:
        made.refusals.append(explain_error(wishes["error"], CLUSTER, "CLUSTER_UNUSABLE"))
    ours, others = None, []
    for daemonset in daemonsets:
        metadata = daemonset["metadata"]
        has_name = (metadata["namespace"], metadata["name"]) == (
            wishes["namespace"],
            wishes["name"],
        )
        # A Helm release may well have the name.
        if has_name and metadata.get("labels", {}).get(MANAGED_BY) == OWNER:
            ours = daemonset
        elif has_name or _is_device_plugin(daemonset):
            others.append(daemonset)
    if others and wishes["foreign"] == REFUSE:
        for daemonset in others:
            made.refuse("DEVICE_PLUGIN_FOREIGN", found=_name(daemonset))
    elif others and (ours or len(others) > 1):
        found = [_name(daemonset) for daemonset in ([ours] if ours else []) + others]
        made.refuse("DEVICE_PLUGIN_TWICE", found=" and as ".join(found))
    elif others:
        made.notice("DEVICE_PLUGIN_ADOPTED", found=_name(others[0]))
        made.data["adopted"] = {
            **{key: others[0]["metadata"][key] for key in ("name", "namespace")},
            "selector": dict(others[0]["spec"]["selector"]["matchLabels"]),
        }
    else:
        _choose(made, ours, wishes)
    return made.result()


def _choose(made: Plan, ours: Mapping[str, Any] | None, wishes: Mapping[str, Any]) -> None:
    """Choose the strategy, and whether the plugin itself needs the RuntimeClass."""
    hosts: dict[str, list[str]] = {}
    for member in wishes["members"]:
        if member["engine"]:
            hosts.setdefault(member["engine"], []).append(member["host"])
    strategy, runtime_class = wishes["strategy"], wishes["runtime_class"]
    if engines.DOCKER in hosts:
        if "cdi" in strategy:
            made.refuse(
                "DEVICE_PLUGIN_STRATEGY", strategy=strategy, found=", ".join(hosts[engines.DOCKER])
            )
        elif len(hosts) > 1 and (strategy == AUTO or runtime_class):
            found = (f"{engine} is used by {', '.join(names)}" for engine, names in hosts.items())
            made.refuse("DEVICE_PLUGIN_MIXED", evidence=", ".join(found))
        runtime_class = ""
    if strategy == AUTO:
        strategy = _STRATEGIES[next(iter(hosts), engines.CONTAINERD)]
        runs, nodes = _strategy(ours), (ours or {}).get("status", {}).get("desiredNumberScheduled")
        if runs and runs != strategy and nodes > len(wishes["members"]):
            made.refuse(
                "DEVICE_PLUGIN_MIXED",
                evidence=f"it hands GPUs out by {runs} on {nodes} nodes, and the "
                f"{len(wishes['members'])} of this run need {strategy}",
            )
    made.data |= {"strategy": strategy, "runtime_class": runtime_class}


def _name(daemonset: Mapping[str, Any]) -> str:
    return "{namespace}/{name}".format_map(daemonset["metadata"])


def _strategy(daemonset: Mapping[str, Any] | None) -> str | None:
    """Return the strategy that a DaemonSet of ours runs with."""
    if daemonset is None:
        return None
    named = {
        variable["name"]: variable.get("value")
        for container in daemonset["spec"]["template"]["spec"]["containers"]
        for variable in container.get("env", ())
    }
    return named.get("DEVICE_LIST_STRATEGY")


def labelling(
    nodes: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the patches for those nodes of the cluster that lack one of the labels."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": dict(labels),
                "annotations": {"metal-gpu-labelled": "true"},
            },
        }
        for name, node in nodes.items()
        if node["state"] != "missing"
        and any(node["labels"].get(label) != value for label, value in labels.items())
    ]


def rollout(
    pods: Sequence[Mapping[str, Any]],
    nodes: Iterable[str],
    revisions: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, str]:
    """Return why the DaemonSet does not run yet on those of the nodes where it does not.

    `pods` and `revisions` (ControllerRevisions) are those of the DaemonSet; without revisions, pods
    of any will do. Nodes that are not named do not count: one that is switched off would hold
    everybody up.
    """
    current = None
    if revisions:
        newest = max(revisions, key=lambda revision: revision["revision"])
        current = newest["metadata"]["labels"][_REVISION]
    found = {
        pod_status.target_node(pod): pod
        for pod in sorted(pods, key=_is_ready)  # of two on one node, one is on its way out
        if revisions is None or pod["metadata"]["labels"].get(_REVISION) == current
    }
    waiting = {}
    for node in nodes:
        pod = found.get(node)
        if pod is None:
            waiting[node] = "it has no pod" + ("" if revisions is None else " of this version yet")
        elif not _is_ready(pod):
            waiting[node] = f"{pod['metadata']['name']} is {pod_status.describe(pod)}"
    return waiting


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
