# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Understand Docker's state: what the running engine answers, else what its file says. No I/O.

Source: https://docs.docker.com/reference/cli/dockerd/; `docker info` of 20.10.24.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.command_line import value_of
from ansible_collections.metal.gpu.plugins.module_utils.mappings import flag, sections, text, texts
from ansible_collections.metal.gpu.plugins.module_utils.version import release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.command_line import Flag

UNIT = "docker.service"
DEFAULT_CONFIG = "/etc/docker/daemon.json"
CONFIG_FLAGS = ("--config-file",)
# Flags whose values decide something here.
FLAGS = (
    *(*CONFIG_FLAGS, "--data-root", "--graph", "-g", "--host", "-H", "--containerd"),
    *("--default-runtime", "--add-runtime"),
)
DEFAULT_DATA_ROOT = "/var/lib/docker"
DEFAULT_RUNTIME = "runc"
GROUP = "docker"
INFO = ("docker", "info", "--format={{json .}}")
# Engines of before 20.10 have no {{.State}}.
PS_FORMAT = "{{.ID}}\t{{.Names}}\t{{.Status}}\t{{.Mounts}}"
PS = ("docker", "ps", "--all", "--no-trunc", f"--format={PS_FORMAT}")
HOST_CONFIG_FORMAT = "{{.Id}}\t{{.HostConfig.AutoRemove}}\t{{.HostConfig.Runtime}}"
HOST_CONFIG = ("docker", "inspect", f"--format={HOST_CONFIG_FORMAT}")

# Whatever a user runs without root, and what snapd installs.
ROOTLESS_PATTERNS = (
    "/run/user/*/docker.sock",
    "/home/*/.config/systemd/user/docker.service",
    "/root/.config/systemd/user/docker.service",
)
SNAP_PATTERNS = ("/snap/bin/docker", "/var/lib/snapd/snap/bin/docker")

# Which containers ran before Docker was replaced, names keyed by id. Gone when they run again.
RECORD = "/var/lib/metal-gpu/docker-containers.json"
# What docker.io leaves when it is removed. A later purge of it runs this, and nothing is left.
PURGE_SCRIPT = f"{DEFAULT_DATA_ROOT}/nuke-graph-directory.sh"

# Docker looks for it when it starts, and not again: `docker run --gpus` needs it. Of the package
# nvidia-container-toolkit. Source: daemon/devices_nvidia_linux.go of Moby 29.8.
GPU_HOOK = "/usr/bin/nvidia-container-runtime-hook"

# cri-dockerd stands between Docker and the kubelet.
CRI_UNIT = "cri-docker.service"
CRI_SOCKET = "cri-docker.socket"

# nvidia-docker v1 gives GPUs to containers by volumes of its own driver.
V1_UNIT = "nvidia-docker.service"
V1_PACKAGE = "nvidia-docker"
V1_VOLUMES = ("docker", "volume", "ls", "--quiet", "--filter=driver=nvidia-docker")

_CDI_DEFAULT_SINCE = (28, 2)
_CGROUP_DRIVER = "native.cgroupdriver="


class Runtime(NamedTuple):
    """A way to start containers."""

    type: str | None  # of a containerd shim; None: an OCI runtime
    binary: str | None


class Container(NamedTuple):
    """A container, running or not."""

    id: str
    name: str
    running: bool
    volumes: tuple[str, ...]  # names, and paths of bind mounts

    @property
    def is_of_pod(self) -> bool:
        """The kubelet starts such a container again by itself."""
        return self.name.startswith("k8s_")


class HostConfig(NamedTuple):
    """What was decided when a container was made."""

    ephemeral: bool  # it goes when it ends
    runtime: str


class Effective(NamedTuple):
    """What holds for the containers that Docker starts."""

    default_runtime: str
    runtimes: Mapping[str, Runtime]
    cgroup_driver: str | None
    cdi_enabled: bool


def parse_info(stdout: str) -> dict[str, Any] | None:
    """Parse `docker info`; None where no engine answered, though the client prints a form."""
    try:
        info = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    return info if isinstance(info, dict) and text(info, "ServerVersion") else None


def effective_from_info(info: Mapping[str, Any]) -> Effective:
    return Effective(
        default_runtime=text(info, "DefaultRuntime") or DEFAULT_RUNTIME,
        runtimes=_parse_runtimes(sections(info, "Runtimes")),
        cgroup_driver=text(info, "CgroupDriver") or None,
        cdi_enabled=bool(texts(info, "CDISpecDirs")),  # empty where it is off or unknown
    )


def effective_from_file(document: Mapping[str, Any], version: str) -> Effective:
    """Read daemon.json as an engine of this version will."""
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


def _parse_runtimes(runtimes: Mapping[str, Mapping[str, Any]]) -> dict[str, Runtime]:
    return {
        name: Runtime(type=text(runtime, "runtimeType"), binary=text(runtime, "path"))
        for name, runtime in runtimes.items()
    }


def data_root(
    document: Mapping[str, Any], flags: Sequence[Flag], info: Mapping[str, Any] | None
) -> str:
    """Return where the engine keeps its containers, or will, where none answers."""
    given = text(info, "DockerRootDir") or text(document, "data-root") or text(document, "graph")
    return given or value_of(flags, "--data-root", "--graph", "-g") or DEFAULT_DATA_ROOT


def live_restore(document: Mapping[str, Any], info: Mapping[str, Any] | None) -> bool:
    """Tell whether containers run on while the engine does not."""
    source, key = (info, "LiveRestoreEnabled") if info else (document, "live-restore")
    return bool(flag(source, key))


def parse_ps(stdout: str) -> tuple[Container, ...]:
    """Parse the answer to PS."""
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
    """Parse the answer to HOST_CONFIG, keyed by the id of the container."""
    rows = (line.split("\t") for line in stdout.splitlines())
    return {row[0]: HostConfig(row[1] == "true", row[2]) for row in rows if len(row) == 3}


def has_v1(packages: Mapping[str, str], units: Mapping[str, Mapping[str, str]]) -> bool:
    """Tell whether nvidia-docker v1 is there, by versions of packages and states of units."""
    return packages.get(V1_PACKAGE, "").startswith("1.") or (
        units.get(V1_UNIT, {}).get("LoadState") == "loaded"
    )


def users_of(containers: Iterable[Container], volumes: Iterable[str]) -> list[Container]:
    """Return the containers that use one of the volumes."""
    wanted = set(volumes)
    return [container for container in containers if wanted.intersection(container.volumes)]


def parse_group(stdout: str) -> list[str]:
    """Parse what getent(1) says about a group: its members."""
    fields = stdout.strip().split(":")
    return [name for name in fields[3].split(",") if name] if len(fields) == 4 else []
