# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are the NVIDIA driver, for computing only, on each system?

Names and versions are those of NVIDIA's own repository; distribution.py has the others.

Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/version-locking.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import is_fabric_package
from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import (
    OPEN,
    PROPRIETARY,
    branch,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import REDHAT, System

# Packages with libcuda, libnvidia-ml or nvidia-smi, or with the kernel module or its source. If
# none of them is installed, there is no driver. Helpers such as nvidia-kernel-common,
# nvidia-modprobe, firmware and linux-objects-nvidia-* do not count: `apt remove` leaves them.
# Names: NVIDIA's of 515 to 615 and Ubuntu's as apt and dnf listed them, Debian's of its archive.
_CARRIERS = re.compile(
    r"libcuda1|libnvidia-ml1?|nvidia-smi|nvidia-driver-cuda(-libs)?"
    r"|(libnvidia-compute|nvidia-utils|nvidia-dkms)(-.+)?"
    r"|nvidia-kernel(-open)?-dkms|nvidia-open-kernel-dkms|(akmod|dkms|kmod)-nvidia(-.+)?"
    r"|linux-modules-nvidia-.+"
    # Of ELRepo and RPM Fusion. NVIDIA's packages for Enterprise Linux conflict with these names.
    # Source: NVIDIA/yum-packaging-nvidia-driver, nvidia-driver.spec
    r"|nvidia-x11-drv(-.+)?|xorg-x11-drv-nvidia-(.+-)?cuda(-libs)?"
    # Debian's for older GPUs, such as nvidia-tesla-535-kernel-dkms and libnvidia-tesla-535-ml1
    r"|(lib)?nvidia-(tesla|legacy)-.*(kernel(-open)?-dkms|smi|cuda1|ml1)"
)

# They use the driver, and are no part of it.
_BESIDE_DRIVER = re.compile(
    r"(nvidia-(mig-manager|fs|gds|peer-memory|cuda-toolkit)|libnvidia-nscq)(-.+)?"
)
_DEBIAN_KERNEL = {OPEN: "nvidia-kernel-open-dkms", PROPRIETARY: "nvidia-kernel-dkms"}
_REDHAT_KERNEL = {OPEN: "kmod-nvidia-open-dkms", PROPRIETARY: "kmod-nvidia-latest-dkms"}
_REDHAT_STREAM = {OPEN: "open", PROPRIETARY: "dkms"}
# dkms of EPEL needs it, of any version. Without it, dnf takes that of the newest kernel, and a part
# of that kernel. It brings kernel-devel of the same version.
# Source: dkms.spec of Fedora, 3.1.2 to 3.2.0
_REDHAT_HEADERS, _REDHAT_HEADERS_ALONE = "kernel-devel-matched-", "kernel-devel-"
# Since this branch, names have no branch number, and nvidia-smi is in libnvidia-compute.
# Source: what cuda-drivers 610.57.04 brings on Ubuntu 22.04, 2026-09; for the other releases,
# NVIDIA's guide for 610.
_UBUNTU_RENAMED = 590
# The first branch whose records name the packages that the others need with `>=`, so that apt could
# take them from a newer driver. In 460, nvidia-persistenced was a part of nvidia-compute-utils.
_UBUNTU_SPLIT = 580
# The compiler of the kernels 6.5 and 6.8 of Ubuntu 22.04. Its default, gcc-11, fails with them.
_COMPILER_NEEDED = {("ubuntu", "22.04"): "gcc-12"}
COMPILERS = (*_COMPILER_NEEDED.values(),)
# NVIDIA's `.run` installer refuses a node without `cc` and /usr/include/stdio.h. dkms of Debian and
# Ubuntu at most recommends them, and the role installs no recommended packages.
# Source: misc.c of NVIDIA/nvidia-installer, 580 and 590.48.01
INSTALLER_NEEDS = ("gcc", "libc6-dev")
# Those of them that neither NVIDIA nor a distribution makes: of ELRepo and RPM Fusion.
_OF_OTHERS = re.compile(r"akmod-nvidia(-.+)?|nvidia-x11-drv(-.+)?|xorg-x11-drv-nvidia-.+")


class DriverPackages(NamedTuple):
    """What to install for one driver: names with their versions.

    Revisions are open: NVIDIA's differ by version (-0ubuntu1, -1ubuntu1, -2ubuntu1 were seen). Of
    several, apt takes the highest; those of Ubuntu's own archive are lower (-0ubuntu0.22.04.1).
    """

    packages: dict[str, str]
    headers: str  # for the running kernel, less its release; empty if nothing is built
    stream: str | None  # of the module nvidia-driver, if the package manager has modules
    # The start of the name of the package that brings what the next kernel needs; empty if none.
    following: str = ""


def carriers(packages: Mapping[str, str]) -> dict[str, str]:
    """Return the packages that contain a driver, with their versions."""
    return {name: version for name, version in packages.items() if _CARRIERS.fullmatch(name)}


def is_of_others(name: str) -> bool:
    """Return whether a package contains a driver of neither NVIDIA nor a distribution."""
    return _OF_OTHERS.fullmatch(name) is not None


def is_beside_driver(name: str) -> bool:
    """Return whether a package of NVIDIA's is none of the driver, such as Fabric Manager."""
    return is_fabric_package(name) or _BESIDE_DRIVER.fullmatch(name) is not None


def versions(packages: Mapping[str, str]) -> set[str]:
    """Return the upstream versions of the packages that contain a driver.

    Packages of Ubuntu's modules have the version of their kernel.
    """
    return {
        upstream_version(version)
        for name, version in carriers(packages).items()
        if not name.startswith("linux-modules-")
    }


def choose(system: System, version: str, flavour: str) -> DriverPackages | None:
    """Return the packages of a driver; None if their names are not confirmed."""
    if system.family == REDHAT:
        return _redhat(system, version, flavour)
    if system.id == "ubuntu":
        return _ubuntu(system, version, flavour)
    return _apt(version, "nvidia-driver-cuda", _DEBIAN_KERNEL[flavour], "nvidia-persistenced")


def _ubuntu(system: System, version: str, flavour: str) -> DriverPackages | None:
    number = branch(version)
    suffix = "-open" if flavour == OPEN else ""
    if number >= _UBUNTU_RENAMED:
        return _apt(version, "libnvidia-compute", f"nvidia-dkms{suffix}", "nvidia-persistenced")
    # The repository for 26.04 starts with branch 595.
    if system.version == "26.04":
        return None
    # nvidia-smi is in the utils.
    names = [
        f"libnvidia-compute-{number}",
        f"nvidia-dkms-{number}{suffix}",
        f"nvidia-utils-{number}",
        f"nvidia-compute-utils-{number}",
    ]
    if number >= _UBUNTU_SPLIT:
        names += [
            f"nvidia-kernel-source-{number}{suffix}",
            f"nvidia-kernel-common-{number}",
            f"nvidia-firmware-{number}",
            "nvidia-modprobe",
            "nvidia-persistenced",
        ]
    return _apt(version, *names)


def _apt(version: str, *names: str) -> DriverPackages:
    return DriverPackages(
        packages=dict.fromkeys(names, f"{version}-*"),
        headers="linux-headers-",
        stream=None,
        following="linux-headers-",
    )


def _redhat(system: System, version: str, flavour: str) -> DriverPackages:
    # The others need nvidia-modprobe of any version, so dnf would take the newest one.
    daemons = ("nvidia-persistenced", "nvidia-modprobe")
    names = ("nvidia-driver-cuda", _REDHAT_KERNEL[flavour], *daemons)
    has_modules = system.version == "9"
    return DriverPackages(
        packages=dict.fromkeys(names, f"3:{version}"),
        headers=_REDHAT_HEADERS,
        stream=f"{branch(version)}-{_REDHAT_STREAM[flavour]}" if has_modules else None,
    )


def redhat_headers(node: Node) -> dict[str, str]:
    """Return the headers of the running kernel, as dkms needs them, if the node lacks them."""
    has_matched = any(f"{name}-".startswith(_REDHAT_HEADERS) for name in node["packages"])
    if node["kernel"]["headers"] and (has_matched or "dkms" in node["packages"]):
        return {}
    # Only one version of it can be installed, and any will do for dkms.
    start = _REDHAT_HEADERS_ALONE if has_matched else _REDHAT_HEADERS
    return {f"{start}{node['kernel']['release']}": ""}


def redhat_next_headers(release: str) -> dict[str, str]:
    """Return the headers of a kernel beside those of the running one."""
    return {f"{_REDHAT_HEADERS_ALONE}{release}": ""}


def compilers(system: System, kernel_compiler: str | None) -> list[str]:
    """Return the package of the kernel's compiler, if the default one cannot build the module."""
    needed = _COMPILER_NEEDED.get((system.id, system.version))
    return [needed] if needed and needed == kernel_compiler else []
