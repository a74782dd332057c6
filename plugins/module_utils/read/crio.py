# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse CRI-O's configuration. No I/O; documents are already loaded from TOML.

Source: docs/crio.conf.5.md of CRI-O: crio.conf, then crio.conf.d/* in lexical order; a running
CRI-O prints the result with `crio status config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import sections, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNIT = "crio.service"
CONFIG_PATTERNS = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*")


class Runtime(TypedDict):
    """A runtime that a RuntimeClass can name as its handler."""

    type: str | None
    binary: str | None


class Effective(NamedTuple):
    """The settings that result from all configuration files."""

    default_runtime: str | None  # None: the built-in one
    runtimes: dict[str, Runtime]


def parse_effective(documents: Iterable[Mapping[str, object]]) -> Effective:
    """Merge the runtimes of configuration files, in the order given."""
    default: str | None = None
    runtimes: dict[str, Runtime] = {}
    for document in documents:
        default = text(document, "crio", "runtime", "default_runtime") or default
        for name, runtime in sections(document, "crio", "runtime", "runtimes").items():
            runtimes[name] = {
                "type": text(runtime, "runtime_type"),
                "binary": text(runtime, "runtime_path"),
            }
    return Effective(default, runtimes)
