# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which drivers were seen where? Facts about NVIDIA's repositories and the distributions' archives.

NVIDIA's repositories keep old versions, so a version that was seen there is still there. An archive
has one version of a branch at a time: a point release or a security update replaces it.
tests/recorded/packages has each of these versions, and a test compares both.

Sources, with the date on which somebody read them:

- Debian 12 and 13, NVIDIA's repository: its Packages.gz, 2026-09-23 (545 to 615, and 590 to 615);
  NVIDIA/cuda-repo-management#38, open, 2026-08-04; no 580 for Debian 13 on 2026-10-05.
  580.178.04 on Debian 12: GoogleCloudDataproc/initialization-actions#1400, 2026-08-06.
- Ubuntu, NVIDIA's repository: 580.178.04-1ubuntu1 on 22.04, 2026-09-13; the index of 24.04,
  2026-05-21 and 2026-07-21; that of 26.04, 2026-05-25 and 2026-09-05 (595 and 615, no 580).
- Enterprise Linux: repodata of rhel9 (515 to 615) and rhel10 (580 to 615), 2026-09-23; 580.178.04
  in both, 2026-08-28 and 2026-10-05.
- 575.57.08 is in rhel9, too, but its module does not build for the kernel of 9.8, 5.14.0-687:
  GoogleCloudPlatform/ops-agent#2355, 2026-06-16. So it is no choice there.
- Debian's archive: the indexes of bookworm (12.15) with its security updates and of trixie (13.7),
  2026-11-23, and what apt resolved the packages to on that day, without recommended ones.
- Debian's open modules 535.261.03 and 550.163.01 call pci_resize_resource() with three arguments.
  The headers of 6.1.190, 6.12.107 and 6.12.117 declare four. Read in the sources, 2026-11-23; the
  proprietary modules 470, 535 and 550 do not call it.
- Ubuntu's archive: the indexes of jammy-updates, noble-updates and resolute-updates, 2026-11-23.
- Branches: NVIDIA's list of supported drivers for 615 (580 until June 2028, 595 until March 2027).
- Modules: the driver's README since 515 (open), and NVIDIA's guide for 620 (no proprietary one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import OPEN, PROPRIETARY
from ansible_collections.metal.gpu.plugins.module_utils.read.version import is_newer
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import REDHAT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System

# The long-term branch, and the production branch: the first that the GPUs and the repository allow.
DEFAULT_BRANCHES = (580, 595)
FIRST_OPEN = 515
FIRST_WITHOUT_PROPRIETARY = 620


class Repository(NamedTuple):
    """What NVIDIA's repository has for a system."""

    first: int  # the oldest branch; 0: nobody wrote down which one that is
    seen: Mapping[int, str]  # a version of each branch


class Archive(NamedTuple):
    """A driver in the archive of a distribution."""

    branch: int
    version: str
    flavours: tuple[str, ...]  # the one that `auto` prefers first
    series: str = ""  # in the names of Debian's packages for older GPUs
    daemon: int = 0  # the branch of nvidia-persistenced, if it is another one
    is_signed: bool = False  # whether the modules load with Secure Boot


_NVIDIA = {
    ("debian", "12"): Repository(545, {570: "570.211.01", 575: "575.57.08", 580: "580.178.04"}),
    ("debian", "13"): Repository(590, {595: "595.71.05", 610: "610.57.04", 615: "615.71.09"}),
    ("ubuntu", "22.04"): Repository(0, {580: "580.178.04", 610: "610.57.04"}),
    ("ubuntu", "24.04"): Repository(
        0, {580: "580.178.04", 590: "590.48.01", 595: "595.71.05", 610: "610.57.04"}
    ),
    ("ubuntu", "26.04"): Repository(595, {595: "595.71.05", 615: "615.71.09"}),
    ("rhel", "9"): Repository(515, {580: "580.178.04"}),
    ("rhel", "10"): Repository(580, {580: "580.178.04"}),
}
_ARCHIVES = {
    # Debian's sources of the open module do not fit its kernels of autumn 2026. The proprietary one
    # serves all GPUs but Blackwell, which needs a newer branch anyway.
    ("debian", "12"): (
        Archive(535, "535.309.01", (PROPRIETARY,)),
        Archive(470, "470.256.02", (PROPRIETARY,), series="tesla-470", daemon=535),
    ),
    ("debian", "13"): (Archive(550, "550.163.01", (PROPRIETARY,)),),
    ("ubuntu", "22.04"): (Archive(580, "580.178.04", (OPEN, PROPRIETARY), is_signed=True),),
    ("ubuntu", "24.04"): (Archive(580, "580.178.04", (OPEN, PROPRIETARY), is_signed=True),),
    ("ubuntu", "26.04"): (Archive(580, "580.178.04", (OPEN, PROPRIETARY), is_signed=True),),
}
# Kernels of Ubuntu with signed modules of 580 for servers, by the end of the kernel's name.
_SIGNED_KERNELS = {
    "22.04": (
        *("generic", "lowlatency", "nvidia", "aws", "azure", "azure-fde", "gcp", "ibm", "oracle"),
        "intel-iotg",
    ),
    "24.04": (
        *("generic", "lowlatency", "nvidia", "nvidia-lowlatency", "aws", "azure", "azure-fde"),
        *("gcp", "gke", "ibm", "oracle", "vmware"),
    ),
    "26.04": (
        *("generic", "nvidia", "nvidia-bos", "aws", "azure", "azure-fde", "gcp", "gke", "ibm"),
        *("oracle", "vmware"),
    ),
}
# What people add to Red Hat's systems for a driver. The role does not install from there.
OTHER_SOURCES = "RPM Fusion, ELRepo and negativo17"


def repository(system: System) -> Repository:
    """Return what NVIDIA's repository has. The clones of RHEL use that of RHEL."""
    return _NVIDIA["rhel" if system.family == REDHAT else system.id, system.version]


def mirrored() -> Mapping[int, str]:
    """Return what a mirror can have: a version of each branch that was seen on any system."""
    return {branch: version for one in _NVIDIA.values() for branch, version in one.seen.items()}


def archives(system: System) -> tuple[Archive, ...]:
    """Return the drivers of the distribution itself."""
    return _ARCHIVES.get((system.id, system.version), ())


def made_branches(system: System) -> set[int]:
    """Return the branches of the distribution itself, in this release and in earlier ones.

    An upgrade of the system keeps a driver that is held.
    """
    return {
        row.branch
        for (name, version), rows in _ARCHIVES.items()
        for row in rows
        if name == system.id and not is_newer(version, system.version)
    }


def signed_kernels(system: System) -> tuple[str, ...]:
    """Return the flavours of the kernel for which Ubuntu has signed modules."""
    return _SIGNED_KERNELS.get(system.version, ()) if system.id == "ubuntu" else ()


def flavours(branch: int) -> tuple[str, ...]:
    """Return the kernel modules that a branch has."""
    if branch < FIRST_OPEN:
        return (PROPRIETARY,)
    return (OPEN, PROPRIETARY) if branch < FIRST_WITHOUT_PROPRIETARY else (OPEN,)
