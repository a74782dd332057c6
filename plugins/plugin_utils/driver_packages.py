# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are the NVIDIA driver, for computing and nothing else, on each system?

Names and versions are those of NVIDIA's own repository; distributions have others.

Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/version-locking.html
"""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.gpu_models import OPEN, PROPRIETARY, branch
from ansible_collections.metal.gpu.plugins.plugin_utils.systems import REDHAT, System

# Parts that have to be of one version; tools such as nvidia-settings need not.
CORE = (
    *("nvidia-driver", "nvidia-kernel", "libcuda1", "libnvidia-ml"),
    *("libnvidia-compute", "nvidia-dkms", "nvidia-utils", "kmod-nvidia"),
)

_DEBIAN_KERNEL = {OPEN: "nvidia-kernel-open-dkms", PROPRIETARY: "nvidia-kernel-dkms"}
_REDHAT_KERNEL = {OPEN: "kmod-nvidia-open-dkms", PROPRIETARY: "kmod-nvidia-latest-dkms"}
_REDHAT_STREAM = {OPEN: "open", PROPRIETARY: "dkms"}
_UBUNTU_RENAMED = 590  # from here on names have no branch, and not all of them are confirmed


class DriverPackages(NamedTuple):
    """What to install for one driver, by name, with the version each has to have."""

    packages: dict[str, str]
    pinning: dict[str, str]  # before the packages; empty where something else pins
    headers: str  # for the running kernel, less its release
    stream: str | None  # of the module nvidia-driver, where the package manager has modules


def choose(system: System, version: str, flavour: str) -> DriverPackages | None:
    """Return the packages of a driver; None where their names are not known for certain."""
    if system.family == REDHAT:
        return _redhat(system, version, flavour)
    if system.id == "ubuntu":
        return _ubuntu(system, version, flavour)
    names = ("nvidia-driver-cuda", _DEBIAN_KERNEL[flavour], "nvidia-persistenced")
    return DriverPackages(
        packages=dict.fromkeys(names, f"{version}-1"),
        pinning={f"nvidia-driver-pinning-{version}": f"{version}-1"},
        headers="linux-headers-",
        stream=None,
    )


def _ubuntu(system: System, version: str, flavour: str) -> DriverPackages | None:
    number = branch(version)
    # Nobody has seen a branch before 590 in the repository for 26.04.
    if number >= _UBUNTU_RENAMED or system.version == "26.04":
        return None
    kernel = f"nvidia-dkms-{number}{'-open' if flavour == OPEN else ''}"
    # nvidia-smi is in the utils, nvidia-persistenced in the compute utils.
    names = (
        f"libnvidia-compute-{number}",
        kernel,
        f"nvidia-utils-{number}",
        f"nvidia-compute-utils-{number}",
    )
    return DriverPackages(
        packages=dict.fromkeys(names, f"{version}-1ubuntu1"),
        pinning={f"nvidia-driver-pinning-{version}": ""},
        headers="linux-headers-",
        stream=None,
    )


def _redhat(system: System, version: str, flavour: str) -> DriverPackages:
    names = ("nvidia-driver-cuda", _REDHAT_KERNEL[flavour], "nvidia-persistenced")
    has_modules = system.version == "9"
    return DriverPackages(
        packages=dict.fromkeys(names, f"3:{version}-1.el{system.version}"),
        pinning={},
        headers="kernel-devel-",
        stream=f"{branch(version)}-{_REDHAT_STREAM[flavour]}" if has_modules else None,
    )
