# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about a containerd that a Kubernetes distribution contains."""

from __future__ import annotations

import re
from posixpath import dirname
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Home, Program
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.containerd import Values
from ansible_collections.metal.gpu.plugins.module_utils.probe.distribution import ContainerdData
from ansible_collections.metal.gpu.plugins.module_utils.read import containerd, distributions
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import load_toml

# The sections of formats before 3. k0s does not start with one of them in a drop-in.
_FORMER_SECTIONS = ("io.containerd.grpc.v1.cri", "cri")
# A template that extends the distribution's own one, or lists the runtimes that it found, or has
# the NVIDIA runtime itself. What is between braces is carried out behind a # of TOML, too.
_COMMENT = re.compile(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", re.DOTALL)
_LISTS_RUNTIMES = re.compile(
    r"\{\{[^}]*(?:template\s+\"base\"|\.ExtraRuntimes)|^[^#\n]*nvidia-container-runtime",
    re.MULTILINE,
)


def data_of(raw: Raw) -> ContainerdData | None:
    """Return what the probe read of the distribution's containerd; None for containerd.service."""
    return cast(Values, raw.values("containerd"))["home"]


def missing_specs(raw: Raw) -> list[str]:
    """Return the files with the defaults of containers that the configuration names in vain."""
    return cast(Values, raw.values("containerd"))["missing_specs"]


def unit(raw: Raw) -> str:
    """Return the unit that runs containerd."""
    data = data_of(raw)
    return data["unit"] if data else containerd.UNIT


def program(raw: Raw) -> Program:
    """Return whether containerd is installed and runs, and its version."""
    data = data_of(raw)
    if data is None:
        return raw.program(containerd.UNIT, "containerd", "containerd")
    is_running = data["started_s"] is not None
    return {
        "installed": data["path"] is not None or is_running,
        "path": data["path"],
        **raw.version("containerd", data["unit"] if is_running else None),
        "running": is_running,
    }


def observe(raw: Raw) -> Home | None:
    """Return the distribution; None for containerd.service."""
    data = data_of(raw)
    home = distributions.home_of(data["unit"]) if data else None
    if data is None or home is None:
        return None
    named = distributions.templates(home, data["config"])
    template = next((one for one in named if one in raw.texts), None)
    appeared = raw.modified.get(distributions.RUNTIME)
    started = _started(raw, data)
    path = data["search_path"]
    watched = [f"{home.watched}/*.toml"] if home.watched else []
    return {
        "name": data["name"],
        "unit": data["unit"],
        "is_managed": cast(Values, raw.values("containerd"))["is_managed"],
        "detects_runtimes": home.detects_runtimes,
        "watched": home.watched,
        "template": template,
        "template_lists_runtimes": template is None
        or _LISTS_RUNTIMES.search(_COMMENT.sub("", raw.texts[template])) is not None,
        "runtime_in_path": path is None or dirname(distributions.RUNTIME) in path,
        "started_after_runtime": bool(appeared and started and appeared < started),
        "former_drop_ins": [
            one for one in raw.imported(*watched) if _is_former(one, raw.texts[one])
        ],
        "host_containerd": bool(raw.is_active(containerd.UNIT)),
    }


def changed_since_start(raw: Raw, patterns: list[str]) -> list[str]:
    """Return which files containerd has not read, because they were written after its start.

    A distribution restarts its containerd without its own unit, so the process counts.
    """
    data = data_of(raw)
    if data is None:
        return raw.changed_since_start(containerd.UNIT, patterns)
    if data["started_s"] is None:
        return []
    return raw.written_after(data["started_s"], patterns)


def _started(raw: Raw, data: ContainerdData) -> float | None:
    """Return when containerd started, in seconds since the epoch."""
    if data["started_s"] is None:
        return None
    return raw.clock["now"] - (raw.clock["uptime"] - data["started_s"])


def _is_former(path: str, text: str) -> bool:
    document = load_toml(path, text).content
    version, plugins = document.get("version"), document.get("plugins")
    named = [*plugins] if isinstance(plugins, dict) else []
    return version in (1, 2) or any(one in named for one in _FORMER_SECTIONS)
