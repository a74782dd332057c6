# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about packages, their sources, and the package manager. No I/O."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.components.packages import Values
from ansible_collections.metal.gpu.plugins.module_utils.probe.package_manager import Lock
from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import PackageSource
from ansible_collections.metal.gpu.plugins.module_utils.read import packages
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    ObservedRepository,
)


class Package(TypedDict):
    """An installed package; held is None if the package manager does not report it."""

    version: str
    held: bool | None


class Repository(TypedDict):
    """The content of a repository's file, without secrets."""

    path: str
    entries: list[dict[str, str]]
    key: str | None
    error: str | None


class PackageManager(TypedDict):
    """Whether the package manager is usable now, and what apt would remove with a package."""

    error: str | None
    lock: Lock | None
    interrupted: bool
    unfinished: dict[str, packages.Unfinished]
    automatic: list[str]
    dependants: dict[str, list[list[str]]]


class Observed(TypedDict):
    """Packages and their sources."""

    packages: dict[str, Package]
    repositories: dict[str, Repository]
    package_sources: list[PackageSource]
    module_streams: dict[str, str]
    package_manager: PackageManager


def observe(raw: Raw) -> Observed:
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
