# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does CRI-O start with its files as a plan leaves them?

A running CRI-O can have files with which it does not start, because it reads them only at its
start. `crio config` does not notice a missing monitor.

Source: tests/recorded/crio.yml
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.engines import Crio, CrioConfig
from ansible_collections.metal.gpu.plugins.module_utils.read.crio import reading_order
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio.settings import (
    BUILT_IN,
    DROP_IN,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import NoData, Plan


class DropIn(NamedTuple):
    """What the drop-in of this collection has at the start."""

    has_table: bool  # of the NVIDIA runtime, always with its monitor
    default: str | None


def refuse_fatal_start(plan: Plan[NoData], engine: Crio, drop_in: DropIn | None = None) -> None:
    """Refuse files with which CRI-O does not start. Without `drop_in`, that file stays as it is."""
    for code, evidence in _fatal(engine, drop_in):
        plan.refuse(code, **evidence)


def notice_fatal_boot(plan: Plan[NoData], engine: Crio) -> None:
    """Name what keeps a running CRI-O from its next start, where the plan has none."""
    for code, evidence in _fatal(engine, None):
        message = finding(code, plan.host, **evidence)["message"].removeprefix(f"{plan.host}: ")
        plan.notice("ENGINE_NOT_STARTABLE", engine="CRI-O", evidence=message)


def _fatal(engine: Crio, drop_in: DropIn | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the code of a refusal with its evidence."""
    config = engine["config"]
    if config["error"] or not engine["installed"]:
        return
    tables, defaults = _tables(config, drop_in), _defaults(config, drop_in)
    if defaults:
        path = reading_order(defaults)[-1]
        default = defaults[path]
        # While CRI-O runs, it shows whether it has the runtime without a file.
        is_built_in = engine["running"] and default in BUILT_IN and default in engine["runtimes"]
        if default not in tables and not is_built_in:
            missing = f"no file has [crio.runtime.runtimes.{default}]"
            error = f"{path}: default_runtime is {default}, but {missing}"
            yield "CRIO_CONFIG_INVALID", {"error": error}
    if config["monitor"] or engine["monitor_in_path"]:
        return
    for name, path in tables.items():
        is_ours = drop_in is not None and path == DROP_IN
        if path in config["without_monitor"].get(name, []) and not is_ours:
            yield "CRIO_MONITOR_MISSING", {"runtime": name, "path": path}


def _tables(config: CrioConfig, drop_in: DropIn | None) -> dict[str, str]:
    """Return the file whose table counts, by the name of the runtime."""
    files = {name: set(paths) for name, paths in config["runtime_files"].items()}
    if drop_in:
        for paths in files.values():
            paths.discard(DROP_IN)
        if drop_in.has_table:
            files.setdefault(runtime.NAME, set()).add(DROP_IN)
    return {name: reading_order(paths)[-1] for name, paths in files.items() if paths}


def _defaults(config: CrioConfig, drop_in: DropIn | None) -> dict[str, str]:
    """Return the default runtimes by the files that choose them."""
    if drop_in is None:
        return config["defaults"]
    others = {path: name for path, name in config["defaults"].items() if path != DROP_IN}
    return {**others, **({DROP_IN: drop_in.default} if drop_in.default else {})}
