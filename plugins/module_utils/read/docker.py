# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse Docker's state: the answers of the running engine, else its file.

Source: https://docs.docker.com/reference/cli/dockerd/; `docker info` of 20.10.24.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import (
    flag,
    section,
    sections,
    text,
    texts,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import value_of
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag

UNIT, SOCKET = "docker.service", "docker.socket"
DEFAULT_CONFIG = "/etc/docker/daemon.json"
CONFIG_FLAGS = ("--config-file",)
# Flags whose values this collection uses.
FLAGS = (
    *(*CONFIG_FLAGS, "--data-root", "--graph", "-g", "--host", "-H", "--containerd"),
    *("--default-runtime", "--add-runtime"),
)
DEFAULT_DATA_ROOT = "/var/lib/docker"
DEFAULT_RUNTIME = "runc"
GROUP = "docker"
INFO = ("docker", "info", "--format={{json .}}")
# Engines before 20.10 have no {{.State}}.
PS_FORMAT = "{{.ID}}\t{{.Names}}\t{{.Status}}\t{{.Mounts}}"
PS = ("docker", "ps", "--all", "--no-trunc", f"--format={PS_FORMAT}")
HOST_CONFIG_FORMAT = (
    "{{.Id}}\t{{.HostConfig.AutoRemove}}\t{{.HostConfig.Runtime}}"
    "\t{{json .HostConfig.DeviceRequests}}"
)
HOST_CONFIG = ("docker", "inspect", f"--format={HOST_CONFIG_FORMAT}")

# Engines that users run without root, and engines that snapd installed.
# Source: tests/recorded/other_dockers.yml
ROOTLESS_PATTERNS = (
    "/run/user/*/docker.sock",
    "/home/*/.docker/run/docker.sock",
    "/home/*/.config/systemd/user/docker.service",
    "/root/.config/systemd/user/docker.service",
)
SNAP_PATTERNS = ("/snap/bin/docker", "/var/lib/snapd/snap/bin/docker")

# The containers that ran before Docker was replaced: names, keyed by id. The file is removed when
# they run again.
RECORD = "/var/lib/metal-gpu/docker-containers.json"
# A removed docker.io leaves this script. A later purge of it runs the script, which deletes all
# containers, images and volumes.
PURGE_SCRIPT = f"{DEFAULT_DATA_ROOT}/nuke-graph-directory.sh"

# `docker run --gpus` needs this file, and Docker looks for it only when it starts. It is part of
# the package nvidia-container-toolkit. Source: daemon/devices_nvidia_linux.go of Moby 29.8.
GPU_HOOK = "/usr/bin/nvidia-container-runtime-hook"
# From 29.2 on, Docker uses CDI for it if it finds this file when it starts.
CDI_HOOK = "/usr/bin/nvidia-cdi-hook"
CDI_HOOK_SINCE = (29, 2)
GPU_KIND = "nvidia.com/gpu"  # of the devices for which it asks CDI

# Drivers of a container's request for GPUs. The first one uses CDI or the hook, and a request that
# names no driver gets it, too. The others are asked for by name only.
_CDI_OF_NVIDIA = '"nvidia.com/'  # how the name of a device begins, in a list of JSON
GPU_DRIVER, HOOK_DRIVER, CDI_DRIVER = "nvidia", "nvidia.runtime-hook", "nvidia.cdi"
GPU_DRIVERS = (GPU_DRIVER, HOOK_DRIVER, CDI_DRIVER)
_GPU_CAPABILITIES = frozenset({"gpu", "nvidia"})

# Go reads them in capitals and in small letters.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")

# cri-dockerd connects the kubelet to Docker.
CRI_UNIT = "cri-docker.service"
CRI_SOCKET = "cri-docker.socket"

# nvidia-docker v1 gives GPUs to containers by volumes of its volume driver.
V1_UNIT = "nvidia-docker.service"
V1_PACKAGE = "nvidia-docker"
V1_VOLUMES = ("docker", "volume", "ls", "--quiet", "--filter=driver=nvidia-docker")

_ROOTLESS = "name=rootless"
_CDI_DEFAULT_SINCE = (28, 2)
_CGROUP_DRIVER = "native.cgroupdriver="


class Runtime(TypedDict):
    """A runtime of containers."""

    type: str | None  # containerd shim; None: an OCI runtime
    binary: str | None


class Container(NamedTuple):
    """A container, running or not."""

    id: str
    name: str
    running: bool
    volumes: tuple[str, ...]  # names, and paths of bind mounts

    @property
    def is_of_pod(self) -> bool:
        """Whether the kubelet created the container, and so restarts it."""
        return self.name.startswith("k8s_")


class HostConfig(NamedTuple):
    """Settings of a container that are fixed when it is created."""

    ephemeral: bool  # Docker removes it when it exits
    runtime: str
    gpu_drivers: tuple[str, ...]  # of its requests for NVIDIA's GPUs, such as by --gpus
    gpus: bool  # it has such requests, or names devices of CDI that are NVIDIA's


class Effective(NamedTuple):
    """The settings of the containers that Docker starts."""

    default_runtime: str
    runtimes: dict[str, Runtime]
    cgroup_driver: str | None
    cdi_enabled: bool


def parse_info(stdout: str) -> dict[str, object] | None:
    """Parse `docker info`; None if no engine answered, although the client prints JSON then.

    An engine of a user is no answer either: DOCKER_HOST or a context of root's can lead to it.
    """
    info = _load_info(stdout)
    return info if text(info, "ServerVersion") and not _is_rootless(info) else None


def is_of_user(stdout: str) -> bool:
    """Tell whether `docker info` has the answer of an engine that a user runs without root."""
    return _is_rootless(_load_info(stdout))


def _load_info(stdout: str) -> dict[str, object]:
    try:
        info = json.loads(stdout)
    except (ValueError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}


def _is_rootless(info: Mapping[str, object]) -> bool:
    return _ROOTLESS in (texts(info, "SecurityOptions") or ())


def gives_gpus_by_cdi(
    version: str | None, *, has_cdi: bool, has_hook: bool, has_devices: bool
) -> bool:
    """Tell whether a container of `--gpus` gets its GPUs by CDI. Otherwise, the hook gives them.

    `has_cdi`: the running engine reads CDI specifications. `has_hook`: CDI_HOOK was there when it
    started. `has_devices`: a specification has what the container asks for. Where CDI fails, Docker
    takes the hook. Source: tests/recorded/docker_daemon.yml, gpus
    """
    prefers_cdi = release(version or "") >= CDI_HOOK_SINCE and has_hook
    return prefers_cdi and has_cdi and has_devices


def effective_from_info(info: Mapping[str, object]) -> Effective:
    return Effective(
        default_runtime=text(info, "DefaultRuntime") or DEFAULT_RUNTIME,
        runtimes=_parse_runtimes(sections(info, "Runtimes")),
        cgroup_driver=text(info, "CgroupDriver") or None,
        cdi_enabled=bool(texts(info, "CDISpecDirs")),  # empty if CDI is disabled or unsupported
    )


def effective_from_file(document: Mapping[str, object], version: str) -> Effective:
    """Read daemon.json as an engine of this version does."""
    drivers = [
        option[len(_CGROUP_DRIVER) :]
        for option in texts(document, "exec-opts")
        if option.startswith(_CGROUP_DRIVER)
    ]
    cdi = flag(document, "features", "cdi")
    return Effective(
        default_runtime=text(document, "default-runtime") or DEFAULT_RUNTIME,
        runtimes=_parse_runtimes(sections(document, "runtimes")),
        cgroup_driver=drivers[-1] if drivers else None,
        cdi_enabled=release(version) >= _CDI_DEFAULT_SINCE if cdi is None else cdi,
    )


def _parse_runtimes(runtimes: Mapping[str, Mapping[str, object]]) -> dict[str, Runtime]:
    return {
        name: {"type": _field(runtime, "runtimeType"), "binary": _field(runtime, "path")}
        for name, runtime in runtimes.items()
    }


def _field(table: Mapping[str, object], name: str) -> str | None:
    """Return a text. Inside its options, Docker ignores the case of a name, and takes the last."""
    found = [value for key, value in table.items() if key.lower() == name.lower()]
    return found[-1] if found and isinstance(found[-1], str) else None


def unknown_option(document: Mapping[str, object]) -> str | None:
    """Return an option that Docker rejects, because its options are in small letters."""
    return next((key for key in document if key != key.lower()), None)


def data_root(
    document: Mapping[str, object], flags: Sequence[Flag], info: Mapping[str, object] | None
) -> str:
    """Return the data root of the running engine, else the one that it will use."""
    given = text(info, "DockerRootDir") or text(document, "data-root") or text(document, "graph")
    return given or value_of(flags, "--data-root", "--graph", "-g") or DEFAULT_DATA_ROOT


def storage_driver(document: Mapping[str, object], info: Mapping[str, object] | None) -> str | None:
    """Return the storage driver of the running engine, else the one of the file; None: unknown."""
    return text(info, "Driver") or text(document, "storage-driver") or None


def mirrors(info: Mapping[str, object] | None) -> list[str] | None:
    """Return the mirrors of docker.io that the running engine uses; None: unknown.

    Docker adds a slash at their end.
    """
    found = section(info, "RegistryConfig").get("Mirrors")
    if not isinstance(found, list):
        return None
    return [str(one).rstrip("/") for one in found]


def live_restore(document: Mapping[str, object], info: Mapping[str, object] | None) -> bool:
    """Return whether containers keep running while the engine is stopped."""
    source, key = (info, "LiveRestoreEnabled") if info else (document, "live-restore")
    return bool(flag(source, key))


def parse_ps(stdout: str) -> tuple[Container, ...]:
    """Parse the output of PS."""
    rows = (line.split("\t") for line in stdout.splitlines())
    return tuple(
        Container(
            id=row[0],
            name=row[1].split(",")[0],
            running=row[2].startswith("Up"),
            volumes=tuple(name for name in row[3].split(",") if name),
        )
        for row in rows
        if len(row) == 4
    )


def parse_host_configs(stdout: str) -> dict[str, HostConfig]:
    """Parse the output of HOST_CONFIG, keyed by the id of the container."""
    rows = (line.split("\t") for line in stdout.splitlines())
    return {
        row[0]: HostConfig(
            row[1] == "true", row[2], drivers, bool(drivers) or _CDI_OF_NVIDIA in row[3]
        )
        for row in rows
        if len(row) == 4
        for drivers in [_gpu_drivers(row[3])]
    }


def _gpu_drivers(requests: str) -> tuple[str, ...]:
    """Return the drivers that a container's requests name; a request without one gets `nvidia`."""
    try:
        found = json.loads(requests)
    except (ValueError, RecursionError):
        return ()
    # A container has requests for GPUs of other vendors, too, and of CDI by its name.
    drivers = (
        text(one, "Driver") or (GPU_DRIVER if _asks_for_gpus(one) else "")
        for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict)
    )
    return tuple(driver for driver in drivers if driver in GPU_DRIVERS)


def _asks_for_gpus(request: Mapping[str, object]) -> bool:
    """Return whether one of the sets of capabilities, any of which is enough, is of NVIDIA's."""
    sets = request.get("Capabilities")
    return isinstance(sets, list) and any(
        isinstance(one, list) and _GPU_CAPABILITIES.intersection(map(str, one)) for one in sets
    )


def has_v1(packages: Mapping[str, str], units: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether nvidia-docker v1 is installed, given package versions and unit states."""
    return packages.get(V1_PACKAGE, "").startswith("1.") or (
        units.get(V1_UNIT, {}).get("LoadState") == "loaded"
    )


def users_of(containers: Iterable[Container], volumes: Iterable[str]) -> list[Container]:
    """Return the containers that use one of the volumes."""
    names = set(volumes)
    return [container for container in containers if names.intersection(container.volumes)]


def parse_group(stdout: str) -> list[str]:
    """Parse the output of `getent group` for one group; return its members."""
    fields = stdout.strip().split(":")
    return [name for name in fields[3].split(",") if name] if len(fields) == 4 else []
