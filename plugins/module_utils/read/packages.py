# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Commands and paths for the installed packages, and parsers of their output.

Source: dpkg-query(1), section FIELDS; dpkg(1), sections PACKAGE STATES and FILES;
rpm-queryformat(7); dnf-versionlock(8); dnf.modularity(7).
"""

from __future__ import annotations

import configparser
import json
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read.output import failure_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

DPKG_QUERY = (
    "dpkg-query",
    "-W",
    "-f=${Package}\\t${Version}\\t${db:Status-Status}\\t${db:Status-Want}\\t${Architecture}\\n",
)
# All packages with their dependencies, to find the packages that need a role's packages. A process
# of dpkg-query takes ten times as long.
# apt keeps its cache in memory: an observation writes nothing on the node.
UNCACHED = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
# If not for it, apt upgrades linux-image-amd64 with linux-headers-amd64, because both are from one
# source package. Seen with apt 2.6.1 and the indexes of Debian 12, 2026-11-23.
KEEP_KERNEL = ("-o", "APT::Get::Upgrade-By-Source-Package=false")
DPKG_STATUS = "/var/lib/dpkg/status"
# apt's list of the packages that it installed as dependencies: apt-mark(8).
AUTOMATIC = "/var/lib/apt/extended_states"
# Files of a repository, by its name; the last one is its key.
REPOSITORIES = (
    "/etc/apt/sources.list.d/{}.sources",
    "/etc/apt/sources.list.d/{}.list",
    "/etc/yum.repos.d/{}.repo",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-{}",
)
# Records of the packages that each role installed, named after the role.
RECORDS = "/var/lib/metal-gpu/packages/*.json"
# What a record says of itself, beside the names. Those of early versions do not.
RECORD = {"version": 1}
VERSION_LOCKS = "/etc/dnf/plugins/versionlock.list"
MODULE_STATES = "/etc/dnf/modules.d/*.module"

# The same columns. rpm lists only installed packages; a plugin of dnf holds them.
RPM_QUERY = (
    "rpm",
    "-qa",
    "--queryformat=%{NAME}\\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}"
    "\\tinstalled\\t-\\t%{ARCH}\\n",
)
# dpkg-query exits with 1 if a pattern matches nothing, and with 2 on errors. rpm -qa exits with 0
# if nothing matches, and with 1 if it cannot open its database.
# Source: dpkg-query(1), EXIT STATUS; rpm 4.18.0 of Debian 12, run on a damaged database.
_NO_MATCH = "no packages found matching"
# dpkg's names of architectures, by the kernel's names, which rpm uses.
_DPKG_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_ANY_ARCHITECTURE = ("all", "noarch")

_FIELD = re.compile(r"\n(P(?:ackage|re-Depends|rovides)|Status|Depends): (.*)")

# States of dpkg. A package that waits for triggers works. dpkg has not tried to configure an
# unpacked package; with the other unfinished ones it tried and failed.
_WORKING = ("installed", "triggers-awaited", "triggers-pending")
UNPACKED = "unpacked"
_UNFINISHED = (UNPACKED, "half-installed", "half-configured")


class Package(NamedTuple):
    """An installed package."""

    version: str
    held: bool | None  # None: the package manager does not report it


class Unfinished(TypedDict):
    """A package whose installation dpkg started and did not finish."""

    version: str
    state: str  # `unpacked`: not tried yet; `half-configured` or `half-installed`: failed


class Relations(NamedTuple):
    """The relations of an installed package, in dpkg's syntax."""

    name: str
    needs: str  # Pre-Depends and Depends
    provides: str


def query_error(output: Output | None) -> str | None:
    """Return why the output of either query is not the list of packages; None if it is."""
    if output and (output.rc == 0 or (output.rc == 1 and _NO_MATCH in output.stderr)):
        return None
    return failure_text(output, "dpkg-query or rpm")


def parse_packages(stdout: str, machine: str) -> dict[str, Package]:
    """Parse the output of either query; return the installed packages, keyed by name.

    Packages of another architecture than the node's `machine` do not count.
    """
    native = _native(machine)
    return {
        name: Package(version, None if want == "-" else want == "hold")
        for name, version, state, want, architecture in _rows(stdout)
        if state in _WORKING and architecture in native
    }


def parse_unfinished(stdout: str, machine: str) -> dict[str, Unfinished]:
    """Parse the same output; return the unfinished packages, keyed by name.

    Packages of another architecture count, because they block dpkg too. Their key is the name that
    dpkg accepts, name:architecture.
    """
    native = _native(machine)
    return {
        name if architecture in native else f"{name}:{architecture}": {
            "version": version,
            "state": state,
        }
        for name, version, state, _want, architecture in _rows(stdout)
        if state in _UNFINISHED
    }


def parse_automatic(text: str, machine: str) -> set[str]:
    """Parse apt's extended states: the packages that apt installed as dependencies."""
    native, found = _native(machine), set()
    for stanza in text.split("\n\n"):
        rows = (line.partition(":") for line in stanza.splitlines())
        fields = {name: value.strip() for name, _colon, value in rows}
        if fields.get("Auto-Installed") == "1" and fields.get("Architecture", "all") in native:
            found.add(fields.get("Package", ""))
    return found - {""}


def recorded_names(text: str) -> set[str]:
    """Return the packages in a role's record; none if the record is unreadable."""
    try:
        record = json.loads(text)
    except ValueError:
        return set()
    return set(record) - set(RECORD) if isinstance(record, dict) else set()


def parse_relations(status: str) -> list[Relations]:
    """Parse dpkg's file of states: the installed packages with their relations.

    The fields are in the order that dpkg writes them. Each is on one line.
    """
    found: list[dict[str, str]] = []
    for name, value in _FIELD.findall(f"\n{status}"):
        if name == "Package":
            found.append({})
        if found:
            found[-1][name] = value
    return [
        Relations(
            name=one["Package"],
            needs=f"{one.get('Pre-Depends', '')}, {one.get('Depends', '')}",
            provides=one.get("Provides", ""),
        )
        for one in found
        if one.get("Status", "").rpartition(" ")[2] in _WORKING
    ]


def dependants(installed: Sequence[Relations], names: Iterable[str]) -> dict[str, list[list[str]]]:
    """Return the packages that need one of these, directly or indirectly, keyed by name.

    Each dependency is a list of the installed packages that satisfy it. If apt removes all of them,
    it removes the package. Versions do not count.
    """
    providers: dict[str, set[str]] = {}
    for one in installed:
        for provided in (one.name, *_relation_names(one.provides, ",")):
            providers.setdefault(provided, set()).add(one.name)
    clauses = {
        one.name: [
            set().union(*(providers.get(name, set()) for name in _relation_names(clause, "|")))
            for clause in one.needs.split(",")
        ]
        for one in installed
    }
    found: dict[str, list[list[str]]] = {}
    reached, is_growing = set(names), True
    while is_growing:
        found = {
            name: sorted(sorted(one) for one in needs if one & reached)
            for name, needs in clauses.items()
            if any(one & reached and name not in one for one in needs)
        }
        is_growing = not reached.issuperset(found)
        reached |= set(found)
    return dict(sorted(found.items()))


def _relation_names(text: str, separator: str) -> list[str]:
    """Return the package names in a field of relations, without versions and architectures."""
    words = (one.split("(")[0].strip().partition(":")[0] for one in text.split(separator))
    return [word for word in words if word]


def _native(machine: str) -> tuple[str, ...]:
    return (machine, _DPKG_ARCHITECTURES.get(machine, machine), *_ANY_ARCHITECTURE)


def _rows(stdout: str) -> Iterator[list[str]]:
    for line in stdout.splitlines():
        row = line.split("\t")
        if len(row) == 5:
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
