# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse CRI-O's configuration and OCI hooks. Documents are already loaded.

CRI-O reads crio.conf, then every file below crio.conf.d in lexical order, whatever its name. A
table of a runtime replaces the earlier table of the same runtime as a whole. A running CRI-O prints
the result with `crio status config`.

Source: docs/crio.conf.5.md of CRI-O; `crio config` of 1.36.3, run. For hooks:
docs/1.0.0 of containers/common, pkg/hooks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import sections, text, texts

if TYPE_CHECKING:
    from collections.abc import Iterable

UNIT = "crio.service"
CONFIG = "/etc/crio/crio.conf"
DROP_INS = "/etc/crio/crio.conf.d"
# A shell pattern leaves out names that start with a dot, which CRI-O reads.
CONFIG_PATTERNS = (
    CONFIG,
    *(f"{DROP_INS}/{names}" for names in ("*", ".*", "**/*", "**/.*")),
)
HOOKS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
CDI = ("/etc/cdi", "/var/run/cdi")
OCI = ("", "oci")  # types of runtimes that a monitor starts

_FIELDS = (
    *("crio", "runtime", "image", "runtimes", "default_runtime", "conmon", "global_auth_file"),
    *("cdi_spec_dirs", "hooks_dir", "runtime_type", "runtime_path", "runtime_root"),
    *("monitor_path", "monitor_cgroup", "allowed_annotations"),
)
# Programs of NVIDIA's that hooks have called since 2018.
_OF_NVIDIA = re.compile(r"/nvidia-container-(?:runtime-hook|toolkit|cli)$|/nvidia-ctk$")
_HOOKS_DIR = re.compile(r"^\s*hooks_dir\s*=\s*\[(.*?)\]", re.MULTILINE | re.DOTALL | re.I)
_QUOTED = re.compile(r"""["'](/[^"'\n]+)["']""")


class Runtime(TypedDict):
    """A runtime that a RuntimeClass can name as its handler."""

    type: str | None
    binary: str | None
    root: str | None
    monitor: str | None
    monitor_cgroup: str | None
    annotations: list[str]


class Effective(NamedTuple):
    """The settings that result from all configuration files."""

    default_runtime: str | None  # None: the built-in one
    runtimes: dict[str, Runtime]
    cdi_dirs: list[str]
    hooks_dirs: list[str]
    monitor: str | None  # of every runtime; an old setting, which Kubespray still writes
    auth_file: str | None = None  # with the logins of registries


def reading_order(paths: Iterable[str]) -> list[str]:
    """Return the configuration files in the order in which CRI-O reads them."""
    return sorted(paths, key=lambda path: (path != CONFIG, path.split("/")))


def as_read(table: Mapping[str, object]) -> dict[str, object]:
    """Return a table with the keys in the spelling of the fields that they set.

    CRI-O ignores the case of a key, but not in names of runtimes. Of two spellings, it takes any.
    """
    fields = {name.lower(): name for name in _FIELDS}
    order = sorted(table, key=lambda key: key in _FIELDS)
    names = {key: fields.get(key.lower(), key) for key in order}
    return {
        name: as_read(value) if isinstance(value := table[key], Mapping) else value
        for key, name in names.items()
    }


def parse_effective(documents: Iterable[Mapping[str, object]]) -> Effective:
    """Merge the runtimes of configuration files, in the order given."""
    default: str | None = None
    monitor: str | None = None
    auth_file: str | None = None
    runtimes: dict[str, Runtime] = {}
    cdi_dirs, hooks_dirs = [*CDI], [*HOOKS[:1]]
    for document in map(as_read, documents):
        default = text(document, "crio", "runtime", "default_runtime") or default
        monitor = text(document, "crio", "runtime", "conmon") or monitor
        auth_file = text(document, "crio", "image", "global_auth_file") or auth_file
        cdi_dirs = texts(document, "crio", "runtime", "cdi_spec_dirs") or cdi_dirs
        hooks_dirs = texts(document, "crio", "runtime", "hooks_dir") or hooks_dirs
        for name, runtime in sections(document, "crio", "runtime", "runtimes").items():
            runtimes[name] = {
                "type": text(runtime, "runtime_type"),
                "binary": text(runtime, "runtime_path"),
                "root": text(runtime, "runtime_root"),
                "monitor": text(runtime, "monitor_path"),
                "monitor_cgroup": text(runtime, "monitor_cgroup"),
                "annotations": texts(runtime, "allowed_annotations"),
            }
    return Effective(default, runtimes, cdi_dirs, hooks_dirs, monitor, auth_file)


def mentioned_hooks_dirs(configuration: str) -> list[str]:
    """Return the folders of hooks that a configuration file names.

    Does not parse TOML, because nodes have no parser for it.
    """
    return [path for names in _HOOKS_DIR.findall(configuration) for path in _QUOTED.findall(names)]


def parse_hook(hook: Mapping[str, object]) -> str | None:
    """Return the program of NVIDIA's that a hook calls; None for a hook of others."""
    program = text(hook, "hook", "path") or text(hook, "hook")  # version 1.0.0, or an older one
    return program if program and _OF_NVIDIA.search(program) else None
