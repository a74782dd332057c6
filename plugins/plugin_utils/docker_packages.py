# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which versions do Docker's own packages have on each system?

Source: https://github.com/docker/docker-ce-packaging
Source: https://github.com/Mirantis/cri-dockerd/releases
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.systems import REDHAT, System

_CRI_DOCKERD = "0.4.3"
_CRI_DOCKERD_URL = "https://github.com/Mirantis/cri-dockerd/releases/download"


def containerd(system: System, version: str) -> dict[str, str]:
    """Return the package of containerd with its version."""
    # The rpm has been built more than once for some versions, so the last build is good.
    return {"containerd.io": version if system.family == REDHAT else f"{version}{system.build}"}


def docker(system: System, version: str) -> dict[str, str]:
    """Return the packages of the engine with their version."""
    epoch = 3 if system.family == REDHAT else 5
    return dict.fromkeys(("docker-ce", "docker-ce-cli"), f"{epoch}:{version}{system.build}")


def cri_dockerd_url(system: System) -> str:
    """Return where the package is that lets a kubelet use Docker, which no repository has."""
    if system.family == REDHAT:
        name = f"cri-dockerd-{_CRI_DOCKERD}-3.el{system.version}.x86_64.rpm"
    else:
        codename = system.build.rpartition("~")[2]
        name = f"cri-dockerd_{_CRI_DOCKERD}.3-0.{system.id}-{codename}_amd64.deb"
    return f"{_CRI_DOCKERD_URL}/v{_CRI_DOCKERD}/{name}"
