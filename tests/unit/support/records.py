# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the records say about repositories and packages: tests/recorded/README.md has their form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read.version import upstream_version
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import is_version

FOLDER = Path(__file__).parents[2] / "recorded" / "packages"
RECORDED, CONTRADICTED, UNPROVEN = "recorded", "contradicted", "unproven"
STATES = (RECORDED, UNPROVEN, CONTRADICTED)  # the best one first
SEEN = ("seen", "one source")
# A repository has exactly one of these.
_SINGLE = ("address", "suite", "components", "signs", "key", "keyring", "fingerprint")
DRIVER = "driver"  # the group of its packages, and the start of the names of others


class Source(NamedTuple):
    """Where a row comes from."""

    where: str
    date: date


class Row(NamedTuple):
    """A fact about some repositories."""

    what: str
    repositories: tuple[str, ...]
    values: tuple[Any, ...]
    source: Source
    confidence: str
    package: str | None  # what the fact is about; may be a pattern, or a group's name
    group: str | None  # the packages of a row "package" have the group's versions

    def has(self, value: str) -> bool:
        return any(fnmatchcase(value, str(one)) for one in self.values)


class Item(NamedTuple):
    """What a plan expects of a repository or of a package."""

    what: str
    value: str
    package: str = ""  # for a version

    def __str__(self) -> str:
        return f"{self.what} {self.package} {self.value}".replace("  ", " ")


class Judgement(NamedTuple):
    """What the records say about an item, and the row that says it."""

    state: str
    row: Row | None = None


@cache
def rows() -> tuple[Row, ...]:
    texts = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
    sources = {name: Source(**one) for name, one in texts.pop("sources")["sources"].items()}
    return tuple(_row(row, sources) for text in texts.values() for row in text["rows"])


def _row(row: dict[str, Any], sources: dict[str, Source]) -> Row:
    value = row["value"]
    return Row(
        row["what"],
        tuple(row["repositories"] if "repositories" in row else [row["repository"]]),
        tuple(value) if isinstance(value, list) else (value,),
        sources[row["source"]],
        row["confidence"],
        row.get("package"),
        row.get("of"),
    )


def about(repository: str, what: str) -> Iterator[Row]:
    return (row for row in rows() if row.what == what and repository in row.repositories)


def repositories(address: str, suite: str) -> list[str]:
    """Return the names of the repositories at an address; they differ in their suites."""
    names = {name for row in rows() if row.what == "address" for name in row.repositories}
    here = [
        name for name in sorted(names) if any(row.has(address) for row in about(name, "address"))
    ]
    with_suite = [name for name in here if any(row.has(suite) for row in about(name, "suite"))]
    return with_suite or here


def newest(repository: str) -> dict[int, str]:
    """Return the version of each branch of the driver that was seen last, by branch."""
    found: dict[int, tuple[date, str]] = {}
    for row in about(repository, "version"):
        if (row.package or "").partition("-")[0] == DRIVER:
            for version in map(upstream_version, row.values):
                branch = int(version.partition(".")[0])
                found[branch] = max(found.get(branch, (date.min, "")), (row.source.date, version))
    return {branch: version for branch, (_date, version) in found.items()}


def branches(repository: str) -> set[int]:
    """Return the branches of which a version is recorded."""
    return {*newest(repository)}


def judge_address(system: str, address: str) -> Judgement:
    """Judge an address that no record has: is another one of this host recorded for the system?"""
    for row in rows():
        if row.what == "address" and urlsplit(row.values[0]).netloc == urlsplit(address).netloc:
            used = [used for name in row.repositories for used in about(name, "used on")]
            if any(one.has(system) for one in used):
                return Judgement(CONTRADICTED, row)
    return Judgement(UNPROVEN)


def judge(repository: str, item: Item) -> Judgement:
    """Return what the records say about an item of a repository."""
    if item.what == "version":
        return _judge_version(repository, item)
    opposites = {"no stream": "stream", "used on": "refused on"}
    opposite = opposites.get(item.what, f"no {item.what}")
    for row in about(repository, opposite):
        if item.what == "no stream" or row.has(item.value):
            return Judgement(CONTRADICTED, row)
    recorded = [*about(repository, item.what)]
    found = _best([row for row in recorded if row.has(item.value)])
    if found.state != RECORDED and recorded and item.what in _SINGLE:
        return Judgement(CONTRADICTED, recorded[0])
    return found


def _best(found: list[Row]) -> Judgement:
    """Return the judgement of the rows that say the same as the item; the newest wins."""
    seen = [row for row in found if row.confidence in SEEN]
    if seen:
        return Judgement(RECORDED, max(seen, key=lambda row: row.source.date))
    return Judgement(UNPROVEN, found[0] if found else None)


def _judge_version(repository: str, item: Item) -> Judgement:
    packages = about(repository, "package")
    groups = {row.group for row in packages if row.group and row.has(item.package)}
    names = {item.package, *groups}
    recorded = [row for row in about(repository, "version") if row.package in names]
    found = [row for row in recorded if any(is_version(one, item.value) for one in row.values)]
    if found:
        return _best(found)
    if DRIVER in groups:
        branch = item.value.rpartition(":")[2].partition(".")[0]
        for row in about(repository, "no branch"):
            if row.has(branch):
                return Judgement(CONTRADICTED, row)
    for row in about(repository, "version form"):
        if row.package in names and _epoch(row.values[0]) != _epoch(item.value):
            return Judgement(CONTRADICTED, row)
    for row in recorded:
        if any(_contradicts(one, item.value) for one in row.values):
            return Judgement(CONTRADICTED, row)
    return Judgement(UNPROVEN)


def _contradicts(recorded: str, desired: str) -> bool:
    """Whether a version cannot be right: it has another epoch, or the same version otherwise."""
    return _epoch(recorded) != _epoch(desired) or (
        upstream_version(recorded) == upstream_version(desired)
    )


def _epoch(version: str) -> str:
    match = re.match(r"(\d+):", version)
    return match[1] if match else ""
