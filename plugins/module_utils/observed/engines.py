# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The container engines."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe.components.docker import Proxy
from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import (
    FlagData,
    ProgramFileData,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import containerd, crio, docker


class Version(TypedDict):
    """The version of a program."""

    version: str | None
    version_error: str | None  # what it printed for `--version`, if that is no version


class Program(Version):
    """The program of a service."""

    installed: bool  # whether the program exists or runs
    path: str | None  # what the unit runs or starts, else the program in the `PATH`
    running: bool | None  # whether its unit is active


class Home(TypedDict):
    name: str
    unit: str
    is_managed: bool  # whether it generates the configuration file
    detects_runtimes: bool  # whether it looks for the NVIDIA runtime when it starts
    watched: str | None  # folder of drop-ins whose changes it applies itself
    template: str | None  # file of an admin, from which it generates the configuration
    template_lists_runtimes: bool  # whether the template, if any, lists the runtimes that it finds
    runtime_in_path: bool  # whether its `PATH` has the NVIDIA runtime's folder
    started_after_runtime: bool  # whether the NVIDIA runtime was there when it started
    former_drop_ins: list[str]  # drop-ins in a format that the next start refuses
    host_containerd: bool  # whether `containerd.service` runs, too


class ContainerdConfig(TypedDict):
    path: str
    exists: bool | None
    version: int | None
    imports: list[str]  # patterns of imported files
    cri_tables: list[str]  # tables of the CRI plugin in the file, the newest form first
    imported_cri: list[str]  # imported files with settings of the CRI plugin
    imported_nvidia: list[str]  # imported files with the runtime `nvidia`
    # `config_path` of registries in imported files; the last one counts
    imported_folders: dict[str, str]
    missing_imports: list[str]  # imported files that do not exist, with the importing file
    outline: dict[str, object]  # tables and keys, without values
    error: str | None  # why it cannot be read, or containerd rejects it, with the place
    obstacle: str | None  # why it cannot be edited, although containerd accepts it
    # command or files that show the runtimes; None: these are unknown or defaults
    source: str | None


class Containerd(Program):
    home: Home | None  # the Kubernetes distribution that contains it: k3s, RKE2 or k0s
    socket: str | None
    runc: ProgramFileData  # file of `runc`
    config: ContainerdConfig  # the main configuration file
    needs_reload: bool  # whether files of its unit are newer than what systemd has loaded
    changed_since_start: list[str]  # files that are not yet effective
    # files of `changed_since_start` that a role of this collection edited
    edited_since_start: list[str]
    cri_enabled: bool | None  # whether the CRI plugin is enabled, which the kubelet needs
    cdi_enabled: bool | None  # whether CDI is enabled for pods
    default_runtime: str | None  # runtime of pods without a RuntimeClass
    runtimes: dict[str, containerd.Runtime]  # runtimes by name
    registry: containerd.Registry  # where the CRI plugin looks for settings
    conflicts: list[str]  # settings with which the CRI plugin does not load at the next start
    missing_specs: list[str]  # files of `base_runtime_spec` that do not exist, with the runtime


class ContainerdEngine(TypedDict):
    containerd: Containerd  # containerd of the host, or of its Kubernetes distribution


class ContainerdPart(TypedDict):
    engines: ContainerdEngine


class Container(TypedDict):
    id: str
    name: str


class Running(Container):
    of_pod: bool  # whether the kubelet made it
    ephemeral: bool  # whether Docker removes it when it exits
    noted: bool  # whether it ran when the role `docker_ce` began to replace Docker
    gpus: bool  # whether it requested GPUs, as by `--gpus`, or named devices of CDI
    gpus_by_hook: bool  # whether it got GPUs by the hook of NVIDIA's runtime


class V1(TypedDict):
    unit: bool  # whether it exists
    volumes: list[str]
    containers: list[Container]  # containers with `volumes`, running or not


class Unread(TypedDict):
    set: list[list[str]]  # key paths of `config`
    removed: list[list[str]]  # key paths that it has removed
    proxy: bool  # whether the drop-in is newer than the start of Docker


class DockerConfig(TypedDict):
    path: str
    exists: bool | None
    error: str | None  # why it cannot be read
    obstacle: str | None  # why it cannot be edited, although Docker accepts it
    # command or file that shows the runtimes; None: these are unknown or defaults
    source: str | None
    settings: list[str]  # keys of the file
    outline: dict[str, object]  # its keys, without values
    fingerprints: dict[str, str]  # SHA-256 of each value, by key path
    default_runtime: str | None
    runtimes: dict[str, docker.Runtime]  # runtimes by name
    cdi_enabled: bool | None  # whether the file or the version enables it


class Starter(TypedDict):
    path: str
    file: str


class CriDockerd(TypedDict):
    installed: bool
    version: str | None
    running: bool | None
    enabled: bool  # whether it starts at boot
    socket: str | None


class Docker(Program):
    server_version: str | None  # version of the running engine
    client_path: str | None  # path of the program `docker`
    answers: bool  # whether it answers `docker info` and `docker ps` of root
    enabled: bool  # whether it starts at boot
    socket_active: bool  # whether systemd listens on `docker.socket`
    needs_reload: bool  # whether files of its unit are newer than what systemd has loaded
    changed_since_start: list[str]  # programs that it looks for at its start, and that are newer
    unread: Unread  # what the role `docker_ce` has written, and Docker has not read since
    program: Starter | None  # program in its unit, and the file that names it
    flags_source: str | None  # as `kubelet.flags_source`
    flags: list[FlagData]  # flags that are in force or in files
    # `daemon.json`, or the file of `--config-file`; its values may not be effective yet
    config: DockerConfig
    proxy: dict[str, Proxy]  # variables in the unit's files, in capitals
    default_runtime: str | None  # runtime of containers that name none
    runtimes: dict[str, docker.Runtime]  # runtimes by name
    live_restore: bool | None  # whether containers keep running without the engine
    data_root: str | None  # folder of containers and images
    storage_driver: str | None  # its name, or the name of the snapshotter
    containers: list[Running]  # running containers
    mirrors: list[str] | None  # addresses of mirrors of `docker.io`, without a slash at the end
    # containers outside of pods, by the runtime without which they do not start
    made_with: dict[str, list[str]]
    # containers that stopped when the role `docker_ce` replaced Docker
    interrupted: list[Container]
    record_error: str | None  # why the record of `interrupted` cannot be read
    # script with which a purge of the removed `docker.io` deletes all containers
    purge_script: str | None
    group: list[str]  # members of the group `docker`
    snap: list[str]  # programs of a Docker of snapd
    rootless: list[str]  # sockets and units of engines that users run without root
    cri_dockerd: CriDockerd  # cri-dockerd, which lets a kubelet use Docker
    v1: V1  # remains of nvidia-docker v1
    cgroup_driver: str | None  # `systemd` or `cgroupfs`
    cdi_enabled: bool | None


class DockerEngine(TypedDict):
    docker: Docker  # Docker, as the running engine answers, else from its configuration


class DockerPart(TypedDict):
    engines: DockerEngine


class CrioConfig(TypedDict):
    """The configuration files."""

    path: str
    exists: bool | None
    files: list[str]  # paths in the order in which CRI-O reads them
    # files with a table of a runtime, by its name; the last one counts
    runtime_files: dict[str, list[str]]
    # those of `runtime_files` whose table lacks a `monitor_path` that it needs
    without_monitor: dict[str, list[str]]
    monitor: str | None  # program `conmon` of all runtimes, according to the files
    # the default runtime, by the file that chooses it; the last one counts
    defaults: dict[str, str]
    error: str | None  # why a file cannot be read
    obstacles: dict[str, str]  # why files cannot be edited, by path
    # command or files that show the runtimes; None: these are unknown or defaults
    source: str | None


class Hook(TypedDict):
    path: str
    program: str
    always: bool | None  # its condition of this name
    error: str | None  # why the file cannot be edited


class Crio(Program):
    config: CrioConfig
    changed_since_start: list[str]  # configuration and hooks that are not yet effective
    # files of `changed_since_start` that a role of this collection edited
    edited_since_start: list[str]
    monitor_in_path: bool  # whether `conmon` is in the PATH
    monitor: str | None  # program `conmon` of all runtimes; None if each has its own
    default_runtime: str | None  # runtime of pods without a RuntimeClass
    runtimes: dict[str, crio.Runtime]  # runtimes by name
    cdi_dirs: list[str]  # folders of CDI specifications
    hooks_dirs: list[str]  # folders of OCI hooks
    hooks: list[Hook]  # OCI hooks that call a program of NVIDIA's
    auth_file: str | None  # file with the logins of registries
    openshift: str | None  # what shows that it is a part of OpenShift


class CrioEngine(TypedDict):
    crio: Crio  # CRI-O, as the running engine answers, else from its files


class CrioPart(TypedDict):
    engines: CrioEngine
