# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Do the services of a node run, and are its components as the roles want them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.read.containerd import DEFAULT_SOCKET
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet import socket_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import (
        Containerd,
        CriDockerd,
        Crio,
        Docker,
    )
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import PlanResult

# Notices about a node that is well now and not after the next boot or the next run of another tool,
# about a second engine, about a file that breaks some containers or opens a way to GPUs, and about
# variables without the effect that they ask for.
_WORTH_KNOWING = (
    "CDI_FILE_OUTDATED",
    "CGROUP_DRIVERS_DIFFER",
    "ENGINE_BESIDE",
    "ENGINE_NOT_STARTABLE",
    "KERNEL_PENDING",
    "KUBESPRAY_OVERWRITES",
    "REPOSITORY_KEPT",
    "REPOSITORY_UNUSED",
    "SIGNING_KEY_UNTRUSTED",
    "SWARM_RESOURCE_SET",
)
# The finding that already reports a stopped component; that of an engine is ENGINE_STOPPED.
_STOPPED = {"kubelet": "KUBELET_STOPPED", "driver": "FABRIC_MANAGER_STOPPED"}


def judge_services(host: str, node: Node) -> Iterator[dict[str, str]]:
    kubelet = node["kubelet"]
    if kubelet["installed"] and kubelet["running"] is False:
        state = kubelet["unit_state"]
        error = f"its unit is {state['active']} ({state['sub']}, {state['result']})"
        distribution = kubelet["distribution"]
        unit = _bare(distribution["unit"]) if distribution else "kubelet"
        yield finding("KUBELET_STOPPED", host, error=kubelet["last_error"] or error, unit=unit)
        if distribution:
            return  # its engine is in the same unit
    for unit in _stopped_engines(node):
        yield finding("ENGINE_STOPPED", host, unit=unit)


def _bare(unit: str) -> str:
    """Return the name of a service as people type it."""
    return unit[: -len(".service")] if unit.endswith(".service") else unit


def _stopped_engines(node: Node) -> Iterator[str]:
    """Yield the units between the kubelet and its containers that do not run.

    The kubelet does not use other engines.
    """
    endpoint = node["kubelet"]["endpoint"] or ""
    engines = node["engines"]
    docker, socket = engines["docker"], engines["containerd"]["socket"] or DEFAULT_SOCKET
    services: dict[str, Docker | CriDockerd | Containerd | Crio] = {}
    if "cri-dockerd" in endpoint:
        services = {"docker": docker, "cri-docker": docker["cri_dockerd"]}
    elif "crio" in endpoint:
        services = {"crio": engines["crio"]}
    elif socket_path(endpoint) == socket_path(socket):
        home = engines["containerd"]["home"]
        services = {_bare(home["unit"]) if home else "containerd": engines["containerd"]}
    for unit, service in services.items():
        if service["installed"] and service["running"] is False:
            yield unit


def judge_plans(
    host: str, node: Node, plans: Mapping[str, PlanResult], stopped: Sequence[Mapping[str, str]]
) -> Iterator[Mapping[str, str]]:
    """Yield the drift of components from their plans, the refusals, and some notices."""
    codes = [one["code"] for one in stopped]
    for component, plan in plans.items():
        yield from plan["refusals"]
        yield from (one for one in plan["notices"] if one["code"] in _WORTH_KNOWING)
        steps = [f"{step['name']} ({step['reason']})" for step in plan["steps"]]
        of_engine = "ENGINE_STOPPED" if component in node["engines"] else None
        is_reported = len(steps) == 1 and _STOPPED.get(component, of_engine) in codes
        if steps and not is_reported:
            yield finding("DRIFTED", host, component=component, reasons="; ".join(steps))
