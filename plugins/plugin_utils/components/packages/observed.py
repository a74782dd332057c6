# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about packages, their sources, and the package manager."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import (
    PackageManager,
    PackagesPart,
    Repository,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.packages import Values
from ansible_collections.metal.gpu.plugins.module_utils.read import packages
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    ObservedRepository,
)


def observe(raw: Raw) -> PackagesPart:
    values = cast(Values, raw.values("packages"))
    return {
        "packages": {
            name: {"version": package.version, "held": package.held}
            for name, package in raw.packages.items()
            if any(fnmatchcase(name, pattern) for pattern in raw.asked["packages"])
        },
        "repositories": _repositories(raw),
        "package_sources": values["sources"],
        "module_streams": {
            name: stream
            for path in raw.find(packages.MODULE_STATES)
            for name, stream in packages.parse_module_states(raw.texts[path]).items()
        },
        "package_manager": _package_manager(raw, values),
    }


def _repositories(raw: Raw) -> dict[str, Repository]:
    *files, key_file = packages.REPOSITORIES
    found: dict[str, Repository] = {}
    for pattern in files:
        for path in raw.find(pattern.format("*")):
            name = PurePosixPath(path).stem
            if any(fnmatchcase(name, asked) for asked in raw.asked["repositories"]):
                key = raw.texts.get(key_file.format(name))
                one = ObservedRepository.parse(path, raw.texts[path], key)
                found.setdefault(
                    name,
                    {"path": one.path, "entries": one.entries, "key": one.key, "error": one.error},
                )
    return found


def _package_manager(raw: Raw, values: Values) -> PackageManager:
    relations = values["relations"]
    return {
        "error": packages.query_error(raw.outputs.get("packages")) or relations["error"],
        "lock": values["lock"],
        "interrupted": values["interrupted"],
        "unfinished": packages.parse_unfinished(raw.stdout("packages"), raw.architecture),
        "automatic": relations["automatic"],
        "dependants": relations["dependants"],
    }
