# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""May this role deploy the device plugin in this cluster, how, and does it run?

The objects are applied, so the API server works out the changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import pod_status
from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import explain_error
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import selector_text
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import MANAGED_BY, MANAGER
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, PlanResult

_PROGRAM = "k8s-device-plugin"
# This label identifies the template of a pod. The generation of the template does not: a rollback
# to an earlier template keeps its pods.
_REVISION = "controller-revision-hash"
CLUSTER = "cluster"  # the host of the refusals

# Objects that this role creates have both labels. Others are the admin's, whatever their name.
_NAME = "app.kubernetes.io/name"
_MARKS = {_NAME: "nvidia-device-plugin", MANAGED_BY: MANAGER}
HANDLER = "nvidia"  # the name of the runtime in the container engines
LABELLED = "metal.gpu/labelled"  # annotation of a node: the labels that this role added

REFUSE = "refuse"  # what to do about a plugin that this role did not deploy
AUTO = "auto"
# cri-dockerd 0.4.3 supports no RuntimeClass but its own and passes no CDI devices on, so Docker's
# default runtime must provide the GPUs. One DaemonSet serves both engines if containerd also has
# the NVIDIA runtime as its default.
_STRATEGIES = {engines.CONTAINERD: "cdi-cri", engines.DOCKER: "envvar"}


def missing(
    members: Iterable[Mapping[str, Any]], rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host whose node has not joined the cluster."""
    return {
        one["host"]: [finding("NODE_NOT_IN_CLUSTER", one["host"], node=one["node"])]
        for one in members
        if rows.get(one["node"], {}).get("state") == "missing"
    }


def not_running(
    members: Iterable[Mapping[str, Any]], waiting: Mapping[str, str], seconds: int
) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host on whose node the plugin does not run; see `rollout`."""
    return {
        host: [finding("ROLLOUT_STUCK", host, found=waiting[one["node"]], seconds=seconds)]
        for one in members
        for host in [one["host"]]
        if one["node"] in waiting
    }


def keeping(
    members: Iterable[Mapping[str, Any]], labels: Mapping[str, Sequence[str]], label: str
) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host whose node keeps the plugin; see `unlabelling`."""
    others = ", ".join(labels["left"])
    return {
        host: [finding("LABEL_OF_ADMIN", host, label=label, others=others)]
        for one in members
        for host in [one["host"]]
        if one["node"] in labels["kept"]
    }


def plan(daemonsets: Sequence[Mapping[str, Any]], desired: Desired) -> PlanResult:
    """Judge the DaemonSets of a cluster, and choose how GPUs get into containers."""
    plan = Plan[Data](CLUSTER, {})
    plan.data["adopted"] = None
    if desired["state"] == "absent":
        return plan.result()
    for error in desired["errors"]:
        plan.refusals.append(explain_error(error, CLUSTER, "CLUSTER_UNUSABLE"))
    ours, others = None, []
    taken = ""  # another DaemonSet has the name
    for daemonset in daemonsets:
        metadata = daemonset["metadata"]
        has_name = (metadata["namespace"], metadata["name"]) == (
            desired["namespace"],
            desired["name"],
        )
        # A Helm release can have the same name.
        if has_name and _is_ours(daemonset):
            ours = daemonset
        elif _is_device_plugin(daemonset):
            others.append(daemonset)
        elif has_name:
            taken = _name(daemonset)
    if not others or desired["foreign"] == REFUSE:
        for daemonset in others:
            plan.refuse("DEVICE_PLUGIN_FOREIGN", found=_name(daemonset))
        if taken:
            plan.refuse("DEVICE_PLUGIN_NAME_TAKEN", found=taken)
        _choose(plan, ours, desired)
        _refuse_labels(plan, desired)
    elif ours or len(others) > 1:
        found = [_name(daemonset) for daemonset in ([ours] if ours else []) + others]
        plan.refuse("DEVICE_PLUGIN_TWICE", found=" and as ".join(found))
    else:
        plan.notice("DEVICE_PLUGIN_ADOPTED", found=_name(others[0]))
        metadata = others[0]["metadata"]
        plan.data["adopted"] = {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "selectors": [selector_text(others[0]["spec"]["selector"])],
        }
    return plan.result()


def _is_ours(found: Mapping[str, Any]) -> bool:
    """Tell whether this role created an object."""
    labels = section(found, "metadata", "labels")
    return all(labels.get(key) == value for key, value in _MARKS.items())


def _choose_runtime_class(plan: Plan[Data], name: str, desired: Desired) -> None:
    """Choose whether the RuntimeClass is created, used as it is, or refused.

    A handler is immutable, and pods of the admin may need it.
    """
    found = next(
        (one for one in desired["runtime_classes"] if one["metadata"]["name"] == name), None
    )
    plan.data |= {"runtime_class": name, "creates_runtime_class": False}
    if not name:
        return
    if found is None or _is_ours(found):
        plan.data["creates_runtime_class"] = True
    elif found.get("handler") == HANDLER:
        plan.notice("RUNTIME_CLASS_ADOPTED", name=name)
    else:
        handler = found.get("handler")
        plan.refuse("RUNTIME_CLASS_OTHER", name=name, found=handler, expected=HANDLER)


def _refuse_labels(plan: Plan[Data], desired: Desired) -> None:
    """Refuse nodes that have one of the labels with another value: the admin may need it."""
    for member in desired["members"]:
        row = desired["rows"].get(member["node"], {})
        for key, value in _taken(row, desired["node_selector"]).items():
            plan.refusals.append(
                finding(
                    "NODE_LABEL_TAKEN",
                    member["host"],
                    node=member["node"],
                    found=f"{key}={value}",
                    expected=f"{key}={desired['node_selector'][key]}",
                    key=key,
                )
            )


def _taken(row: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a node has with another value.

    The annotation has the keys of the labels that this role has added, but not their values. An
    admin may have changed the value of such a label, too, to keep the plugin off the node.
    """
    found = section(row, "labels")
    return {
        key: found[key] for key, value in labels.items() if key in found and found[key] != value
    }


def _added(annotations: Mapping[str, str]) -> list[str]:
    """Return the labels that this role added to a node."""
    return [key for key in annotations.get(LABELLED, "").split(",") if key]


def _choose(plan: Plan[Data], ours: Mapping[str, Any] | None, desired: Desired) -> None:
    """Choose the strategy, and whether the plugin itself needs the RuntimeClass."""
    hosts: dict[str, list[str]] = {}
    for member in desired["members"]:
        if member["engine"]:
            hosts.setdefault(member["engine"], []).append(member["host"])
    strategy, runtime_class = desired["strategy"], desired["runtime_class"]
    if engines.DOCKER in hosts:
        if "cdi" in strategy:
            plan.refuse(
                "DEVICE_PLUGIN_STRATEGY", strategy=strategy, found=", ".join(hosts[engines.DOCKER])
            )
        elif len(hosts) > 1 and (strategy == AUTO or runtime_class):
            found = (f"{engine} on {', '.join(names)}" for engine, names in hosts.items())
            plan.refuse("DEVICE_PLUGIN_MIXED", evidence=", ".join(found))
        runtime_class = ""
    if strategy == AUTO:
        strategy = _STRATEGIES[next(iter(hosts), engines.CONTAINERD)]
        runs, nodes = _strategy(ours), (ours or {}).get("status", {}).get("desiredNumberScheduled")
        if runs and runs != strategy and nodes > len(desired["members"]):
            plan.refuse(
                "DEVICE_PLUGIN_MIXED",
                evidence=f"it uses the strategy {runs} on {nodes} nodes, but the nodes of this run "
                f"({len(desired['members'])}) need {strategy}",
            )
    plan.data["strategy"] = strategy
    _choose_runtime_class(plan, runtime_class, desired)


def _name(daemonset: Mapping[str, Any]) -> str:
    return "{namespace}/{name}".format_map(daemonset["metadata"])


def _strategy(daemonset: Mapping[str, Any] | None) -> str | None:
    """Return the strategy of our DaemonSet."""
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
    """Return the patches for the nodes of the cluster that lack one of the labels.

    An annotation lists the added labels, so that the admin's labels are never removed. A node that
    has one of the labels with another value stays as it is.
    """
    patches = []
    for name, row in nodes.items():
        lacking = {key: value for key, value in labels.items() if row["labels"].get(key) != value}
        if row["state"] == "missing" or not lacking or _taken(row, labels):
            continue
        added = sorted({*_added(row["annotations"]), *lacking})
        patches.append(_patch(name, lacking, ",".join(added)))
    return patches


def unlabelling(
    nodes: Sequence[Mapping[str, Any]], names: Collection[str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Sort the nodes (Node objects) that have all of the labels.

    Returns the patches that remove this role's labels from the named nodes, the names of those that
    keep them because this role added none, and the names of all other nodes.
    """
    patches, kept, left = [], [], []
    for node in nodes:
        name = node["metadata"]["name"]
        added = _added(section(node, "metadata", "annotations"))
        if name not in names:
            left.append(name)
        elif any(key in added for key in labels):
            patches.append(_patch(name, dict.fromkeys(added), None))
        else:
            kept.append(name)
    return {"patches": patches, "kept": kept, "left": left}


def _patch(name: str, labels: Mapping[str, str | None], added: str | None) -> dict[str, Any]:
    metadata = {"name": name, "labels": dict(labels), "annotations": {LABELLED: added}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def rollout(
    pods: Sequence[Mapping[str, Any]],
    nodes: Iterable[str],
    revisions: Sequence[Mapping[str, Any]] | None = None,
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


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod.get("status", {}).get("conditions", ())
    )


def _is_device_plugin(daemonset: Mapping[str, Any]) -> bool:
    """Whether a container has NVIDIA's image, from any registry, and can register devices.

    The image also contains feature discovery, the MPS control daemon and the configuration manager.
    The chart runs these in other DaemonSets: k8s-device-plugin v0.20.0,
    deployments/helm/nvidia-device-plugin/templates.
    """
    template = daemonset["spec"]["template"]
    return pod_status.is_device_plugin(template) and any(
        container["image"].partition("@")[0].rpartition("/")[2].partition(":")[0] == _PROGRAM
        for container in template["spec"]["containers"]
    )
