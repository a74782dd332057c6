# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""May this role deploy the device plugin in this cluster, and how?

The manifests are applied, so the API server works out the changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    gpu_claims,
    rivals,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import no_answer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import (
    selector_text,
    selects,
    unmet_affinity,
)
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    guard,
    labels,
    operators,
    options,
    strategy,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.manifest import (
    HANDLER,
    MARKS,
    former_config,
    manifests,
    proof_class,
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


def plan(observed: Observed, desired: Desired) -> PlanResult:
    """Judge the DaemonSets of a cluster, and choose how GPUs get into containers."""
    data: Data = {
        # The plugin of Helm's chart has the same selector.
        "used": _used(desired, {"matchLabels": MARKS}),
        "is_adopted": False,
        "staying": {},
        "marks": [selector_text({"matchLabels": MARKS})],
        "manifests": [],
        "former": [],
        "removed": [],
    }
    plan = Plan(CLUSTER, data)
    ways: list[str | None] = [None]  # unknown
    if desired["state"] == "absent":
        data["removed"] = guard.removed(observed["policies"] or {})
        data["staying"] = _staying(observed)
        scheduled = (
            section(one, "status").get("desiredNumberScheduled", 0)
            for one in observed["daemonsets"]
            if _is_ours(one)
        )
        plan.refusals += labels.refuse_keeping(
            observed["members"],
            observed["rows"],
            desired["node_selector"],
            sum(scheduled),
        )
        return plan.result()
    for error in observed["errors"]:
        plan.refusals.append(no_answer(error, CLUSTER))
    for installer, value, hosts in operators.installers(observed):
        name = _name(installer["metadata"])
        plan.notice("OPERATOR_INSTALLS", found=name, value=value, hosts=", ".join(hosts))
    ours, adopted, others = None, None, []
    taken = ""  # another DaemonSet has the name
    for daemonset in observed["daemonsets"]:
        has_name = _name(daemonset["metadata"]) == _name(desired)
        # A Helm release can have the same name.
        if has_name and _is_ours(daemonset):
            ours = daemonset
        elif rivals.is_nvidia_plugin(daemonset["spec"]["template"]):
            if desired["foreign"] == "adopt" and _name(daemonset["metadata"]) == desired["adopt"]:
                adopted = daemonset
            elif has_name or _will_run(daemonset, observed, desired):
                others.append(daemonset)
        elif has_name:
            taken = _name(daemonset["metadata"])
    if adopted is None:
        for daemonset in others:
            plan.refuse("DEVICE_PLUGIN_FOREIGN", found=_name(daemonset["metadata"]))
        if taken:
            plan.refuse("DEVICE_PLUGIN_NAME_TAKEN", found=taken)
        way, runtime_class = _choose(plan, ours, observed, desired)
        ways = [way, _strategy(ours) if ours else way]
        _refuse_dra(plan, observed)
        _refuse_options(plan, observed, desired)
        data["manifests"] = manifests(
            desired,
            way,
            runtime_class,
            creates_runtime_class=_creates(plan, runtime_class, observed["runtime_classes"]),
        )
        data["former"] = former_config(desired, observed["config_maps"])
        plan.refusals += labels.refusals(
            observed["members"], observed["rows"], desired["node_selector"]
        )
    elif ours or others:
        found = [_name(one["metadata"]) for one in (ours, adopted, *others) if one]
        plan.refuse("DEVICE_PLUGIN_TWICE", found=" and as ".join(found))
    else:
        plan.notice("DEVICE_PLUGIN_ADOPTED", found=_name(adopted["metadata"]))
        data["used"] = _used(adopted["metadata"], adopted["spec"]["selector"])
        data["is_adopted"] = True
    data["manifests"] = [*proof_class(observed["priority_classes"]), *data["manifests"]]
    guard.plan_guard(plan, observed, desired, ways)
    return plan.result()


def _staying(observed: Observed) -> dict[str, str]:
    """Return the nodes that keep their GPUs, with the plugin of somebody else that runs there."""
    return {
        name: _name(daemonset["metadata"])
        for daemonset in observed["daemonsets"]
        for template in [daemonset["spec"]["template"]]
        if rivals.is_nvidia_plugin(template) and rivals.has_pods(daemonset)
        if not _is_ours(daemonset)
        for name, row in observed["rows"].items()
        if selects(name, row["labels"], template["spec"])
    }


def _will_run(daemonset: Object, observed: Observed, desired: Desired) -> bool:
    """Tell whether a DaemonSet has pods, or gets some by the labels that this role adds to nodes.

    Anybody may create one that runs nowhere, and must not stop each run by it.
    """
    if rivals.has_pods(daemonset):
        return True
    if section(daemonset, "status").get("desiredNumberScheduled"):
        return False  # its pods are not admitted
    spec = daemonset["spec"]["template"]["spec"]
    return any(
        selects(one["node"], {**row["labels"], **desired["node_selector"]}, spec)
        for one in observed["members"]
        if (row := observed["rows"].get(one["node"])) is not None
    )


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
    if existing.get("handler") != HANDLER:
        plan.refuse(
            "RUNTIME_CLASS_OTHER", name=name, found=existing.get("handler"), expected=HANDLER
        )
    return False


def _choose(
    plan: Plan[Data], ours: Object | None, observed: Observed, desired: Desired
) -> tuple[str, str]:
    """Choose the strategy and the RuntimeClass of the plugin itself, which can be empty."""
    members = [one for one in observed["members"] if one["engine"]]
    wanted, runtime_class = desired["device_list_strategy"], desired["runtime_class"]
    chosen: dict[str, str] = {}  # by host
    hosts: dict[str, list[str]] = {}
    problems: dict[strategy.Problem, list[str]] = {}
    for one in members:
        decision = strategy.decide(one, wanted)
        chosen[one["host"]] = decision.strategy
        hosts.setdefault(decision.label, []).append(one["host"])
        for problem in decision.problems:
            problems.setdefault(problem, []).append(one["host"])
    for problem, names in problems.items():
        plan.refuse(
            "DEVICE_PLUGIN_STRATEGY",
            strategy=wanted,
            evidence=f"{problem.reason}: {', '.join(names)}",
            remedy=problem.remedy,
        )
    has_docker = any(one["engine"] == engines.DOCKER for one in members)
    has_others = any(one["engine"] != engines.DOCKER for one in members)
    found = {*chosen.values()}
    if not problems and (len(found) > 1 or (has_docker and has_others and runtime_class)):
        texts = (f"{label} on {', '.join(names)}" for label, names in hosts.items())
        plan.refuse("DEVICE_PLUGIN_MIXED", evidence=", ".join(texts))
    if has_docker:
        runtime_class = ""
    if wanted != strategy.AUTO:
        return wanted, runtime_class
    best = next(iter(chosen.values()), strategy.ROWS[0].works[0])
    runs, nodes = _strategy(ours), (ours or {}).get("status", {}).get("desiredNumberScheduled")
    if runs and runs != best and nodes > len(observed["members"]):
        plan.refuse(
            "DEVICE_PLUGIN_MIXED",
            evidence=f"it uses the strategy {runs} on {nodes} nodes, but the nodes of this run "
            f"({len(observed['members'])}) need {best}",
        )
    return best, runtime_class


def _refuse_dra(plan: Plan[Data], observed: Observed) -> None:
    """Refuse nodes on which pods would get no devices of a DRA driver, without an error."""
    for one in observed["members"]:
        row = observed["rows"].get(one["node"])
        if row is None or not one["engine"] or "cdi-cri" in strategy.row_of(one).works:
            continue
        for daemonset in observed["daemonsets"]:
            template = daemonset["spec"]["template"]
            if gpu_claims.is_dra_driver(template) and selects(
                one["node"], row["labels"], template["spec"]
            ):
                plan.refusals.append(
                    finding(
                        "DRA_WITHOUT_CDI",
                        one["host"],
                        driver=_name(daemonset["metadata"]),
                        reason=strategy.row_of(one).reason,
                    )
                )


def _refuse_options(plan: Plan[Data], observed: Observed, desired: Desired) -> None:
    """Refuse variables that are not usable, and an affinity that keeps the plugin off a node."""
    for problem in options.problems(desired):
        plan.refuse("DEVICE_PLUGIN_VARIABLE", name=problem.name, error=problem.error)
    for one in observed["members"]:
        row = observed["rows"].get(one["node"])
        if row is None or row["state"] == "missing":
            continue
        labels_then = {**row["labels"], **desired["node_selector"]}
        unmet = unmet_affinity(one["node"], labels_then, {"affinity": desired["affinity"]})
        if unmet:
            plan.refusals.append(
                finding("DEVICE_PLUGIN_EXCLUDES", one["host"], node=one["node"], affinity=unmet)
            )


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
    return named.get(options.STRATEGY)
