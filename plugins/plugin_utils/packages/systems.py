# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which systems are supported, and which repositories have the packages for each of them?

A system is data. Differences between package managers are in plan.py, apt.py and dnf.py.
docs/support.md explains the levels.

Source: https://docs.docker.com/engine/install/
Source: https://github.com/NVIDIA/cuda-repo-management (keys by distribution, SIGNATURES.md)
Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import Os
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node

ARCHITECTURE = "x86_64"

EXERCISED = "exercised"  # scenarios have nodes of it
# A scenario has nodes with its package manager. The rest of the system is another one.
PACKAGE_MANAGER = "package manager exercised"
RECORDED = "recorded"  # records show that it uses NVIDIA's repository; no scenario runs on it
UNPROVEN = "unproven"  # no record shows it

DEBIAN = "debian"
REDHAT = "redhat"

SUFFIXES = {DEBIAN: ".deb", REDHAT: ".rpm"}  # of a package's file

# What the key signs. rpm must be told; apt always checks the metadata.
PACKAGES = "packages"
METADATA = "metadata"


class Source(NamedTuple):
    """The upstream repository for one system."""

    url: str
    key: str  # relative to the URL, so that a mirror with the same layout works
    fingerprint: str  # empty: only the repository itself publishes it
    suite: str = ""  # for apt; "/" where the repository is flat
    components: str = ""
    signs: str = METADATA


class System(NamedTuple):
    """A distribution in one version."""

    name: str
    level: str
    family: str
    id: str
    version: str  # of the distribution; the major number where minor ones share repositories
    build: str  # ends the versions of Docker's packages
    docker: Source
    driver: Source
    toolkit: Source
    codename: str = ""  # the suite of the distribution's own archive, for apt


_DOCKER = "https://download.docker.com/linux"
_DOCKER_APT_KEY = "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"
_DOCKER_RPM_KEY = "060A61C51B558A7F742B77AAC52FEB6B621E9F35"

_CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"
# NVIDIA has a separate key for each distribution: its file and its fingerprint.
_CUDATOOLS_APT = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_CUDATOOLS_RPM = ("D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685")
_DEBIAN_13 = ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
_UBUNTU_2604 = ("60DF8A40.pub", "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40")
_RHEL_10 = ("CDF6BA43.pub", "")

_TOOLKIT = "https://nvidia.github.io/libnvidia-container/stable"
_TOOLKIT_KEY = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"


def _apt(
    name: str,
    level: str,
    id_: str,
    version: str,
    codename: str,
    key: tuple[str, str],
) -> System:
    directory = f"{id_}{version.replace('.', '')}"
    return System(
        name,
        level,
        DEBIAN,
        id_,
        version,
        build=f"-1~{id_}.{version}~{codename}",
        docker=Source(f"{_DOCKER}/{id_}", "gpg", _DOCKER_APT_KEY, codename, "stable"),
        driver=Source(f"{_CUDA}/{directory}/{ARCHITECTURE}/", *key, suite="/"),
        toolkit=Source(f"{_TOOLKIT}/deb/amd64/", "../../../gpgkey", _TOOLKIT_KEY, suite="/"),
        codename=codename,
    )


def _rpm(
    name: str, id_: str, version: str, docker: str, key: tuple[str, str], level: str = RECORDED
) -> System:
    return System(
        name,
        level,
        REDHAT,
        id_,
        version,
        build=f"-1.el{version}",
        docker=Source(
            f"{_DOCKER}/{docker}/{version}/{ARCHITECTURE}/stable/",
            "../../../gpg",
            _DOCKER_RPM_KEY,
            signs=PACKAGES,
        ),
        driver=Source(f"{_CUDA}/rhel{version}/{ARCHITECTURE}/", *key, signs=PACKAGES),
        toolkit=Source(f"{_TOOLKIT}/rpm/{ARCHITECTURE}/", "../../../gpgkey", _TOOLKIT_KEY),
    )


SYSTEMS = (
    _apt("Debian 12", EXERCISED, "debian", "12", "bookworm", _CUDATOOLS_APT),
    _apt("Debian 13", EXERCISED, "debian", "13", "trixie", _DEBIAN_13),
    _apt("Ubuntu 22.04", EXERCISED, "ubuntu", "22.04", "jammy", _CUDATOOLS_APT),
    _apt("Ubuntu 24.04", EXERCISED, "ubuntu", "24.04", "noble", _CUDATOOLS_APT),
    _apt("Ubuntu 26.04", RECORDED, "ubuntu", "26.04", "resolute", _UBUNTU_2604),
    _rpm("RHEL 9", "rhel", "9", "rhel", _CUDATOOLS_RPM),
    _rpm("RHEL 10", "rhel", "10", "rhel", _RHEL_10),
    # Docker has packages for CentOS and for RHEL; the clones use those for CentOS.
    _rpm("Rocky Linux 9", "rocky", "9", "centos", _CUDATOOLS_RPM, PACKAGE_MANAGER),
    _rpm("Rocky Linux 10", "rocky", "10", "centos", _RHEL_10, PACKAGE_MANAGER),
    _rpm("AlmaLinux 9", "almalinux", "9", "centos", _CUDATOOLS_RPM, UNPROVEN),
    _rpm("AlmaLinux 10", "almalinux", "10", "centos", _RHEL_10, UNPROVEN),
)
_BY_RELEASE = {(system.id, system.version): system for system in SYSTEMS}


def find(os: Os) -> System | None:
    """Return the system of an observation's `os`; None if it is not supported."""
    name, version = os["id"] or "", os["version_id"] or ""
    minorless = version.partition(".")[0]
    return _BY_RELEASE.get((name, version)) or _BY_RELEASE.get((name, minorless))


def supported(node: Node) -> System:
    """Return the system of a node whose system was not refused. Raises KeyError."""
    system = find(node["os"])
    if system is None:
        raise KeyError(node["os"]["id"])
    return system


def is_redhat(node: Node) -> bool:
    """Whether a node has rpm packages."""
    return node["os"]["family"] == REDHAT
