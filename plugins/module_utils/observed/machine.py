# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The machine, its packages and mounts, and what this collection changed there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe.components.nfs import (
    Values as NfsValues,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.package_manager import Lock
from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import PackageSource
from ansible_collections.metal.gpu.plugins.module_utils.read.os_release import OsRelease
from ansible_collections.metal.gpu.plugins.module_utils.read.packages import Unfinished
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow


class Os(OsRelease):
    """The operating system."""

    architecture: str  # machine name, as from `uname -m`


class Systemd(TypedDict):
    """The units whose state systemd did not report."""

    unknown: list[str]  # units, if there is systemd
    error: str | None  # error of `systemctl`


class Kernel(TypedDict):
    """The running kernel."""

    release: str | None  # result of `uname -r`
    compiler: str | None  # program that compiled it, such as `gcc-12`
    headers: bool  # whether its headers are installed, so that modules can be built
    modules: list[str]  # loaded ones among `nvidia*`, `nouveau` and `vfio_pci`


class MachinePart(TypedDict):
    os: Os
    hostname: str | None
    boot_id: str | None  # it changes with each boot
    machine_id: str | None  # it stays the same until somebody installs the system anew
    read_only: list[str]  # `/etc` and `/var/lib`, if their file systems are mounted read-only
    init: str  # `systemd` or `other`
    systemd: Systemd
    kernel: Kernel
    secure_boot: bool | None  # whether it is enabled; None without EFI
    # other tools that write the configuration: AKS, EKS, kubeadm, Kubespray, GPU Operator
    tools: list[str]
    pci: list[GpuRow]  # GPUs on the PCI bus (vendor 10de, class 0300 or 0302), sorted by address


class Package(TypedDict):
    version: str
    held: bool | None  # whether `apt-mark` or `dnf versionlock` holds it


class Repository(TypedDict):
    path: str
    entries: list[dict[str, str]]  # fields about the origin, with a hash for credentials
    key: str | None  # text of `/etc/pki/rpm-gpg/RPM-GPG-KEY-*` of this name
    error: str | None  # why the file cannot be read


class PackageManager(TypedDict):
    error: str | None  # why packages or their relations are unknown
    lock: Lock | None  # process that holds a lock
    interrupted: bool  # whether dpkg must first finish pending changes
    unfinished: dict[str, Unfinished]  # packages that dpkg did not finish, by name
    automatic: list[str]  # packages of the driver and the roles that apt installed as dependencies
    # packages that need one of the driver or a role, by name; of each list, one has to stay
    dependants: dict[str, list[list[str]]]


class PackagesPart(TypedDict):
    # installed packages that `packages` asks for, of the node's own architecture, by name
    packages: dict[str, Package]
    # files that `repositories` asks for, by name, without credentials
    repositories: dict[str, Repository]
    package_sources: list[PackageSource]  # addresses that apt and dnf get packages from
    module_streams: dict[str, str]  # enabled streams of dnf, by module
    package_manager: PackageManager  # whether apt or dnf is usable now


class SignedModules(TypedDict):
    package: str
    error: str | None  # why apt does not install them without other changes


class SignedModulesPart(TypedDict):
    # Ubuntu's modules that the newest kernel lacks; None: it has them, or no kernel has
    signed_modules: SignedModules | None


class Nfs(NfsValues):
    unread: list[str]  # names of `units` that systemd has not read since they were written


class NfsPart(TypedDict):
    nfs: Nfs  # what mounts NFS exports, and what the kernel can mount


class Change(TypedDict):
    key: list[str]  # path of keys
    before: object  # None: there was none
    after: str | None  # fingerprint of the new value; None: the edit removed it


class Edit(TypedDict):
    path: str  # path in the engine's configuration, also if that is a link
    actor: str
    changes: list[Change]  # edited values
    untouched: bool  # whether the file has not changed since the edit
    error: str | None  # why the history cannot be read, so that nothing can be undone


class _Entry(TypedDict):
    version: str  # desired version, or the installed one if the role asked for any
    before: str | None  # None: it was not installed


class Entry(_Entry, total=False):
    config_sha256: str  # hash of the configuration file that the package created


class Record(TypedDict):
    path: str  # file of the record
    packages: Mapping[str, Entry]  # packages by name
    error: str | None  # why the record cannot be read


class Ours(TypedDict):
    files: list[str]  # files with a block of a role; lines outside the block are the admin's
    edits: list[Edit]  # files that `metal.gpu.config_document` can restore
    packages: dict[str, Record]  # records of what each role installed, by role


class OursPart(TypedDict):
    ours: Ours  # what this collection changed on the node
