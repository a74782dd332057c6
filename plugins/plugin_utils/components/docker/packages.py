# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does the role docker_ce install, and in which versions on each system?

Source: docker/docker-ce-packaging at 2f12fe88, rpm/SPECS (epoch 3 of docker-ce, 1 of docker-ce-cli)
Source: Mirantis/cri-dockerd at v0.4.3, packaging and .github/workflows (what a release publishes)
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import RolePackages
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import REDHAT, System

ROLE = "docker_ce"
PACKAGE = "docker-ce"
OURS = RolePackages(ROLE, "metal-gpu-docker", "Docker", "the Docker repository", "Docker packages")

CRI_DOCKERD = "0.4.3"
_CRI_DOCKERD_URL = "https://github.com/Mirantis/cri-dockerd/releases/download"
# A release has packages for these versions only; newer versions use the newest of them:
# Mirantis/cri-dockerd#361. It has no rpm for Enterprise Linux.
_CRI_DOCKERD_FILES = {"debian": "debian-bookworm", "ubuntu": "ubuntu-jammy"}


def containerd(system: System, version: str) -> dict[str, str]:
    """Return the package of containerd with its version.

    Some versions were packaged more than once: 2.4.1 exists only as 2.4.1-2. The pattern selects
    the last build; an apt repository has the builds of one system.
    """
    return {"containerd.io": version if system.family == REDHAT else f"{version}-*"}


def docker(system: System, version: str) -> dict[str, str]:
    """Return the packages of the engine with their version."""
    engine, client = (3, 1) if system.family == REDHAT else (5, 5)
    return {
        PACKAGE: f"{engine}:{version}{system.build}",
        "docker-ce-cli": f"{client}:{version}{system.build}",
    }


def cri_dockerd_url(system: System) -> str | None:
    """Return the URL of the package of cri-dockerd; None if there is no package."""
    if system.id not in _CRI_DOCKERD_FILES:
        return None
    name = f"cri-dockerd_{CRI_DOCKERD}.3-0.{_CRI_DOCKERD_FILES[system.id]}_amd64.deb"
    return f"{_CRI_DOCKERD_URL}/v{CRI_DOCKERD}/{name}"
