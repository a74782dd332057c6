# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which edits let this kubelet speak to device plugins?

The feature gate DevicePlugins had to be set up to Kubernetes 1.9, was harmless up to 1.27, and
since 1.28 it is unknown, which ends the kubelet. It is taken out from 1.10 on, so that the next
upgrade of the node goes well.

Source: https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates-removed/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.own_files import KUBELET_DROP_IN
from ansible_collections.metal.gpu.plugins.module_utils.silence import UNITS, silence
from ansible_collections.metal.gpu.plugins.module_utils.version import release
from ansible_collections.metal.gpu.plugins.plugin_utils import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Plan,
    edited,
    refuse_lost_history,
    refuse_uneditable,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_preflight import refuse_unversioned

GATE = "DevicePlugins"

CONFIGURATION = "Remove the DevicePlugins gate from the kubelet configuration"
FLAGS = "Correct the DevicePlugins gate in the kubelet flags"
DROP_IN = "Set the DevicePlugins gate in a kubelet drop-in"
RESTART = "Restart the kubelet"

REMOVE_DROP_IN = "Remove the kubelet drop-in"
FORGET = "Delete the history of the kubelet configuration"

STEPS = (CONFIGURATION, FLAGS, DROP_IN, RESTART, REMOVE_DROP_IN, FORGET)

_LAST_WITH_GATE_OFF = (1, 9)
_VARIABLE = "KUBELET_EXTRA_ARGS"

# A line that is no comment, up to the flag. Only one line is looked at at a time.
_LINE = r"^((?![ \t]*[#;]).*?"
_FLAG = r"--feature[-_]gates[= ][\"']?"
_VALUE = r"=[^\s\"',\\]*"
_END = r"(?=[\s\"'\\]|$)"

# In this order: with others behind it, with others before it, alone. Then the flag goes too.
REMOVALS: tuple[tuple[str, str], ...] = (
    (rf"{_LINE}{_FLAG}(?:[^\s\"',]+,)*){GATE}{_VALUE},", r"\1"),
    (rf"{_LINE}{_FLAG}[^\s\"']*?),{GATE}{_VALUE}{_END}", r"\1"),
    (rf"{_LINE})[ \t]*--feature[-_]gates[= ]([\"']?){GATE}{_VALUE}\2{_END}", r"\1"),
)
ADDITION = (rf"{_LINE}{_FLAG}[^\s\"'\\]+)", rf"\1,{GATE}=true")
NEW_FLAG = (rf"{_LINE}{_VARIABLE}=[\"']?)", rf"\1--feature-gates={GATE}=true ")


def plan(node: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """Plan the edits. Desired: host, state."""
    plan = Plan(desired["host"])
    kubelet = node["kubelet"]
    for code, evidence in silence(node):
        if code == UNITS:  # no package is changed
            plan.refuse(code, **evidence)
    if plan.refusals:
        return plan.result()
    if desired["state"] == "absent":
        _plan_absent(plan, node)
        refuse_lost_history(plan, node, "kubelet_device_plugins")
        return plan.result()
    if engines.refuse_distribution(plan, node):
        return plan.result()
    if not kubelet["installed"]:
        plan.refuse("KUBELET_MISSING")
        return plan.result()
    # A drop-in of --config-dir is read with the file, and ends the kubelet as well.
    for document in (kubelet["config"], *kubelet["config_dir"]["files"]):
        if document["error"]:
            plan.refuse("KUBELET_CONFIG_INVALID", error=document["error"])
    if plan.refusals:
        return plan.result()
    if refuse_unversioned(plan, "kubelet", kubelet):
        return plan.result()
    places = _places(kubelet)
    plan.data |= {"configuration": [], "flags": [], "health_url": kubelet["health_url"]}
    if not _needs_gate(kubelet):
        _plan_removal(plan, kubelet, places)
    elif not any(gate["value"] and gate["effective"] for gate in places):
        _plan_setting(plan, kubelet, places)
    if plan.steps:
        _plan_restart(plan, kubelet, "it reads its settings when it starts")
    else:
        _plan_restart(plan, kubelet, _unread_reason(kubelet))
    refuse_lost_history(plan, node, "kubelet_device_plugins")
    return plan.result()


def _plan_absent(plan: Plan, node: Mapping[str, Any]) -> None:
    """A gate that was taken out stays out, since no kubelet that it was taken from needs it."""
    kubelet = node["kubelet"]
    edits = edited(node, "kubelet_device_plugins")
    drop_ins = [path for path in node["ours"]["files"] if path == KUBELET_DROP_IN]
    plan.data |= {"configuration": [], "flags": [], "health_url": kubelet["health_url"]}
    plan.data["edits"] = edits
    places = [gate for gate in _places(kubelet) if gate["file"] not in drop_ins]
    if kubelet["installed"] and places:
        if refuse_unversioned(plan, "kubelet", kubelet):
            return
        if _needs_gate(kubelet):
            _plan_removal(plan, kubelet, places)
    plan.step(REMOVE_DROP_IN, f"{', '.join(drop_ins)} is of this role" if drop_ins else None)
    if plan.steps:
        _plan_restart(plan, kubelet, "it reads its settings when it starts")
    plan.step(FORGET, f"{', '.join(edits)} stays without the gate" if edits else None)


def _plan_restart(plan: Plan, kubelet: Mapping[str, Any], reason: str | None) -> None:
    plan.step(RESTART, reason)
    plan.data["daemon_reload"] = (
        kubelet["needs_reload"]
        or any("/systemd/system/" in edit["path"] for edit in plan.data["flags"])
        or any(step["name"] in (DROP_IN, REMOVE_DROP_IN) for step in plan.steps)
    )


def _unread_reason(kubelet: Mapping[str, Any]) -> str | None:
    """Return why a kubelet with the right settings has to be restarted; a run may have been cut."""
    if not kubelet["running"]:
        return f"it is not running: {kubelet['last_error'] or 'it said nothing'}"
    # One that needs no gate runs well, whatever it has read.
    unread = kubelet["changed_since_start"] if _needs_gate(kubelet) else []
    return f"{', '.join(unread)} changed after it had started" if unread else None


def _places(kubelet: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [gate for gate in kubelet["feature_gates"] if gate["name"] == GATE]


def _needs_gate(kubelet: Mapping[str, Any]) -> bool:
    return release(kubelet["version"])[:2] <= _LAST_WITH_GATE_OFF


def _plan_removal(plan: Plan, kubelet: Mapping[str, Any], places: list[Mapping[str, Any]]) -> None:
    why = f"kubelet {kubelet['version']} " + (
        "ends when it meets the gate"
        if release(kubelet["version"])[:2] >= (1, 28)
        else "needs no gate"
    )
    documents = _files(places, "config")
    texts = _files(places, "flag")
    for file in (kubelet["config"], *kubelet["config_dir"]["files"]):
        if file["path"] in documents:
            refuse_uneditable(plan, file)
    plan.data["configuration"] = [
        {"path": path, "remove": [["featureGates", GATE]]} for path in documents
    ]
    plan.data["flags"] = [
        {"path": path, "regexp": regexp, "replace": replacement}
        for path in texts
        for regexp, replacement in REMOVALS
    ]
    plan.step(CONFIGURATION, f"{', '.join(documents)}: {why}" if documents else None)
    plan.step(FLAGS, f"{', '.join(texts)}: {why}" if texts else None)


def _plan_setting(plan: Plan, kubelet: Mapping[str, Any], places: list[Mapping[str, Any]]) -> None:
    """Set the gate where a user of this kubelet would look for it: in its flags."""
    why = f"kubelet {kubelet['version']} needs the gate"
    flags = [flag for flag in kubelet["flags"] if flag["effective"] and flag["file"]]
    gates = [flag["file"] for flag in flags if flag["name"] == "--feature-gates"]
    extra = [flag["file"] for flag in flags if flag["variable"] == _VARIABLE]
    edits: list[tuple[str, tuple[str, str]]] = []
    # One that says false goes first; the regular expressions below add and do not replace.
    edits += [(path, removal) for path in _files(places, "flag") for removal in REMOVALS]
    if gates and not _files(places, "flag"):
        edits.append((gates[-1], ADDITION))
    elif extra:
        edits.append((extra[-1], NEW_FLAG))
    else:
        plan.step(DROP_IN, why)
    plan.data["flags"] = [
        {"path": path, "regexp": regexp, "replace": replacement}
        for path, (regexp, replacement) in edits
    ]
    plan.step(FLAGS, why if edits else None)


def _files(places: list[Mapping[str, Any]], where: str) -> list[str]:
    """Return the files to edit; a gate that the kubelet runs with may be in none of them."""
    files = (gate["file"] for gate in places if gate["where"] == where)
    return list(dict.fromkeys(filter(None, files)))
