# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Can this machine become a GPU node, or stop being one? Changes nothing, so it has no steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils import engines, systems
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

# What Ansible and the programs themselves say when somebody may not become root.
_NOT_ROOT = re.compile(
    r"^.*(?:(?:Missing|Incorrect|Invalid|Timeout).*(?:password|privilege escalation)"
    r"|waiting for become|not in the sudoers file|may not run sudo).*$"
    r"|^(?:sudo|sudo-rs|su|doas): .+$",
    re.MULTILINE,
)
_WRAPPING = "Task failed: "


def plan(node: Mapping[str, Any], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the machine. Wishes: host, state, engine, gpu_count (None where it was not declared).

    On the way back, neither a card that is gone nor a missing kubelet is in the way.
    """
    made = Plan(wishes["host"])
    refuse_platform(made, node)
    kubelet = node["kubelet"]
    if wishes["state"] == "present":
        _refuse_gpus(made, node, wishes)
        if engines.refuse_distribution(made, node):
            return made.result()
        engines.refuse(made, node, wishes["engine"])
        if not kubelet["installed"]:
            made.refuse("KUBELET_MISSING")
            return made.result()
        joined, own = kubelet["joined_name"], kubelet["own_name"]
        if joined and own and joined != own:
            made.refuse("NODE_RENAMED", joined=joined, own=own)
    made.data["node_name"] = kubelet["node_name"]
    return made.result()


def _refuse_gpus(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    addresses = [gpu["address"] for gpu in node["pci"]]
    if not addresses:
        made.refuse("NO_GPU")
    elif wishes["gpu_count"] is not None and wishes["gpu_count"] != len(addresses):
        made.refuse(
            "GPU_COUNT_DIFFERS",
            declared=wishes["gpu_count"],
            found=len(addresses),
            addresses=", ".join(addresses),
        )
    passed_through = [gpu["address"] for gpu in node["pci"] if gpu["driver"] == "vfio-pci"]
    if passed_through:
        made.refuse("GPU_PASSED_THROUGH", addresses=", ".join(passed_through))


def refuse_platform(made: Plan, node: Mapping[str, Any]) -> None:
    """Refuse a system that no role knows. Every plan that installs packages asks this."""
    system = node["os"]
    if systems.find(system) is None or system["architecture"] != systems.ARCHITECTURE:
        name = system["name"] or system["id"] or "an unknown system"
        made.refuse(
            "OS_UNSUPPORTED",
            found=f"{name} on {system['architecture']}",
            expected=", ".join(known.name for known in systems.SYSTEMS),
        )
    if node["init"] != "systemd":
        made.refuse("INIT_UNSUPPORTED")


def refuse_unversioned(made: Plan, program: str, found: Mapping[str, Any]) -> bool:
    """Refuse a program that has told no version, for plans that depend on it; tell whether."""
    if found["version"] is not None:
        return False
    made.refuse("VERSION_UNKNOWN", program=program, error=found["version_error"])
    return True


def why_unobserved(host: str, result: Mapping[str, Any]) -> dict[str, str]:
    """Return the finding for a host from the result of an observation that failed."""
    error = result["msg"].removeprefix(_WRAPPING)
    if result.get("unreachable"):
        return finding("NODE_UNREACHABLE", host, error=error)
    said = "\n".join((error, result.get("module_stderr", ""), result.get("module_stdout", "")))
    refused = _NOT_ROOT.search(said)
    if refused:
        return finding("SUDO_REFUSED", host, error=refused[0].strip())
    return finding("NODE_NOT_OBSERVED", host, error=error)


def name_clashes(node_names: Mapping[str, str]) -> list[dict[str, str]]:
    """Return a refusal for each host that is the same Kubernetes node as another one.

    `node_names` has the node name of each inventory host.
    """
    hosts: dict[str, list[str]] = {}
    for host, node in node_names.items():
        hosts.setdefault(node, []).append(host)
    return [
        finding("NODE_NAME_TWICE", host, node=node, other=_others(host, same))
        for node, same in hosts.items()
        if len(same) > 1
        for host in same
    ]


def _others(host: str, same: Iterable[str]) -> str:
    return " and ".join(other for other in same if other != host)
