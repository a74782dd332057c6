# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse containerd's configuration: its main file and the merged result. No I/O.

Documents are already loaded from TOML. The merged one is what `containerd config dump` prints.

Source: docs/man/containerd-config.toml.5.md and docs/cri/config.md of containerd; seen with
1.6.20 (configuration version 2) and 2.4.2 (version 4).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import (
    flag,
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
_CRI_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
# Disabling any of these disables CRI.
_CRI_PLUGINS = {*_CRI_SECTIONS, "io.containerd.cri.v1.images"}
_CDI_ALWAYS = (2, 0)  # since this version, CDI is enabled by default
_QUOTED_FILE = re.compile(r"""["']([^"'\n]+\.toml)["']""")
_REFUSAL = re.compile(r"^containerd: (.*)", re.MULTILINE)
_LOGGED = re.compile(
    r'column=(?P<column>\d+) error="(?P<error>(?:\\.|[^"\\])*)" file=(?P<file>\S+) row=(?P<row>\d+)'
)


class Runtime(TypedDict):
    """A runtime that a RuntimeClass can name as its handler."""

    type: str
    binary: str  # empty: the default of the type
    systemd_cgroup: bool


class Effective(NamedTuple):
    """The settings that result from all configuration files."""

    socket: str
    cri_enabled: bool
    cdi_enabled: bool
    default_runtime: str | None
    runtimes: dict[str, Runtime]


def parse_effective(dump: Mapping[str, object], version: str) -> Effective:
    """Read the merged configuration of a containerd of this version."""
    plugins = section(dump, "plugins")
    cri = next((section(plugins, name) for name in _CRI_SECTIONS if name in plugins), {})
    grpc = section(plugins, "io.containerd.server.v1.grpc") or section(dump, "grpc")
    cdi = flag(cri, "enable_cdi")
    return Effective(
        socket=text(grpc, "address") or DEFAULT_SOCKET,
        cri_enabled=not _CRI_PLUGINS.intersection(texts(dump, "disabled_plugins")),
        cdi_enabled=release(version) >= _CDI_ALWAYS if cdi is None else cdi,
        default_runtime=text(cri, "containerd", "default_runtime_name"),
        runtimes={
            name: _parse_runtime(runtime)
            for name, runtime in sections(cri, "containerd", "runtimes").items()
        },
    )


def has_cri(document: Mapping[str, object]) -> bool:
    """Return whether a file has settings of the CRI plugin."""
    return any(name in section(document, "plugins") for name in _CRI_SECTIONS)


def mentioned_files(path: str, text: str) -> list[str]:
    """Return the quoted names and patterns of TOML files in a configuration, such as imports.

    Does not parse TOML, because nodes have no parser for it.
    """
    directory = path.rpartition("/")[0]
    return [
        found if found.startswith("/") else f"{directory}/{found}"
        for line in text.splitlines()
        for found in _QUOTED_FILE.findall(line.partition("#")[0])
    ]


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
    }
