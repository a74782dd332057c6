# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is left of nvidia-docker, and would be in the way of the container toolkit?"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import installed
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan, Step

V1 = Step("v1_containers", "Remove the containers and volumes of nvidia-docker v1")
PACKAGES = Step("leftovers", "Remove nvidia-docker")
REPOSITORIES = Step("leftover_repositories", "Remove the repositories of nvidia-docker")

STEPS = (V1, PACKAGES, REPOSITORIES)

# The packages of nvidia-docker v1 and v2, as NVIDIA's instructions installed them. The package with
# the program that daemon.json names is removed later, after the container toolkit is installed.
_PACKAGES = ("nvidia-docker", "nvidia-docker2")
_LISTS = ("nvidia-docker", "nvidia-container-runtime", "libnvidia-container")


def plan_leftovers(plan: Plan[Data], node: Node, desired: Desired) -> None:
    """Plan the removal of nvidia-docker. Its daemon.json stays; the next role adopts it."""
    found = node["engines"]["docker"]["v1"]
    containers = [container["name"] for container in found["containers"]]
    volumes = list(found["volumes"])
    if (containers or volumes) and not desired["v1_removal_ok"]:
        plan.refuse(
            "NVIDIA_DOCKER_V1",
            containers=", ".join(containers) or "none",
            volumes=", ".join(volumes) or "none",
        )
    packages = installed(node, _PACKAGES)
    if systems.is_redhat(node):
        # The removal of the rpm would delete daemon.json with the admin's edits.
        packages = [name for name in packages if name != "nvidia-docker2"]
    lists = [name for name in _LISTS if name in node["repositories"]]
    # The repository of the toolkit alone may be in use, and is harmless.
    if not packages and lists == ["libnvidia-container"]:
        lists = []
    plan.data |= {
        "v1_containers": [container["id"] for container in found["containers"]],
        "v1_volumes": volumes,
        "leftover_packages": packages,
        "leftover_lists": [node["repositories"][name]["path"] for name in lists],
    }
    gone = [*containers, *volumes]
    plan.step(
        V1,
        f"they stop working without nvidia-docker v1: {', '.join(gone)}" if gone else None,
    )
    plan.step(PACKAGES, f"installed: {', '.join(packages)}" if packages else None)
    plan.step(REPOSITORIES, f"configured: {', '.join(lists)}" if lists else None)
