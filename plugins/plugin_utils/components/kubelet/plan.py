# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which edits does this kubelet need to accept device plugins?

Up to Kubernetes 1.9, the feature gate DevicePlugins must be set. Up to 1.27 it is harmless. Since
1.28 it is unknown, and the kubelet does not start with it. The plan removes it from 1.10 on, so
that the next upgrade of the node succeeds.

Source: https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.containers import Kubelet
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe.own_files import KUBELET_DROP_IN
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet import Gate
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.plugins.module_utils.verdict.silence import (
    UNITS,
    silent_programs,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines.reload import (
    notice_reload,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.kubelet.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    known_version,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Plan,
    PlanResult,
    Step,
    edited,
    refuse_lost_history,
    refuse_uneditable,
)

ROLE = "kubelet_device_plugins"
GATE = "DevicePlugins"

CONFIGURATION = Step(
    "configuration", "Remove the DevicePlugins gate from the kubelet configuration"
)
FLAGS = Step("flags", "Correct the DevicePlugins gate in the kubelet flags")
DROP_IN = Step("drop_in", "Set the DevicePlugins gate in a kubelet drop-in")
RESTART = Step("restart", "Restart the kubelet")

REMOVE_DROP_IN = Step("remove_drop_in", "Remove the kubelet drop-in")
FORGET = Step("forget", "Delete the history of the kubelet configuration")

STEPS = (CONFIGURATION, FLAGS, DROP_IN, RESTART, REMOVE_DROP_IN, FORGET)

_LAST_WITH_GATE_OFF = (1, 9)
_VARIABLE = "KUBELET_EXTRA_ARGS"

# A line that is not a comment, up to the flag. The expressions see one line at a time.
_LINE = r"^((?![ \t]*[#;]).*?"
_FLAG = r"--feature[-_]gates[= ][\"']?"
_VALUE = r"=[^\s\"',\\]*"
_END = r"(?=[\s\"'\\]|$)"

# In this order: other gates follow, other gates precede, no other gate (the flag is removed).
REMOVALS: tuple[tuple[str, str], ...] = (
    (rf"{_LINE}{_FLAG}(?:[^\s\"',]+,)*){GATE}{_VALUE},", r"\1"),
    (rf"{_LINE}{_FLAG}[^\s\"']*?),{GATE}{_VALUE}{_END}", r"\1"),
    (rf"{_LINE})[ \t]*--feature[-_]gates[= ]([\"']?){GATE}{_VALUE}\2{_END}", r"\1"),
)
ADDITION = (rf"{_LINE}{_FLAG}[^\s\"'\\]+)", rf"\1,{GATE}=true")
NEW_FLAG = (rf"{_LINE}{_VARIABLE}=[\"']?)", rf"\1--feature-gates={GATE}=true ")


def plan(node: Node, desired: Desired) -> PlanResult:
    """Plan the edits."""
    kubelet = node["kubelet"]
    plan = Plan[Data](
        desired["host"], {"configuration": [], "flags": [], "health_url": kubelet["health_url"]}
    )
    for code, evidence in silent_programs(node):
        if code == UNITS:  # the role changes no package
            plan.refuse(code, **evidence)
    if plan.refusals:
        return plan.result()
    if desired["state"] == "present":
        _plan_present(plan, node)
    else:
        _plan_absent(plan, node)
    if plan.data.get("daemon_reload"):
        notice_reload(plan, node, RESTART)
    refuse_lost_history(plan, node, ROLE)
    return plan.result()


def _plan_present(plan: Plan[Data], node: Node) -> None:
    kubelet = node["kubelet"]
    if engines.refuse_distribution(plan, node) or kubelet["distribution"]:
        return  # a distribution has no kubelet that needs the gate
    if not kubelet["installed"]:
        engines.refuse_missing_kubelet(plan, node)
        return
    # The kubelet does not start with a broken drop-in in --config-dir either.
    for document in (kubelet["config"], *kubelet["config_dir"]["files"]):
        if document["error"]:
            plan.refuse("KUBELET_CONFIG_INVALID", error=document["error"])
    if plan.refusals:
        return
    version = known_version(plan, "kubelet", kubelet)
    if version is None:
        return
    places = _places(kubelet)
    if not _needs_gate(version):
        _plan_removal(plan, kubelet, version, places)
    elif not any(gate["value"] and gate["effective"] for gate in places):
        _plan_setting(plan, kubelet, version, places)
    if plan.steps:
        _plan_restart(plan, kubelet, "the kubelet reads its settings only when it starts")
    else:
        _plan_restart(plan, kubelet, _unread_reason(kubelet, version))


def _plan_absent(plan: Plan[Data], node: Node) -> None:
    """Plan the removal of our files. A removed gate stays removed: no such kubelet needs it."""
    kubelet = node["kubelet"]
    edits = edited(node, ROLE)
    drop_ins = [path for path in node["ours"]["files"] if path == KUBELET_DROP_IN]
    plan.data["edits"] = edits
    places = [gate for gate in _places(kubelet) if gate["file"] not in drop_ins]
    if kubelet["installed"] and places:
        version = known_version(plan, "kubelet", kubelet)
        if version is None:
            return
        if _needs_gate(version):
            _plan_removal(plan, kubelet, version, places)
    plan.step(REMOVE_DROP_IN, f"this role created {', '.join(drop_ins)}" if drop_ins else None)
    if plan.steps:
        _plan_restart(plan, kubelet, "the kubelet reads its settings only when it starts")
    plan.step(FORGET, f"the gate stays removed from {', '.join(edits)}" if edits else None)


def _plan_restart(plan: Plan[Data], kubelet: Kubelet, reason: str | None) -> None:
    plan.step(RESTART, reason)
    plan.data["daemon_reload"] = (
        kubelet["needs_reload"]
        or any("/systemd/system/" in edit["path"] for edit in plan.data["flags"])
        or plan.has_step(DROP_IN, REMOVE_DROP_IN)
    )


def _unread_reason(kubelet: Kubelet, version: str) -> str | None:
    """Return why a correctly configured kubelet must be restarted, as after an interrupted run."""
    if not kubelet["running"]:
        return f"the kubelet is not running: {kubelet['last_error'] or 'it logged no error'}"
    # A kubelet that does not need the gate runs with or without it.
    unread = kubelet["changed_since_start"] if _needs_gate(version) else []
    return f"{', '.join(unread)} changed after the kubelet started" if unread else None


def _places(kubelet: Kubelet) -> list[Gate]:
    return [gate for gate in kubelet["feature_gates"] if gate["name"] == GATE]


def _needs_gate(version: str) -> bool:
    return release(version)[:2] <= _LAST_WITH_GATE_OFF


def _plan_removal(plan: Plan[Data], kubelet: Kubelet, version: str, places: list[Gate]) -> None:
    why = f"kubelet {version} " + (
        "does not start with the gate"
        if release(version)[:2] >= (1, 28)
        else "does not need the gate"
    )
    documents = _files(places, "config")
    texts = _files(places, "flag")
    for file in (kubelet["config"], *kubelet["config_dir"]["files"]):
        if file["path"] in documents:
            refuse_uneditable(plan, file["path"], file["obstacle"])
    plan.data["configuration"] = [
        {"path": path, "remove": [["featureGates", GATE]]} for path in documents
    ]
    _plan_flags(plan, [(path, removal) for path in texts for removal in REMOVALS])
    plan.step(CONFIGURATION, f"{', '.join(documents)}: {why}" if documents else None)
    plan.step(FLAGS, f"{', '.join(texts)}: {why}" if texts else None)


def _plan_setting(plan: Plan[Data], kubelet: Kubelet, version: str, places: list[Gate]) -> None:
    """Set the gate where an admin would look for it: in the kubelet's flags."""
    why = f"kubelet {version} needs the gate"
    flags = [(one, file) for one in kubelet["flags"] if one["effective"] and (file := one["file"])]
    gates = [file for flag, file in flags if flag["name"] == "--feature-gates"]
    extra = [file for flag, file in flags if flag["variable"] == _VARIABLE]
    edits: list[tuple[str, tuple[str, str]]] = []
    # Remove a gate that is false first: the regular expressions below only add.
    edits += [(path, removal) for path in _files(places, "flag") for removal in REMOVALS]
    if gates and not _files(places, "flag"):
        edits.append((gates[-1], ADDITION))
    elif extra:
        edits.append((extra[-1], NEW_FLAG))
    else:
        plan.step(DROP_IN, why)
    _plan_flags(plan, edits)
    plan.step(FLAGS, why if edits else None)


def _plan_flags(plan: Plan[Data], edits: list[tuple[str, tuple[str, str]]]) -> None:
    plan.data["flags"] = [
        {"path": path, "regexp": regexp, "replace": replacement}
        for path, (regexp, replacement) in edits
    ]


def _files(places: list[Gate], where: str) -> list[str]:
    """Return the files to edit; a gate of the running kubelet may be in no file."""
    files = (gate["file"] for gate in places if gate["where"] == where)
    return list(dict.fromkeys(filter(None, files)))
