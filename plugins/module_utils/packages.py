# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Commands and paths for the installed packages, and parsers of their output. No I/O.

Source: dpkg-query(1), section FIELDS; dpkg(1), section PACKAGE STATES; rpm-queryformat(7);
dnf-versionlock(8); dnf.modularity(7).
"""

from __future__ import annotations

import configparser
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DPKG_QUERY = (
    "dpkg-query",
    "-W",
    "-f=${Package}\\t${Version}\\t${db:Status-Status}\\t${db:Status-Want}\\n",
)
# Files of a repository, by its name; the last one is its key.
REPOSITORIES = (
    "/etc/apt/sources.list.d/{}.sources",
    "/etc/apt/sources.list.d/{}.list",
    "/etc/yum.repos.d/{}.repo",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-{}",
)
# Records of the packages that each role installed, named after the role.
RECORDS = "/var/lib/metal-gpu/packages/*.json"
VERSION_LOCKS = "/etc/dnf/plugins/versionlock.list"
MODULE_STATES = "/etc/dnf/modules.d/*.module"

# The same columns. rpm lists only installed packages; a plugin of dnf holds them.
RPM_QUERY = (
    "rpm",
    "-qa",
    "--queryformat=%{NAME}\\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\tinstalled\\t-\\n",
)


# States of dpkg. A package that waits for triggers works. dpkg has not tried to configure an
# unpacked package; with the other unfinished ones it tried and failed.
_WORKING = ("installed", "triggers-awaited", "triggers-pending")
UNPACKED = "unpacked"
_UNFINISHED = (UNPACKED, "half-installed", "half-configured")


class Package(NamedTuple):
    """An installed package."""

    version: str
    held: bool | None  # None: the package manager does not report it


class Unfinished(NamedTuple):
    """A package whose installation dpkg started and did not finish."""

    version: str
    state: str


def parse_packages(stdout: str) -> dict[str, Package]:
    """Parse the output of either query; return the installed packages, keyed by name."""
    return {
        name: Package(version, None if want == "-" else want == "hold")
        for name, version, state, want in _rows(stdout)
        if state in _WORKING
    }


def parse_unfinished(stdout: str) -> dict[str, Unfinished]:
    """Parse the same output; return the unfinished packages, keyed by name."""
    return {
        name: Unfinished(version, state)
        for name, version, state, _want in _rows(stdout)
        if state in _UNFINISHED
    }


def _rows(stdout: str) -> Iterator[list[str]]:
    for line in stdout.splitlines():
        row = line.split("\t")
        if len(row) == 4:
            yield row


def with_locks(packages: dict[str, Package], version_locks: str) -> dict[str, Package]:
    """Return rpm's packages; those that dnf's plugin versionlock locks are held.

    Its list has one pattern per line: name-epoch:version-release.architecture, "!" for exclusions.
    """
    patterns = [line.strip() for line in version_locks.splitlines() if line[:1] not in "#!"]
    return {
        name: package._replace(held=any(_is_locked(name, package.version, one) for one in patterns))
        for name, package in packages.items()
    }


def _is_locked(name: str, version: str, pattern: str) -> bool:
    epoch = "" if ":" in version else "0:"
    return any(
        fnmatchcase(candidate, pattern)
        for candidate in (
            name,
            f"{name}-{epoch}{version}.x86_64",
            f"{name}-{epoch}{version}.noarch",
        )
    )


def parse_module_states(text: str) -> dict[str, str]:
    """Parse a file of /etc/dnf/modules.d: enabled streams keyed by module."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return {
        name: parser[name]["stream"]
        for name in parser.sections()
        if parser[name].get("state") == "enabled" and parser[name].get("stream")
    }
