# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about Docker and cri-dockerd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from ansible_collections.metal.gpu.plugins.module_utils import mappings
from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import (
    CriDockerd,
    Docker,
    DockerConfig,
    DockerPart,
    Starter,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.docker import Values
from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import ServiceData
from ansible_collections.metal.gpu.plugins.module_utils.read import docker
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import Flag, value_of
from ansible_collections.metal.gpu.plugins.module_utils.read.version import parse_version, release
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import containers, unread
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.values import values_of
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import BYTE_ORDER_MARK
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import (
    Document,
    load_json,
    outline,
)

# Docker skips the mark from this version on, and also reads UTF-16 with one.
_MARK_SINCE = (23, 0)
# What the client asks the engine.
_OF_ENGINE = ("docker_ps", "docker_host_config", "docker_v1_volumes")
# The words of Docker.
_NO_OPTION = "the following directives don't match any configuration option"
_UTF_16 = "\ufffd\ufffd"  # its mark, read as UTF-8


class _InForce(NamedTuple):
    """The settings in effect, and where they are from."""

    settings: docker.Effective | None
    source: str | None


class _Setup(NamedTuple):
    """The settings of the engine: its flags, its file, and the answer of `docker info`."""

    flags: tuple[Flag, ...]
    path: str
    document: Document
    error: str | None
    written: docker.Effective
    info: Mapping[str, object] | None

    def in_force(self, version: str | None, *, exists: bool | None) -> _InForce:
        if self.info:
            return _InForce(docker.effective_from_info(self.info), "docker info")
        if not version:
            return _InForce(None, None)
        # Without a valid file, these are the engine's defaults.
        return _InForce(self.written, self.path if exists and not self.error else None)


def observe(raw: Raw) -> DockerPart:
    return {"engines": {"docker": _docker(raw)}}


def _setup(raw: Raw, version: str | None) -> _Setup:
    flags = raw.in_force(docker.UNIT)
    path = value_of(flags, *docker.CONFIG_FLAGS) or docker.DEFAULT_CONFIG
    document = load_json(path, raw.texts.get(path, ""))
    unknown = docker.unknown_option(document.content)
    return _Setup(
        flags=flags,
        path=path,
        document=document,
        error=raw.read_error(path)
        or _encoding_error(path, raw.texts.get(path, ""), version)
        or document.error
        or (unknown and f"{path}: {_NO_OPTION}: {unknown}"),
        written=docker.effective_from_file(document.content, version or "0"),
        info=docker.parse_info(raw.stdout("docker_info")),
    )


def _encoding_error(path: str, text: str, version: str | None) -> str | None:
    """Return why Docker, or this collection, does not read the encoding of the file."""
    if text.startswith(BYTE_ORDER_MARK) and release(version or "") < _MARK_SINCE and version:
        return (
            f"{path}, line 1, column 1: the file starts with a byte order mark, which Docker "
            rf"{version} rejects. Remove it: sed -i '1s/^\xEF\xBB\xBF//' {path}"
        )
    if text.startswith(_UTF_16):
        return (
            f"{path}, line 1, column 1: the file is in UTF-16, which this collection does not "
            f"edit. Convert it: iconv -f UTF-16 -t UTF-8 {path} > {path}.new && mv {path}.new "
            f"{path}"
        )
    return None


def _docker(raw: Raw) -> Docker:
    # The client that answered for a user's engine has listed the containers of that engine.
    if docker.is_of_user(raw.stdout("docker_info")):
        raw = raw.without(*_OF_ENGINE)
    program = raw.program(docker.UNIT, "dockerd", "docker")
    version, installed = program["version"], program["installed"]
    setup = _setup(raw, version)
    flags, document, info = setup.flags, setup.document, setup.info
    server_version = parse_version(mappings.text(info, "ServerVersion") or "")
    effective, source = setup.in_force(version, exists=raw.file_exists(setup.path))
    service = raw.service(docker.UNIT)
    return {
        "installed": installed,
        "path": program["path"],
        "version": version,
        "version_error": program["version_error"],
        "server_version": server_version,
        "client_path": raw.programs["docker"],
        "running": installed and (bool(info) or program["running"]),
        "answers": bool(info) and raw.exit_code("docker_ps") == 0,
        "enabled": raw.is_enabled(docker.UNIT),
        "socket_active": bool(raw.is_active(docker.SOCKET)),
        "needs_reload": raw.needs_reload(docker.UNIT),
        "changed_since_start": raw.changed_since_start(docker.UNIT, _hooks(version)),
        "unread": unread.observe(raw, setup.path),
        "program": _starter(service),
        "flags_source": service["source"],
        "flags": service["flags"],
        "proxy": cast(Values, raw.values("docker"))["proxy"],
        "config": _config(raw, setup, source, has_version=bool(version)),
        "default_runtime": effective.default_runtime if effective else None,
        "runtimes": effective.runtimes if effective else {},
        "live_restore": docker.live_restore(document.content, info) if installed else None,
        "data_root": docker.data_root(document.content, flags, info) if installed else None,
        "storage_driver": docker.storage_driver(document.content, info) if installed else None,
        "mirrors": docker.mirrors(info),
        "containers": containers.running(
            raw, server_version or version, has_cdi=bool(effective and effective.cdi_enabled)
        ),
        "made_with": containers.made_with(raw),
        "interrupted": containers.interrupted(raw, answers=bool(info)),
        "record_error": raw.read_error(docker.RECORD) or containers.record(raw).error,
        "purge_script": next(iter(raw.found["docker_purge_script"]), None),
        "group": docker.parse_group(raw.stdout("docker_group")),
        "snap": raw.found["docker_snap"],
        "rootless": raw.found["docker_rootless"],
        "cri_dockerd": _cri_dockerd(raw),
        "v1": containers.v1(raw),
        "cgroup_driver": effective.cgroup_driver if effective else None,
        "cdi_enabled": effective.cdi_enabled if effective else None,
    }


def _hooks(version: str | None) -> list[str]:
    """Return the programs that Docker looks for only when it starts."""
    has_cdi = release(version or "") >= docker.CDI_HOOK_SINCE
    return [docker.GPU_HOOK, *([docker.CDI_HOOK] if has_cdi else [])]


def _starter(service: ServiceData) -> Starter | None:
    path, file = service["starter"], service["starter_file"]
    return None if path is None or file is None else {"path": path, "file": file}


def _config(raw: Raw, setup: _Setup, source: str | None, *, has_version: bool) -> DockerConfig:
    return {
        "path": setup.path,
        "exists": raw.file_exists(setup.path),
        "error": setup.error,
        "obstacle": setup.document.obstacle,
        "source": source,
        "settings": list(setup.document.content),
        "outline": outline(setup.document.content),
        "fingerprints": values_of(setup.document.content),
        "default_runtime": mappings.text(setup.document.content, "default-runtime"),
        "runtimes": setup.written.runtimes,
        "cdi_enabled": setup.written.cdi_enabled if has_version else None,
    }


def _cri_dockerd(raw: Raw) -> CriDockerd:
    # "/run/cri-dockerd.sock (Stream)"
    socket = raw.units.get(docker.CRI_SOCKET, {}).get("Listen", "").partition(" ")[0]
    program = raw.program(docker.CRI_UNIT, "cri-dockerd", "cri_dockerd")
    return {
        "installed": program["installed"],
        "version": program["version"],
        "running": program["running"],
        "enabled": raw.is_enabled(docker.CRI_UNIT),
        "socket": socket or None,
    }
