# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about Docker, cri-dockerd, and the remains of nvidia-docker v1."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.probe.services import Kind
from ansible_collections.metal.gpu.plugins.module_utils.read import docker, packages, systemd
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output


class Proxy(TypedDict):
    """A variable of the service's environment that names a proxy."""

    file: str
    ours: bool  # whether it is in the block of the role
    sha256: str  # hash of the value, which can have a password


class Values(TypedDict):
    """What only this probe reads."""

    proxy: dict[str, Proxy]  # by name in capitals


def _read(reading: Reading) -> None:
    flags = reading.services[docker.UNIT].in_force
    reading.files.read(value_of(flags, *docker.CONFIG_FLAGS) or docker.DEFAULT_CONFIG)


def _times(reading: Reading) -> dict[str, float | None]:
    hooks = {path: reading.files.appeared(path) for path in (docker.GPU_HOOK, docker.CDI_HOOK)}
    # Without its drop-in, this file belongs to no unit.
    values = own_files.DOCKER_PROXY_VALUES
    return {**hooks, values: reading.files.modified(values)}


def _commands(_reading: Reading) -> dict[str, Command]:
    return {
        "docker": Command(("dockerd", "--version")),
        "docker_info": Command(docker.INFO),
        "docker_ps": Command(docker.PS),
        "docker_group": Command(("getent", "group", docker.GROUP)),
        "cri_dockerd": Command(("cri-dockerd", "--version")),
    }


def _follow_up(reading: Reading, outputs: Mapping[str, Output]) -> dict[str, Command]:
    texts = {name: output.stdout for name, output in outputs.items()}
    installed = packages.parse_packages(texts.get("packages", ""), os.uname().machine)
    containers = docker.parse_ps(texts.get("docker_ps", ""))
    own = [one.id for one in containers if not one.is_of_pod]
    commands = {}
    if own:
        commands["docker_host_config"] = Command((*docker.HOST_CONFIG, *own))
    if docker.has_v1({name: one.version for name, one in installed.items()}, reading.units):
        commands["docker_v1_volumes"] = Command(docker.V1_VOLUMES)
    return commands


def _values(reading: Reading) -> dict[str, object]:
    """Return the proxies in the files of the unit. Their values can have passwords."""
    found: dict[str, Proxy] = {}
    texts, path = reading.unit_files.texts, own_files.DOCKER_PROXY_VALUES
    block = systemd.parse_environment_file(
        "\n".join(own_files.parse_block(texts.get(path, ""), "docker_ce"))
    )
    for name, one in systemd.parse_environment(texts, docker.UNIT).items():
        if name.upper() in docker.PROXIES and one.value:
            digest = sha256(one.value.encode(errors="replace")).hexdigest()
            is_ours = one.file == path and block.get(name) == one.value
            found[name.upper()] = {"file": one.file, "ours": is_ours, "sha256": digest}
    return {"proxy": found}


PROBE = Probe(
    units=(docker.SOCKET, docker.CRI_SOCKET, docker.V1_UNIT),
    services={
        docker.UNIT: Kind("dockerd", docker.FLAGS),
        docker.CRI_UNIT: Kind("cri-dockerd"),
    },
    files=(docker.RECORD,),
    found={
        "docker_purge_script": (docker.PURGE_SCRIPT,),
        "docker_rootless": docker.ROOTLESS_PATTERNS,
        "docker_snap": docker.SNAP_PATTERNS,
    },
    programs=("dockerd", "docker", "cri-dockerd"),
    own_files=dict.fromkeys(own_files.OF_DOCKER_PROXY, "docker_ce"),
    read=_read,
    values=_values,
    times=_times,
    commands=_commands,
    follow_up=_follow_up,
)
