# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are the driver of Debian or Ubuntu itself, for computing only?

Debian's packages build the module with DKMS. Their dependencies are in three components of its
archive. Ubuntu's have modules that Ubuntu built and signed, one package for each kernel.

Source: the indexes of Debian's bookworm and trixie, 2026-11-22
Source: the packages of nodes with Ubuntu's driver 580, 2026; known.py has the details
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import OPEN
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    kernels,
    known,
    packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import DISTRIBUTION
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.packages import (
    DriverPackages,
    versions,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import Choice
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System

# nvidia-open-kernel-dkms is in contrib, the firmware in non-free-firmware.
_COMPONENTS = {"debian": ("contrib", "non-free", "non-free-firmware"), "ubuntu": ("restricted",)}
# Packages of modules have the version of their kernel, and follow it.
_MODULES = "linux-modules-nvidia-"
# What only Ubuntu's archive has: its drivers for servers, its modules, and its revisions.
_OF_UBUNTU = re.compile(r".+-server(-open)?|linux-(modules|objects)-nvidia-.+")
# NVIDIA's own have been -0ubuntu1, too.
_OF_UBUNTU_REVISION = re.compile(r".+-\d+ubuntu\d+\.\d\d\.\d\d\.\d+|.+-0ubuntu(?:[2-9]|\d\d+).*")
# The same for Debian's, and for NVIDIA's repositories for Debian. Other names are in both.
_OF_DEBIAN = re.compile(r"(lib)?nvidia-(tesla|legacy)-.+|nvidia-open-kernel-dkms")
_NOT_OF_DEBIAN = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms")
# Modules need one version of the driver. With another one, apt removes those of other kernels.
OF_OLDER_KERNELS = f"{_MODULES}*"
ANY = "*"


def components(system: System) -> tuple[str, ...]:
    """Return the components of the archive that the driver needs besides main."""
    return _COMPONENTS[system.id]


def is_ubuntus(node: Node, source: str | None) -> bool:
    """Tell whether a driver of this source is Ubuntu's own, with modules that Ubuntu built."""
    return source == DISTRIBUTION and systems.supported(node).id == "ubuntu"


def packages_for(node: Node, choice: Choice) -> DriverPackages | None:
    """Return the packages of a driver, from any source; None if their names are not confirmed."""
    system = systems.supported(node)
    if choice.source == DISTRIBUTION:
        return _choose(node, system, choice)
    return packages.choose(system, choice.version, choice.flavour)


def _choose(node: Node, system: System, choice: Choice) -> DriverPackages:
    """Return the packages of a driver of the distribution."""
    if system.id == "ubuntu":
        return _ubuntu(node, choice)
    (row,) = (one for one in known.archives(system) if one.branch == choice.branch)
    return _debian(choice, row)


def has_made(system: System, carriers: Mapping[str, str]) -> bool:
    """Return whether the packages that contain a driver are the distribution's own."""
    if system.id == "ubuntu":
        return any(
            _OF_UBUNTU.fullmatch(name) or _OF_UBUNTU_REVISION.fullmatch(version)
            for name, version in carriers.items()
        )
    if any(map(_OF_DEBIAN.fullmatch, carriers)):
        return True
    found = {version.partition(".")[0] for version in versions(carriers)}
    is_nvidias = any(name in carriers for name in _NOT_OF_DEBIAN)
    return not is_nvidias and any(str(one) in found for one in known.made_branches(system))


def holdable(names: Iterable[str]) -> list[str]:
    """Return the packages to hold.

    Modules must come with each new kernel; those of another driver's version do not, because they
    depend on what is held. Earlier versions of the role installed a package that pins the driver.
    """
    return [name for name in names if "-pinning-" not in name and not name.startswith(_MODULES)]


def asked(node: Node, choice: Choice, desired: Mapping[str, str]) -> dict[str, str]:
    """Return the packages as apt is asked for them, by name and version.

    For a pattern, apt takes the newest version that matches, whatever the pin says, and the
    dependencies follow the pin. With trixie-backports, they do not fit. So only the pin chooses.
    Source: apt 2.6.1 and 3.0.3 with trixie and trixie-backports, 2026-11-23
    """
    is_any = choice.source == DISTRIBUTION and "*" in choice.version
    if is_any and systems.supported(node).id == "debian":
        return dict.fromkeys(desired, "")
    return {**desired}


def is_update(desired: Iterable[str], ours: Iterable[str]) -> bool:
    """Whether an installation has to change the role's own driver within its branch.

    Modules need the driver of one version. Those of a newer kernel can need a newer one than the
    one that the role holds.
    """
    desired = {*desired}
    return any(one.startswith(_MODULES) for one in desired) and not desired.isdisjoint(ours)


def recorded(following: Iterable[str]) -> dict[str, str]:
    """Return the packages that follow the kernel and are a part of the driver, to be recorded.

    Headers are not: the admin's other modules may need them.
    """
    names = (one.partition("=")[0] for one in following)
    return {name: ANY for name in names if name.startswith(_MODULES)}


def _debian(choice: Choice, row: known.Archive) -> DriverPackages:
    version = choice.version if "*" in choice.version else f"{choice.version}-*"
    series = f"{row.series}-" if row.series else ""
    kernel = "nvidia-open-kernel-dkms" if choice.flavour == OPEN else f"nvidia-{series}kernel-dkms"
    cuda, settings = f"libnvidia-{series}cuda1" if series else "libcuda1", f"libnvidia-{series}cfg1"
    return DriverPackages(
        packages={
            **dict.fromkeys((kernel, f"nvidia-{series}smi", cuda, settings), version),
            # NVIDIA's repository, if the node has it, has newer ones.
            "nvidia-persistenced": f"{row.daemon or row.branch}.*",
        },
        headers=kernels.HEADERS,
        stream=None,
        following=kernels.HEADERS,
    )


def ubuntu_version(choice: Choice) -> str:
    """Return the version of Ubuntu's packages, with an open revision."""
    return choice.version if "*" in choice.version else f"{choice.version}-*"


def _ubuntu(node: Node, choice: Choice) -> DriverPackages:
    version = ubuntu_version(choice)
    series = f"{choice.branch}-server"
    of_flavour = f"{series}-open" if choice.flavour == OPEN else series
    modules = f"{_MODULES}{of_flavour}-"
    return DriverPackages(
        packages={
            f"nvidia-headless-no-dkms-{of_flavour}": version,
            f"nvidia-compute-utils-{series}": version,
            f"nvidia-utils-{series}": version,
            f"{modules}{node['kernel']['release']}": ANY,
        },
        headers="",
        stream=None,
        following=modules,
    )
