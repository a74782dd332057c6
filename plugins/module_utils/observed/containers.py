# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause
"""What gives GPUs and images to containers: toolkit, CDI, kubelet and registries."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Program
from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import (
    FlagData,
    ProgramFileData,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.distributions import Distribution
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet import Gate
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet_devices import Devices


class Toolkit(TypedDict):
    packages: dict[str, str]  # versions of its installed packages, by name
    version: str | None  # version of `nvidia-ctk`, else of the package
    # programs in `/usr/bin`, where the packages install them, by name
    programs: dict[str, ProgramFileData]
    cdi_skipped: bool  # whether the `ExecCondition` of `nvidia-cdi-refresh.service` was not met
    # devices that `nvidia-cdi-refresh.env` lists; None: the service lists everything
    cdi_devices: list[str] | None
    cdi_has_all: bool  # whether the service writes `nvidia.com/gpu=all`
    config: str | None  # path of the configuration file
    config_sha256: str | None  # hash of `config` without the edits of this collection
    runtimes: list[str] | None  # programs that the NVIDIA runtime calls, as `config` lists them
    mode: str | None  # how the NVIDIA runtime gives GPUs, such as `auto` and `legacy`
    config_error: str | None  # why `config` is invalid, or cannot be edited
    settings: dict[str, bool]  # values at the top of `config` that are true or false, by name
    # prefixes of annotations that name CDI devices; None: NVIDIA's own
    annotation_prefixes: list[str] | None
    swarm_resource: list[str]  # variables of containers that count before `NVIDIA_VISIBLE_DEVICES`
    char_dev_rules: list[str]  # rules of udev that make the links in `/dev/char`


class Cdi(TypedDict):
    spec_files: list[str]
    kinds: dict[str, str | None]  # vendor and class of the devices
    errors: dict[str, str]  # why files cannot be read; their devices are missing
    devices: list[str]  # qualified names in all files, each once
    names: dict[str, list[str]]  # qualified names in each file
    drivers: dict[str, list[str]]  # versions of the driver whose libraries a file names
    # paths of MIG instances in `/dev/nvidia-caps`, also by device
    parts: dict[str, dict[str, list[str]]]
    majors: dict[str, dict[str, int]]  # major numbers of device files, as far as a file has them


class ToolkitPart(TypedDict):
    toolkit: Toolkit  # the NVIDIA Container Toolkit
    cdi: Cdi  # specifications of the Container Device Interface; dictionaries are by path


class UnitState(TypedDict):
    active: str | None
    sub: str | None
    result: str | None


class KubeletFile(TypedDict):
    path: str
    error: str | None  # why it cannot be read
    obstacle: str | None  # why it cannot be edited


class KubeletConfig(TypedDict):
    path: str | None
    exists: bool | None
    error: str | None  # why it cannot be read
    obstacle: str | None  # why it cannot be edited, although the kubelet reads it


class KubeletConfigDir(TypedDict):
    path: str | None
    files: list[KubeletFile]  # its files


class Kubelet(Program):
    """The kubelet."""

    unit_state: UnitState  # words of systemd
    # the Kubernetes distribution that contains it, such as k3s
    distribution: Distribution | None
    # distribution that a user runs without root, if there is no other kubelet
    rootless: Distribution | None
    # name in the cluster: `--hostname-override`, else `joined_name`, else `hostname`
    node_name: str
    # name at its next start; None if a cloud provider, a shell or systemd decides
    own_name: str | None
    joined_name: str | None  # name in its client certificate
    # devices of `nvidia.com` in its checkpoint, an internal file
    devices: Devices | None
    flags_source: str | None  # `process`, or `unit` if systemd would use the flags
    flags: list[FlagData]  # flags that are in force or in files
    config: KubeletConfig  # file of `--config`
    config_dir: KubeletConfigDir  # folder of `--config-dir`
    feature_gates: list[Gate]  # places that set a gate
    health_url: str | None  # None: it is disabled
    endpoint: str | None  # socket of the container runtime
    last_error: str | None  # why it failed, from its journal
    needs_reload: bool  # whether files of its unit are newer than what systemd has loaded
    # files of its settings that it has not read since they were written
    changed_since_start: list[str]


class Cgroup(TypedDict):
    version: int | None  # 1 or 2
    driver: str | None  # cgroup driver that is configured for the kubelet


class KubeletPart(TypedDict):
    kubelet: Kubelet
    cgroup: Cgroup  # control groups


class RegistryFile(TypedDict):
    mode: str | None
    error: str | None  # why it cannot be read
    obstacle: str | None  # why it cannot be edited
    values: dict[str, str]  # hashes by key path
    items: dict[str, list[str]]  # hashes of items of lists, by key path
    ours: list[str]  # key paths of the role's values that are still there
    our_items: dict[str, list[str]]  # hashes of the role's items of lists that are still there
    our_folders: list[str]  # folders that the role made for the file
    helpers: list[str]  # registries whose logins a program has; `*` for all of them


class Registries(TypedDict):
    files: dict[str, RegistryFile]  # files by path
    certificates: dict[str, str]  # hashes of the certificates and keys of the role, by path
    exposed: list[str]  # keys of `certificates` that others than root can read
    created: list[str]  # folders that the role made for `certificates`
    folders: dict[str, list[str]]  # folders of registries, with the names in them
    unread: list[str]  # files that the role has changed since the start of their engine
    prefixes: dict[str, str]  # names that CRI-O has settings for, with the admin's file


class RegistriesPart(TypedDict):
    # files in which engines keep registries, mirrors and logins; each run hashes with a new key
    registries: Registries
