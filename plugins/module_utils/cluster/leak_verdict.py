# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the results of a leak test mean for a node: rows, findings and a line for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import leak_pods
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.leak_pods import Result

_ORDER = (
    leak_pods.LEAKED,
    leak_pods.UNPROVEN,
    leak_pods.BUSY,
    leak_pods.NOTHING,
    leak_pods.REFUSED,
    leak_pods.BY_DESIGN,
    leak_pods.PLANNED,
)
_SHOWN = 2  # how many of the paths a finding names
_BY_VARIABLE = frozenset({*leak_pods.ATTEMPTS} - {leak_pods.PLAIN})

_GUARD = "set `device_plugin_guard: enforce` and run `ansible-playbook metal.gpu.site`"
# For Docker without Kubernetes.
NO_DEFAULT = "set `nvidia_container_runtime_default: false` and run your playbook again"
# What has to be done before the test can prove anything.
NODE_FIRST = (
    "run `ansible-playbook metal.gpu.site` first; `ansible-playbook metal.gpu.verify` says why a "
    "node offers no GPU"
)
HOST_FIRST = "run `ansible-playbook metal.gpu.docker_hosts` first, which loads the driver"
_CORRECT = (
    "correct the reason; verify_leak_image and verify_smoke_image set the images, "
    "verify_smoke_namespace the namespace"
)
_OTHER = "find out what gives GPUs to every container: a hook of the engine, or another default"


def row(results: Mapping[str, Result]) -> dict[str, Any]:
    """Return the results of a node as data."""
    attempts = {
        name: {**result._asdict(), "seen": [*result.seen]} for name, result in results.items()
    }
    return {"state": leak_pods.state_of(results), "attempts": attempts}


def summary(node: str, results: Mapping[str, Result]) -> str:
    """Return a line about a node."""
    parts = []
    for state in _ORDER:
        named = [name for name, result in results.items() if result.state == state]
        if named:
            parts.append(f"{state.replace('_', ' ')}: {', '.join(named)}")
    return f"{node}: {'; '.join(parts)}"


def tally(nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the last line of a test, about its rows; none where nothing was tried."""
    states = [row["state"] for row in nodes.values()]
    if not states or leak_pods.PLANNED in states:
        return []
    ok, busy = states.count(leak_pods.OK), states.count(leak_pods.BUSY)
    text = f"{ok} of {len(states)} tested nodes gave no pod a GPU that it did not request"
    text += f", {busy} busy" if busy else ""
    opened = sum(map(_has_leaky_mount, nodes.values()))
    more = f"; on {opened}, pods with a hostPath get GPUs by design ({leak_pods.CLASS_MOUNT})"
    return [text + more if opened else text]


def _has_leaky_mount(row: Mapping[str, Any]) -> bool:
    mount = row.get("attempts", {}).get(leak_pods.CLASS_MOUNT, {})
    return bool(mount.get("state") == leak_pods.BY_DESIGN)


def findings(
    node: str, results: Mapping[str, Result], remedy: str = _GUARD, first: str = ""
) -> list[dict[str, str]]:
    """Return what is wrong with a node.

    `remedy` is against what the variable gives, `first` what the test needs before it can prove
    anything.
    """
    found = []
    leaked = {name: one for name, one in results.items() if one.state == leak_pods.LEAKED}
    if leaked:
        texts = [f"{leak_pods.ATTEMPTS[name]} ({_seen(one)})" for name, one in leaked.items()]
        # What a plain image gets, no admission policy takes away.
        advice = remedy if leaked.keys() <= _BY_VARIABLE else _OTHER
        found.append(finding("GPU_LEAKED", node, evidence="; ".join(texts), remedy=advice))
    missing: dict[str, list[str]] = {}
    for name, one in results.items():
        if one.state == leak_pods.UNPROVEN:
            missing.setdefault(one.message, []).append(name)
    if missing:
        texts = [f"{', '.join(names)}: {message}" for message, names in missing.items()]
        found.append(
            finding("LEAK_UNPROVEN", node, evidence="; ".join(texts), remedy=first or _CORRECT)
        )
    return found


def _seen(result: Result) -> str:
    rest = result.total - len(result.seen[:_SHOWN])
    more = f" and {rest} more" if rest else ""
    return f"{', '.join(result.seen[:_SHOWN])}{more}"
