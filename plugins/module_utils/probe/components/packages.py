# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about packages: those that are installed, their sources, and the package manager."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe import package_manager
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
    PackageSource,
    read_sources,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver, packages

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading


class Relations(TypedDict):
    """The packages that apt removes together with those of the driver or of a role."""

    automatic: list[str]
    dependants: dict[str, list[list[str]]]
    error: str | None  # why they are unknown


class Values(TypedDict):
    """What only this component reads."""

    sources: list[PackageSource]
    lock: package_manager.Lock | None
    interrupted: bool
    relations: Relations


def _read(reading: Reading) -> None:
    reading.files.read_all(
        pattern.format(name)
        for name in reading.request.repositories
        for pattern in packages.REPOSITORIES
    )


def _values(reading: Reading) -> Values:
    root = reading.node.root
    return {
        "sources": read_sources(root),
        "lock": package_manager.read_lock(root),
        "interrupted": package_manager.was_interrupted(root),
        "relations": _read_relations(reading),
    }


def _read_relations(reading: Reading) -> Relations:
    """Return which packages need those of the driver or of a role, for the removal by apt.

    A switch removes the driver of an admin, too. What this function reads is long, so it stays on
    the node. It reads dpkg's file, because a process takes ten times as long.
    """
    recorded = set[str]()
    for path in reading.files.find(packages.RECORDS):
        recorded |= packages.recorded_names(reading.files.texts.get(path, ""))
    files = NodeFiles(reading.node.root)
    relations = packages.parse_relations(files.read(packages.DPKG_STATUS) or "")
    drivers = filter(nvidia_driver.is_driver_package, (one.name for one in relations))
    names = {*recorded, *drivers}
    if not names:
        return {"automatic": [], "dependants": {}, "error": None}
    dependants = packages.dependants(relations, names)
    text = files.read(packages.AUTOMATIC) or ""
    automatic = packages.parse_automatic(text, os.uname().machine)
    return {
        "automatic": sorted(automatic & {*names, *dependants}),
        "dependants": dependants,
        "error": next((f"{path}: {error}" for path, error in files.errors.items()), None),
    }


def _commands(reading: Reading) -> dict[str, Command]:
    has_dpkg = reading.node.find_program(packages.DPKG_QUERY[0])
    query = packages.DPKG_QUERY if has_dpkg else packages.RPM_QUERY
    patterns = (*nvidia_driver.PACKAGE_PATTERNS, *reading.request.packages)
    return {"packages": Command((*query, "--", *patterns))}


PROBE = Probe(
    files=(packages.VERSION_LOCKS, packages.MODULE_STATES, packages.RECORDS),
    read=_read,
    values=_values,
    commands=_commands,
)
