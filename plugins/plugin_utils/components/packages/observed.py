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
    held: bool | None  # whether `apt-mark` or `dnf versionlock` holds it


class Repository(TypedDict):
    """The content of a repository's file, without secrets."""

    path: str
    entries: list[dict[str, str]]  # fields about the origin, with a hash for credentials
    key: str | None  # text of `/etc/pki/rpm-gpg/RPM-GPG-KEY-*` of this name
    error: str | None  # why the file cannot be read


class PackageManager(TypedDict):
    """Whether the package manager is usable now, and what apt would remove with a package."""

    error: str | None  # why packages or their relations are unknown
    lock: Lock | None  # process that holds a lock
    interrupted: bool  # whether dpkg must first finish pending changes
    unfinished: dict[str, packages.Unfinished]  # packages that dpkg did not finish, by name
    automatic: list[str]  # packages of the driver and the roles that apt installed as dependencies
    # packages that need those; of each of their lists, one package has to stay
    dependants: dict[str, list[list[str]]]


class Observed(TypedDict):
    """Packages and their sources."""

    # installed packages that `packages` asks for, of the node's own architecture, by name
    packages: dict[str, Package]
    # files that `repositories` asks for, by name, without credentials
    repositories: dict[str, Repository]
    package_sources: list[PackageSource]  # addresses that apt and dnf get packages from
    module_streams: dict[str, str]  # enabled streams of dnf, by module
    package_manager: PackageManager  # whether apt or dnf is usable now


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
