# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which versions do Docker's own packages have on each system?

Source: https://github.com/docker/docker-ce-packaging
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.systems import REDHAT, System


def containerd(system: System, version: str) -> dict[str, str]:
    """Return the package of containerd with its version."""
    # The rpm has been built more than once for some versions, so the last build is good.
    return {"containerd.io": version if system.family == REDHAT else f"{version}{system.build}"}


def docker(system: System, version: str) -> dict[str, str]:
    """Return the packages of the engine with their version."""
    epoch = 3 if system.family == REDHAT else 5
    return dict.fromkeys(("docker-ce", "docker-ce-cli"), f"{epoch}:{version}{system.build}")
