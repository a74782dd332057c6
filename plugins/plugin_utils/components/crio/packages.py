# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does the role crio install, and from where?

CRI-O's project has one repository for each minor version, and none for a distribution. Nobody has
recorded the fingerprint of their key, so an admin has to confirm it.

Source: cri-o/packaging at b111fe9, README.md (addresses, keys, one package with its runtimes)
"""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import RolePackages
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    DEBIAN,
    PACKAGES,
    Source,
    System,
)

ROLE = "crio"
PACKAGE = "cri-o"
OURS = RolePackages(ROLE, "metal-gpu-crio", "CRI-O", "the CRI-O repository", "the CRI-O package")

_STREAMS = "https://download.opensuse.org/repositories/isv:/cri-o:/stable:"


def source(system: System, version: str) -> Source:
    """Return the repository of a version."""
    minor = ".".join(version.split(".")[:2])
    if system.family == DEBIAN:
        return Source(f"{_STREAMS}/v{minor}/deb/", "Release.key", "", suite="/")
    return Source(f"{_STREAMS}/v{minor}/rpm/", "repodata/repomd.xml.key", "", signs=PACKAGES)


def packages(system: System, version: str) -> dict[str, str]:
    """Return the package with its version.

    Its revision is mostly 1.1 and not always, so that the pattern selects the last build.
    """
    return {PACKAGE: f"{version}-*" if system.family == DEBIAN else version}
