# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse containerd's configuration: its main file and the merged result. No I/O.

Documents are already loaded from TOML. The merged one is what `containerd config dump` prints.

Source: docs/man/containerd-config.toml.5.md and docs/cri/config.md of containerd; what 1.6.20,
1.7.24, 2.0.0, 2.0.7, 2.3.4 and 2.4.2 print: tests/recorded/containerd.yml.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import (
    flag,
    number,
    section,
    sections,
    text,
    texts,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

if TYPE_CHECKING:
    from collections.abc import Mapping

UNIT = "containerd.service"
CONFIG_FLAGS = ("--config", "-c")
DEFAULT_CONFIG = "/etc/containerd/config.toml"
DEFAULT_SOCKET = "/run/containerd/containerd.sock"

# Sections with the CRI runtime's settings: configuration version 3 and 4, 2, 1.
CRI_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
_IMAGES = "io.containerd.cri.v1.images"
# Disabling any of these disables CRI.
_CRI_PLUGINS = {*CRI_SECTIONS, _IMAGES}
# Since this version, the transfer service pulls images, with this many downloads at once.
_TRANSFERS, _DOWNLOADS = (2, 1), 3
_CDI_ALWAYS = (2, 0)  # since this version, CDI is enabled by default
# `config dump` of these versions leaves out what a file of version 1 or 2 sets; `migrate` does not.
_DUMP_IS_BLIND = ((2, 0), (2, 0, 7))
_QUOTED_FILE = re.compile(r"""["']([^"'\n]+\.toml)["']""")
_SPEC = re.compile(r"""^[^#\n]*\bbase_runtime_spec["']?\s*=\s*["'](/[^"'\n]+)["']""", re.MULTILINE)
_REFUSAL = re.compile(r"^containerd: (.*)", re.MULTILINE)
_LOGGED = re.compile(
    r'column=(?P<column>\d+) error="(?P<error>(?:\\.|[^"\\])*)" file=(?P<file>\S+) row=(?P<row>\d+)'
)


class Runtime(TypedDict):
    """A runtime that a RuntimeClass can name as its handler."""

    type: str
    binary: str  # empty: the default of the type
    systemd_cgroup: bool
    base_runtime_spec: str  # a file with the defaults of containers; empty: the engine's own


class Registry(TypedDict):
    """Where the CRI plugin looks for the settings of registries."""

    folders: list[str]  # of hosts.toml files; empty: the default of the version
    mirrors: list[str]  # registries with mirrors in this file, which forbid folders
    tls: list[str]  # servers with certificates in this file, likewise
    reads_lists: bool  # whether several folders are looked at, or taken for one name


NO_REGISTRY: Registry = {"folders": [], "mirrors": [], "tls": [], "reads_lists": True}


class Effective(NamedTuple):
    """The settings that result from all configuration files."""

    socket: str
    cri_enabled: bool | None  # None: it has no table of the CRI plugin that is known here
    cdi_enabled: bool
    default_runtime: str | None
    runtimes: dict[str, Runtime]
    registry: Registry = NO_REGISTRY
    registry_conflict: bool = False  # the CRI plugin does not load with this


def parse_effective(dump: Mapping[str, object], version: str) -> Effective:
    """Read the merged configuration of a containerd of this version."""
    plugins = section(dump, "plugins")
    known = [name for name in CRI_SECTIONS if name in plugins]
    cri = section(plugins, known[0]) if known else {}
    registry = section(plugins, _IMAGES, "registry") or section(cri, "registry")
    grpc = section(plugins, "io.containerd.server.v1.grpc") or section(dump, "grpc")
    cdi = flag(cri, "enable_cdi")
    return Effective(
        socket=text(grpc, "address") or DEFAULT_SOCKET,
        cri_enabled=_is_cri_enabled(dump, known),
        cdi_enabled=release(version) >= _CDI_ALWAYS if cdi is None else cdi,
        default_runtime=text(cri, "containerd", "default_runtime_name"),
        runtimes={
            name: _parse_runtime(runtime)
            for name, runtime in sections(cri, "containerd", "runtimes").items()
        },
        registry={
            "folders": [one for one in (text(registry, "config_path") or "").split(":") if one],
            "mirrors": [*sections(registry, "mirrors")],
            "tls": [
                host for host, one in sections(registry, "configs").items() if section(one, "tls")
            ],
            "reads_lists": release(version) < _TRANSFERS or _pulls_itself(plugins, registry),
        },
        registry_conflict=bool(text(registry, "config_path") and sections(registry, "mirrors")),
    )


def _pulls_itself(plugins: Mapping[str, object], registry: Mapping[str, object]) -> bool:
    """Return whether the CRI plugin pulls images, and not the transfer service.

    Settings that the service does not have let the plugin pull.
    Source: containerd v2.4.2, internal/cri/config/config.go, CheckLocalImagePullConfigs.
    """
    images = section(plugins, _IMAGES)
    switches = ("use_local_image_pull", "discard_unpacked_layers", "image_pull_with_sync_fs")
    at_once = number(images, "max_concurrent_downloads")
    return (
        any(flag(images, name) for name in switches)
        or flag(images, "disable_snapshot_annotations") is False
        or at_once not in (None, _DOWNLOADS)
        or any(sections(registry, name) for name in ("mirrors", "configs", "auths"))
    )


def _is_cri_enabled(dump: Mapping[str, object], known: list[str]) -> bool | None:
    if _CRI_PLUGINS.intersection(texts(dump, "disabled_plugins")):
        return False
    return True if known else None


def needs_migration(version: str) -> bool:
    """Return whether `containerd config dump` of this version leaves settings out."""
    first, fixed = _DUMP_IS_BLIND
    return first <= release(version) < fixed


def newest_config_version(version: str) -> int:
    """Return the newest version of a file that this containerd is known to read."""
    return 2 if release(version) < (2, 0) else sys.maxsize


def cri_tables(document: Mapping[str, object]) -> list[str]:
    """Return the tables of the CRI plugin that a file has."""
    plugins = section(document, "plugins")
    return [name for name in CRI_SECTIONS if name in plugins]


def sets_runtime(document: Mapping[str, object], name: str) -> bool:
    """Return whether a file has settings of a runtime."""
    plugins = section(document, "plugins")
    return any(
        name in section(plugins, table, "containerd", "runtimes") for table in cri_tables(document)
    )


def registry_folders(document: Mapping[str, object]) -> str | None:
    """Return the folders of hosts.toml files that a file names, joined by colons."""
    plugins = section(document, "plugins")
    named = (
        text(plugins, table, "registry", "config_path") for table in (_IMAGES, *CRI_SECTIONS[1:])
    )
    return next((one for one in named if one is not None), None)


def absolute(path: str, imported: str) -> str:
    """Return an imported name or pattern as containerd resolves it in a file."""
    directory = path.rpartition("/")[0]
    return imported if imported.startswith("/") else f"{directory}/{imported}"


def mentioned_files(path: str, text: str) -> list[str]:
    """Return the quoted names and patterns of TOML files in a configuration, such as imports.

    Does not parse TOML, because nodes have no parser for it.
    """
    return [
        absolute(path, found)
        for line in text.splitlines()
        for found in _QUOTED_FILE.findall(line.partition("#")[0])
    ]


def mentioned_specs(text: str) -> list[str]:
    """Return the files with the defaults of containers that a configuration names.

    A relative name depends on the folder in which containerd runs, and is left out.
    """
    return _SPEC.findall(text)


def parse_refusal(stderr: str) -> str:
    """Return why `containerd config dump` failed, with the position if containerd reports it."""
    logged = _LOGGED.search(stderr)
    if logged:
        error = logged["error"].replace('\\"', '"')
        return f"{logged['file']}, line {logged['row']}, column {logged['column']}: {error}"
    refusal = _REFUSAL.search(stderr)
    return refusal[1] if refusal else stderr.strip() or "containerd config dump failed silently"


def _parse_runtime(runtime: Mapping[str, object]) -> Runtime:
    return {
        "type": text(runtime, "runtime_type") or "",
        "binary": text(runtime, "options", "BinaryName") or "",
        "systemd_cgroup": flag(runtime, "options", "SystemdCgroup") or False,
        "base_runtime_spec": text(runtime, "base_runtime_spec") or "",
    }
