# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is there a Docker Engine that a kubelet can use?

Installs Docker's own packages where there is no engine. An engine that is there belongs to its
owner: it is started where it stands. daemon.json is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils import docker_packages, engines, systems
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import (
    arguments,
    hold_arguments,
    hold_gap,
    installed,
    plan_no_repository,
    plan_repository,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_preflight import refuse_platform
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import Repository

PYTHON_DEBIAN = "Install python3-debian for the Docker repository"
REPOSITORY = "Add the Docker repository"
INSTALL = "Install Docker"
HOLD = "Hold Docker"
START = "Start Docker"

REMOVE = "Remove Docker"
REMOVE_REPOSITORY = "Remove the Docker repository"

STEPS = (PYTHON_DEBIAN, REPOSITORY, INSTALL, HOLD, START, REMOVE, REMOVE_REPOSITORY)

REPOSITORY_NAME = "metal-gpu-docker"
PACKAGES = ("docker-ce", "docker-ce-cli", "containerd.io")


def plan(node: Mapping[str, Any], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Plan Docker.

    Wishes: host, state, version, containerd_version, and of the repository url, suite, key
    and fingerprint.
    """
    made = Plan(wishes["host"])
    refuse_platform(made, node)
    engines.refuse(made, node, engines.DOCKER)
    refuse_config(made, node)
    if made.refusals:
        return made.result()
    if wishes["state"] == "absent":
        _plan_absent(made, node)
    elif node["engines"]["docker"]["installed"]:
        _plan_installed(made, node)
    else:
        _plan_missing(made, node, wishes)
    return made.result()


def refuse_config(made: Plan, node: Mapping[str, Any]) -> None:
    """Refuse a configuration that nobody can read."""
    error = node["engines"]["docker"]["config"]["error"]
    if error:
        made.refuse("DOCKER_CONFIG_INVALID", error=error)


def _plan_missing(made: Plan, node: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
    system = systems.known(node)
    source = Repository.wished(REPOSITORY_NAME, wishes, system.docker)
    plan_repository(made, node, source, prepare=PYTHON_DEBIAN, add=REPOSITORY)
    wanted = {
        **docker_packages.docker(system, wishes["version"]),
        **docker_packages.containerd(system, wishes["containerd_version"]),
    }
    made.data["packages"] = arguments(node, wanted)
    made.step(INSTALL, "there is no Docker")
    made.data["hold"] = hold_arguments(node, wanted)
    made.step(HOLD, hold_gap(node, PACKAGES))
    made.step(START, "there is no Docker")


def _plan_installed(made: Plan, node: Mapping[str, Any]) -> None:
    if not node["engines"]["docker"]["running"]:
        made.step(START, "it is not running")


def _plan_absent(made: Plan, node: Mapping[str, Any]) -> None:
    packages = installed(node, PACKAGES)
    made.data["packages"] = packages
    if packages and node["kubelet"]["running"]:
        made.refuse("DOCKER_IN_USE", evidence="a kubelet that runs pods in it")
    made.step(REMOVE, f"{', '.join(packages)} installed" if packages else None)
    plan_no_repository(made, node, REPOSITORY_NAME, remove=REMOVE_REPOSITORY)
