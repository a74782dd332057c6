# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must Docker's daemon.json contain for the NVIDIA runtime, and what conflicts with it?

Docker refuses to start and to reload if a setting is both a flag and a key of the file.

Source: https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file;
daemon/config/config.go and daemon/command/config.go of Moby 29.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Docker
from ansible_collections.metal.gpu.plugins.module_utils.read.docker import DEFAULT_RUNTIME, Runtime
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Edit

# nvidia-docker2 and nvidia-ctk write the name without a folder; Docker searches its PATH.
_RUNTIME_BINARIES = (runtime.PROGRAM, PurePosixPath(runtime.PROGRAM).name)

# Older versions cannot read CDI specifications of version 0.7.0, which the toolkit writes.
CDI_SINCE = "26.1"
_VALIDATES_SINCE = (23, 0)

# Flags whose key in the file has another name: short flags, and flags that can be repeated.
_KEYS = {
    "-b": "bridge",
    "-D": "debug",
    "-g": "graph",
    "-G": "group",
    "-H": "hosts",
    "-l": "log-level",
    "-p": "pidfile",
    "-s": "storage-driver",
    "--authorization-plugin": "authorization-plugins",
    "--cdi-spec-dir": "cdi-spec-dirs",
    "--default-address-pool": "default-address-pools",
    "--default-network-opt": "default-network-opts",
    "--default-ulimit": "default-ulimits",
    "--dns-opt": "dns-opts",
    "--exec-opt": "exec-opts",
    "--feature": "features",
    "--host": "hosts",
    "--host-gateway-ip": "host-gateway-ips",
    "--insecure-registry": "insecure-registries",
    "--label": "labels",
    "--log-opt": "log-opts",
    "--node-generic-resource": "node-generic-resources",
    "--registry-mirror": "registry-mirrors",
    "--storage-opt": "storage-opts",
}
# The only setting whose flags and keys Docker merges.
_MERGED = "--add-runtime"

# A flag that a wrapper adds is in no file of the unit.
_COMMAND_LINE = "the command line of dockerd"

# The program that the unit of docker-ce starts.
PROGRAM = "/usr/bin/dockerd"
_UNIT = "/usr/lib/systemd/system/docker.service"
_FLAGS = ("-H", "--containerd")


class Clash(NamedTuple):
    """A setting that is both a flag, of a file or of the process, and a key of daemon.json."""

    key: str
    flag: str
    file: str
    effect: str = "Docker does not start or reload with both"


def reads_cdi(version: str) -> bool:
    return release(version) >= release(CDI_SINCE)


def validates(version: str) -> bool:
    """Tell whether this version has `dockerd --validate`."""
    return release(version) >= _VALIDATES_SINCE


def edit(engine: Docker, version: str, *, default: str | None, cdi: bool) -> Edit:
    """Return the file to edit (path) and the keys to merge into it (merge).

    `default` is the desired default runtime; None keeps the current one. `cdi` turns CDI on if it
    is off. Settings of the file or of flags are not repeated. `engine` is `engines.docker` of an
    observation.
    """
    config = engine["config"]
    merge: dict[str, object] = {}
    registered = {*map(_name, _flag_values(engine, "--add-runtime"))}
    if not _is_nvidia(config["runtimes"].get(runtime.NAME)) and runtime.NAME not in registered:
        merge["runtimes"] = {runtime.NAME: {"path": runtime.PROGRAM}}
    defaults = (config["default_runtime"], *_flag_values(engine, "--default-runtime"))
    if default and default not in defaults:
        merge["default-runtime"] = default
    if cdi and reads_cdi(version) and not config["cdi_enabled"]:
        merge["features"] = {"cdi": True}
    return {"path": config["path"], "merge": merge, "remove": []}


def change_reason(
    engine: Docker, merge: Mapping[str, object], *, default: str | None
) -> str | None:
    """Return why Docker needs a change, from what it does and from its file."""
    path = engine["config"]["path"]
    found = engine["runtimes"].get(runtime.NAME)
    reasons = []
    if found is None:
        reasons.append("Docker has no runtime nvidia")
    elif not _is_nvidia(found):
        reasons.append(f"its runtime nvidia runs {found['binary']}")
    elif "runtimes" in merge:
        reasons.append(f"{path} has no runtime nvidia")
    if default and engine["default_runtime"] != default:
        reasons.append(f"its default runtime is {engine['default_runtime']}")
    elif "default-runtime" in merge:
        reasons.append(f"{path} does not set the default runtime {default}")
    if "features" in merge:
        reasons.append("CDI is off")
    return ", ".join(reasons) or None


def pending(engine: Docker, version: str, *, cdi: bool, is_toolkit_new: bool) -> str | None:
    """Return what the engine may apply only when it starts, whatever its file says.

    `is_toolkit_new`: the container toolkit is about to be installed.
    """
    found = []
    if is_toolkit_new or engine["changed_since_start"]:
        found.append("`docker run --gpus`")
    if cdi and not engine["cdi_enabled"] and reads_cdi(version):
        found.append("CDI devices")
    return " and ".join(found) or None


def way_back(engine: Docker, changes: Mapping[tuple[str, ...], object]) -> Edit:
    """Return the keys to remove and to merge so that a reload undoes the changes.

    To restore the file is not enough: a reload ignores removed keys. So the file must first name
    the former default runtime and have a list of runtimes.
    """
    remove: list[list[str]] = []
    merge: dict[str, object] = {"runtimes": {}}
    for key, before in changes.items():
        if key == ("default-runtime",):
            merge["default-runtime"] = before or DEFAULT_RUNTIME
        elif key[0] == "runtimes" and before is None:
            remove.append(list(key))
        elif key[0] == "runtimes":
            put(merge, key, before)
    return {"path": engine["config"]["path"], "remove": remove, "merge": merge}


def clashes(engine: Docker, new_keys: Iterable[str] = ()) -> list[Clash]:
    """Return the settings that make Docker reject its configuration.

    `engine` is `engines.docker` of an observation. An engine without a unit will get the unit of
    docker-ce. `new_keys` are about to be written.
    """
    keys = {*engine["config"]["settings"], *new_keys}
    flags: list[tuple[str, str | None]] = [(name, _UNIT) for name in _FLAGS]
    if engine["program"]:
        flags = [(flag["name"], flag["file"]) for flag in engine["flags"] if flag["effective"]]
    return [
        Clash(key, name, file or _COMMAND_LINE)
        for name, file in flags
        if name != _MERGED and (key := _KEYS.get(name, name.lstrip("-"))) in keys
    ]


def other_programs(engine: Docker) -> list[Clash]:
    """Return the flags by which an admin has chosen another program for the NVIDIA runtime.

    A runtime of daemon.json would count more. Source: tests/recorded/docker_daemon.yml, merged
    """
    return [
        Clash(
            f"runtimes.{runtime.NAME}.path",
            f"{_MERGED}={flag['value']}",
            flag["file"] or _COMMAND_LINE,
            f"the role would replace the program by {runtime.PROGRAM}",
        )
        for flag in engine["flags"]
        if flag["name"] == _MERGED and flag["effective"]
        if _name(flag["value"] or "") == runtime.NAME
        if (flag["value"] or "").partition("=")[2] not in _RUNTIME_BINARIES
    ]


def lost_settings(engine: Docker) -> list[tuple[str, str]]:
    """Return the settings of a distribution's Docker, with their files, that docker-ce ignores.

    The unit of docker-ce reads no variables, and its program has another path.
    """
    program = engine["program"]
    if program and program["file"].startswith("/etc/"):
        kept = program["path"] in (PROGRAM, "dockerd")
        return [] if kept else [(f"ExecStart={program['path']}", program["file"])]
    return [
        (flag["name"], flag["file"])
        for flag in engine["flags"]
        if flag["effective"] and flag["variable"] and flag["file"]
    ]


def _is_nvidia(found: Runtime | None) -> bool:
    return found is not None and found["binary"] in _RUNTIME_BINARIES


def _flag_values(engine: Docker, name: str) -> list[str]:
    return [
        flag["value"] or ""
        for flag in engine["flags"]
        if flag["name"] == name and flag["effective"]
    ]


def _name(value: str) -> str:
    """Return the name in --add-runtime's value "nvidia=/usr/bin/nvidia-container-runtime"."""
    return value.partition("=")[0]


def put(table: dict[str, object], key: tuple[str, ...], value: object) -> None:
    """Put a value at a key path into nested tables."""
    for name in key[:-1]:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise TypeError(f"{name} is no table")  # a key path leads through tables
        table = inner
    table[key[-1]] = value
