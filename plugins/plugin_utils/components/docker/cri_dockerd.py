# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does a kubelet that is configured for cri-dockerd have it?"""

from __future__ import annotations

from urllib.parse import urlsplit

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import distributions
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet import socket_path
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import packages
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import hold_reason, refuse_url
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, Step

INSTALL = Step("cri_dockerd", "Install cri-dockerd")
HOLD = Step("hold_cri_dockerd", "Hold cri-dockerd")
START = Step("start_cri_dockerd", "Start cri-dockerd")

TRANSACTIONS = (INSTALL, HOLD)
STEPS = (INSTALL, HOLD, START)

PACKAGE = "cri-dockerd"
_URL = "cri-dockerd (docker_ce_cri_dockerd_url)"


def plan_cri_dockerd(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan cri-dockerd if the kubelet is configured for it."""
    found = node["engines"]["docker"]["cri_dockerd"]
    endpoint = node["kubelet"]["endpoint"]
    if not endpoint or _is_of_distribution(node, endpoint):
        return
    if not found["installed"]:
        system = systems.supported(node)
        url = desired["cri_dockerd_url"] or packages.cri_dockerd_url(system)
        plan.data["cri_dockerd_url"] = url
        suffix = systems.SUFFIXES[system.family]
        if url is None:
            plan.refuse("CRI_DOCKERD_UNPACKAGED", endpoint=endpoint, found=system.name)
        elif refuse_url(plan, _URL, url):
            plan.data["cri_dockerd_url"] = None
        elif not urlsplit(url).path.endswith(suffix):
            error = f"its last part has to be the name of a {suffix} file"
            plan.refuse("URL_INVALID", what=_URL, error=error)
        elif not desired["cri_dockerd_checksum"]:
            plan.refuse("CRI_DOCKERD_MISSING", endpoint=endpoint, url=url)
        packages.OURS.record(plan, node, {PACKAGE: ""})
        plan.step(INSTALL, f"the kubelet is configured for {endpoint}")
    if not found["installed"] or PACKAGE in packages.OURS.of_role(node):
        plan.step(HOLD, hold_reason(node, [PACKAGE]))
    if not found["running"] or not found["enabled"]:
        plan.step(START, f"the kubelet is configured for {endpoint}")


def _is_of_distribution(node: Node, endpoint: str) -> bool:
    """Whether a Kubernetes distribution has its own cri-dockerd, as k3s with --docker."""
    distribution = node["kubelet"]["distribution"]
    home = distributions.home_of(distribution["unit"]) if distribution else None
    return home is not None and home.cri_dockerd == socket_path(endpoint)
