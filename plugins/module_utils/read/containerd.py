# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse containerd's configuration: its main file and the merged result.

Documents are already loaded from TOML. The merged one is what `containerd config dump` prints.

Source: docs/man/containerd-config.toml.5.md and docs/cri/config.md of containerd; what 1.6.20,
1.7.24, 2.0.0, 2.0.7, 2.3.4 and 2.4.2 print: tests/recorded/containerd.yml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import (
    flag,
    number,
    section,
    sections,
    text,
    texts,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

UNIT = "containerd.service"
CONFIG_FLAGS = ("--config", "-c")
DEFAULT_CONFIG = "/etc/containerd/config.toml"
DEFAULT_SOCKET = "/run/containerd/containerd.sock"

# Sections with the CRI runtime's settings: configuration version 3 and 4, 2, 1.
CRI_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
_IMAGES = "io.containerd.cri.v1.images"
# Disabling any of these disables CRI.
_CRI_PLUGINS = {*CRI_SECTIONS, _IMAGES}
# Keys that containerd reads into fields. Names of plugins and of runtimes are none.
FIELDS = (
    *("version", "imports", "disabled_plugins", "plugins", "grpc", "address", "proxy_plugins"),
    *("containerd", "runtimes", "default_runtime_name", "runtime_type", "base_runtime_spec"),
    *("options", "BinaryName", "SystemdCgroup", "enable_cdi"),
    *("registry", "config_path", "mirrors", "configs", "tls", "auths"),
)
# Since this version, the transfer service pulls images, with this many downloads at once.
_TRANSFERS, _DOWNLOADS = (2, 1), 3
_IGNORES_CASE_SINCE = (2, 0)  # its reader of TOML is another one
_CDI_ALWAYS = (2, 0)  # since this version, CDI is enabled by default
# `config dump` of these versions leaves out what a file of version 1 or 2 sets; `migrate` does not.
_DUMP_IS_BLIND = ((2, 0), (2, 0, 7))
_OLD_TYPE = "io.containerd.runtime.v1.linux"
_UNTRUSTED, _PRIVILEGED = "untrusted_workload_runtime", "privileged_without_host_devices"
_CNI, _SNAPSHOTTER = "/opt/cni/bin", "io.containerd.snapshotter.v1."
_DURATIONS = ("drain_exec_sync_io_timeout", "stats_collect_period", "stats_retention_period")
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|[u\u00b5\u03bc]s|ms|s|m|h))+)")
_QUOTED_FILE = re.compile(r"""["']([^"'\n]+\.toml)["']""")
_SPEC = re.compile(r"""(?im)^[^#\n]*\bbase_runtime_spec["']?\s*=\s*["'](/[^"'\n]+)["']""")
_REFUSAL = re.compile(r"^containerd: (.*)", re.MULTILINE)
_LOGGED = re.compile(
    r'column=(?P<column>\d+) error="(?P<error>(?:\\.|[^"\\])*)" file=(?P<file>\S+) row=(?P<row>\d+)'
)


class Runtime(TypedDict):
    """A runtime that a RuntimeClass can name as its handler."""

    type: str
    binary: str  # empty: the default of the type
    systemd_cgroup: bool
    base_runtime_spec: str  # file with the defaults of containers; empty: containerd's own


class Registry(TypedDict):
    """Where the CRI plugin looks for the settings of registries."""

    folders: list[str]  # folders of `hosts.toml` files; empty: the default of the version
    mirrors: list[str]  # registries with mirrors in the configuration itself
    tls: list[str]  # servers with certificates in the configuration itself
    reads_lists: bool  # whether it reads several folders, or takes them for one name


NO_REGISTRY: Registry = {"folders": [], "mirrors": [], "tls": [], "reads_lists": True}


class Effective(NamedTuple):
    """The settings that result from all configuration files."""

    socket: str
    cri_enabled: bool | None  # None: it has no table of the CRI plugin that is known here
    cdi_enabled: bool
    default_runtime: str | None
    runtimes: dict[str, Runtime]
    registry: Registry = NO_REGISTRY
    conflicts: tuple[str, ...] = ()  # with these, the CRI plugin does not load


def as_read(document: Mapping[str, object], version: str) -> dict[str, object]:
    """Return a document with the keys in the spelling of the fields that they set.

    Up to 1.7, a field takes its name, in small or in capital letters, or with a small first letter,
    and the name itself counts most. Since 2.0, case does not count, and the last of the sorted keys
    does. Source: tests/recorded/containerd.yml, spelling
    """
    found: dict[str, list[str]] = {}
    for key in document:
        field = next((one for one in FIELDS if _sets(key, one, version)), key)
        found.setdefault(field, []).append(key)
    read: dict[str, object] = {}
    for field, keys in found.items():
        value = document[_counting(field, keys, version)]
        read[field] = as_read(value, version) if isinstance(value, Mapping) else value
    return read


def as_written(
    keys: Mapping[str, object], document: Mapping[str, object], version: str
) -> dict[str, object]:
    """Return the keys of an edit in the spelling that sets these fields in a document."""
    found: dict[str, object] = {}
    for key, value in keys.items():
        same = [one for one in document if key in FIELDS and _sets(one, key, version)]
        name = _counting(key, same or [key], version)
        inner = document.get(name)
        inner = inner if isinstance(inner, Mapping) else {}
        found[name] = as_written(value, inner, version) if isinstance(value, Mapping) else value
    return found


def _sets(key: str, field: str, version: str) -> bool:
    if release(version) >= _IGNORES_CASE_SINCE:
        return key.lower() == field.lower()
    return key in (field, field.lower(), field.upper(), field[0].lower() + field[1:])


def _counting(field: str, keys: list[str], version: str) -> str:
    """Return which of the keys that set a field counts."""
    return field if field in keys and release(version) < _IGNORES_CASE_SINCE else max(keys)


def parse_effective(dump: Mapping[str, object], version: str) -> Effective:
    """Read the merged configuration of a containerd of this version."""
    dump = as_read(dump, version)
    plugins = section(dump, "plugins")
    known = [name for name in CRI_SECTIONS if name in plugins]
    cri = section(plugins, known[0]) if known else {}
    registry = section(plugins, _IMAGES, "registry") or section(cri, "registry")
    grpc = section(plugins, "io.containerd.server.v1.grpc") or section(dump, "grpc")
    cdi = flag(cri, "enable_cdi")
    runtimes = sections(cri, "containerd", "runtimes")
    default = text(cri, "containerd", "default_runtime_name")
    # A setting of 1.7 and older, which counts more.
    own = section(cri, "containerd", "default_runtime")
    if text(own, "runtime_type"):
        default, runtimes["default"] = "default", own
    return Effective(
        socket=text(grpc, "address") or DEFAULT_SOCKET,
        cri_enabled=_is_cri_enabled(dump, known),
        cdi_enabled=release(version) >= _CDI_ALWAYS if cdi is None else cdi,
        default_runtime=default,
        runtimes={name: _parse_runtime(runtime) for name, runtime in runtimes.items()},
        registry={
            "folders": [one for one in (text(registry, "config_path") or "").split(":") if one],
            "mirrors": [*sections(registry, "mirrors")],
            "tls": [
                host for host, one in sections(registry, "configs").items() if section(one, "tls")
            ],
            "reads_lists": release(version) < _TRANSFERS or _pulls_itself(plugins, registry),
        },
        conflicts=tuple(_conflicts(dump, cri, registry, version)),
    )


def _conflicts(
    dump: Mapping[str, object],
    cri: Mapping[str, object],
    registry: Mapping[str, object],
    version: str,
) -> Iterator[str]:
    """Yield what the CRI plugin checks when it starts, and `containerd config dump` does not.

    It checks the entry of the default runtime, too, which an edit of this collection can add.
    Source: tests/recorded/containerd.yml, cri_checks
    """
    plugins, is_first = section(dump, "plugins"), release(version) < (2, 0)
    engine, images = section(cri, "containerd"), section(plugins, _IMAGES) or cri
    runtimes, folders = sections(engine, "runtimes"), text(registry, "config_path")
    default = runtimes.get(text(engine, "default_runtime_name") or "", {})
    is_old = not is_first or text(default, "runtime_type") == _OLD_TYPE
    tls = is_first and any("tls" in one for one in sections(registry, "configs").values())
    both = "are both set"
    if folders and (section(registry, "mirrors") or tls):
        yield f"the registry's config_path and {'configs.tls' if tls else 'mirrors'} {both}"
    if is_first and "untrusted" in runtimes and text(engine, _UNTRUSTED, "runtime_type"):
        yield f"{_UNTRUSTED} and the runtime untrusted {both}"
    if text(cri, "cni", "bin_dir") and texts(cri, "cni", "bin_dirs") not in ([], [_CNI]):
        yield f"bin_dir and bin_dirs of cni {both}"
    for key, table in (("systemd_cgroup", cri), ("no_pivot", engine)):
        if flag(table, key) and not is_old:
            yield f"{key} is only for a default runtime of the type {_OLD_TYPE}"
    for name, one in runtimes.items():
        old = [key for key in ("runtime_engine", "runtime_root") if is_first and text(one, key)]
        if old and text(one, "runtime_type") != _OLD_TYPE:
            yield f"{old[0]} of the runtime {name} is only for the type {_OLD_TYPE}"
        if flag(one, f"{_PRIVILEGED}_all_devices_allowed") and not flag(one, _PRIVILEGED):
            yield f"{_PRIVILEGED}_all_devices_allowed of the runtime {name} needs {_PRIVILEGED}"
        if text(one, "io_type") not in (None, "", "fifo", "streaming"):
            yield f"io_type of the runtime {name} is {text(one, 'io_type')}"
    found = text(images, "snapshotter") or text(engine, "snapshotter")
    known = [name[len(_SNAPSHOTTER) :] for name in plugins if name.startswith(_SNAPSHOTTER)]
    # `containerd config migrate` prints none.
    if found and known and found not in (*known, *section(dump, "proxy_plugins")):
        yield f"there is no snapshotter {found}"
    server = section(plugins, CRI_SECTIONS[1])
    of_images = ("image_pull_progress_timeout", images)
    durations = (("stream_idle_timeout", server), of_images, *((key, cri) for key in _DURATIONS))
    for key, table in durations:
        if (found := text(table, key)) and not _DURATION.fullmatch(found):
            yield f"{key} is {found}, which is no duration"


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
