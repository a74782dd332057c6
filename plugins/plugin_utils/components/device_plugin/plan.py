# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""May this role deploy the device plugin in this cluster, and how? No I/O.

The manifests are applied, so the API server works out the changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.metal.gpu.plugins.module_utils.cluster import rivals
from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import explain_error
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import selector_text
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    guard,
    labels,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.manifest import (
    HANDLER,
    MARKS,
    SELECTOR,
    STRATEGY,
    manifests,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Data,
    Desired,
    Object,
    Observed,
    Used,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, PlanResult

CLUSTER = "cluster"  # the host of the refusals

# cri-dockerd 0.4.3 supports no RuntimeClass but its own and passes no CDI devices on, so Docker's
# default runtime must provide the GPUs. One DaemonSet serves both engines if containerd also has
# the NVIDIA runtime as its default.
STRATEGIES = {engines.CONTAINERD: "cdi-cri", engines.DOCKER: "envvar"}


def plan(observed: Observed, desired: Desired) -> PlanResult:
    """Judge the DaemonSets of a cluster, and choose how GPUs get into containers."""
    data: Data = {
        "used": _used(desired, {"matchLabels": SELECTOR}),
        "is_adopted": False,
        "marks": [selector_text({"matchLabels": MARKS})],
        "manifests": [],
        "removed": [],
    }
    plan = Plan(CLUSTER, data)
    if desired["state"] == "absent":
        data["removed"] = guard.removed(observed["policies"] or {})
        return plan.result()
    for error in observed["errors"]:
        plan.refusals.append(explain_error(error, CLUSTER, "CLUSTER_UNUSABLE"))
    ours, others = None, []
    taken = ""  # another DaemonSet has the name
    for daemonset in observed["daemonsets"]:
        has_name = _name(daemonset["metadata"]) == _name(desired)
        # A Helm release can have the same name.
        if has_name and _is_ours(daemonset):
            ours = daemonset
        elif rivals.is_nvidia_plugin(daemonset["spec"]["template"]):
            others.append(daemonset)
        elif has_name:
            taken = _name(daemonset["metadata"])
    if not others or desired["foreign"] == "refuse":
        for daemonset in others:
            plan.refuse("DEVICE_PLUGIN_FOREIGN", found=_name(daemonset["metadata"]))
        if taken:
            plan.refuse("DEVICE_PLUGIN_NAME_TAKEN", found=taken)
        strategy, runtime_class = _choose(plan, ours, observed, desired)
        data["manifests"] = manifests(
            desired,
            strategy,
            runtime_class,
            creates_runtime_class=_creates(plan, runtime_class, observed["runtime_classes"]),
        )
        plan.refusals += labels.refusals(
            observed["members"], observed["rows"], desired["node_selector"]
        )
    elif ours or len(others) > 1:
        found = [_name(daemonset["metadata"]) for daemonset in ([ours] if ours else []) + others]
        plan.refuse("DEVICE_PLUGIN_TWICE", found=" and as ".join(found))
    else:
        adopted = others[0]
        plan.notice("DEVICE_PLUGIN_ADOPTED", found=_name(adopted["metadata"]))
        data["used"] = _used(adopted["metadata"], adopted["spec"]["selector"])
        data["is_adopted"] = True
    guard.plan_guard(plan, observed, desired)
    return plan.result()


def _is_ours(found: Object) -> bool:
    """Tell whether this role created an object."""
    return MARKS.items() <= section(found, "metadata", "labels").items()


def _creates(plan: Plan[Data], name: str, found: Iterable[Object]) -> bool:
    """Choose whether the RuntimeClass is created, used as it is, or refused.

    A handler is immutable, and pods of the admin may need it.
    """
    existing = next((one for one in found if one["metadata"]["name"] == name), None)
    if existing is None or _is_ours(existing):
        return bool(name)
    if existing.get("handler") == HANDLER:
        plan.notice("RUNTIME_CLASS_ADOPTED", name=name)
    else:
        plan.refuse(
            "RUNTIME_CLASS_OTHER", name=name, found=existing.get("handler"), expected=HANDLER
        )
    return False


def _choose(
    plan: Plan[Data], ours: Object | None, observed: Observed, desired: Desired
) -> tuple[str, str]:
    """Choose the strategy and the RuntimeClass of the plugin itself, which can be empty."""
    hosts: dict[str, list[str]] = {}
    for member in observed["members"]:
        if member["engine"]:
            hosts.setdefault(member["engine"], []).append(member["host"])
    strategy, runtime_class = desired["device_list_strategy"], desired["runtime_class"]
    if engines.DOCKER in hosts:
        if "cdi" in strategy:
            plan.refuse(
                "DEVICE_PLUGIN_STRATEGY", strategy=strategy, found=", ".join(hosts[engines.DOCKER])
            )
        elif len(hosts) > 1 and (strategy == "auto" or runtime_class):
            found = (f"{engine} on {', '.join(names)}" for engine, names in hosts.items())
            plan.refuse("DEVICE_PLUGIN_MIXED", evidence=", ".join(found))
        runtime_class = ""
    if strategy == "auto":
        strategy = STRATEGIES[next(iter(hosts), engines.CONTAINERD)]
        runs, nodes = _strategy(ours), (ours or {}).get("status", {}).get("desiredNumberScheduled")
        if runs and runs != strategy and nodes > len(observed["members"]):
            plan.refuse(
                "DEVICE_PLUGIN_MIXED",
                evidence=f"it uses the strategy {runs} on {nodes} nodes, but the nodes of this run "
                f"({len(observed['members'])}) need {strategy}",
            )
    return strategy, runtime_class


def _name(metadata: Object) -> str:
    return "{namespace}/{name}".format_map(metadata)


def _used(metadata: Object, selector: Object) -> Used:
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "selectors": [selector_text(selector)],
    }


def _strategy(daemonset: Object | None) -> str | None:
    """Return the strategy of our DaemonSet."""
    if daemonset is None:
        return None
    named = {
        variable["name"]: variable.get("value")
        for container in daemonset["spec"]["template"]["spec"]["containers"]
        for variable in container.get("env", ())
    }
    return named.get(STRATEGY)
