# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the records say about a package: recorded/packages. tests/recorded/README.md has the rows.

The stand-ins have these names, versions, relations and units. What is in a stand-in is in
packages.py and rpm_packages.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parent / "recorded" / "packages"

# What a row says about a group, it says about each of its packages.
_OF_GROUPS = ("version form", "section")


@cache
def rows() -> tuple[dict[str, Any], ...]:
    """Return the rows of all files, in their order."""
    contents = (yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml")))
    return tuple(row for content in contents for row in content.get("rows", ()))


def values(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the values of a row, which has one or several."""
    value = row["value"]
    return tuple(map(str, value if isinstance(value, list) else [value]))


def about(repositories: tuple[str, ...], what: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a kind about at least one of the repositories."""
    for row in rows():
        names = row["repositories"] if "repositories" in row else [row["repository"]]
        if row["what"] == what and not {*names}.isdisjoint(repositories):
            yield row


def only(repository: str, what: str) -> str:
    """Return the only value that the records have."""
    found = {value for row in about((repository,), what) for value in values(row)}
    if len(found) != 1:
        raise LookupError(f"the records have {len(found)} values for {what!r} of {repository}")
    return found.pop()


class Subject(NamedTuple):
    """A package with one upstream version. Several repositories complete each other's records."""

    name: str
    version: str  # upstream's: without epoch and revision
    repositories: tuple[str, ...]

    @property
    def branch(self) -> int:
        """The first number of the version. Some rows are about some branches of the driver."""
        return int(re.match(r"\d+", self.version)[0])  # type: ignore[index]

    def _about(self, what: str) -> Iterator[dict[str, Any]]:
        for row in about(self.repositories, what):
            if row.get("first branch", 0) <= self.branch <= row.get("last branch", 10**9):
                yield row

    def _names(self, what: str) -> bool:
        return any(
            fnmatchcase(self.name, value) for row in self._about(what) for value in values(row)
        )

    @property
    def exists(self) -> bool:
        """Whether a repository has the package in this branch."""
        return self._names("package") and not self._names("no package")

    def _groups(self) -> set[str]:
        return {
            row["of"] for row in self._about("package") if "of" in row and self.name in values(row)
        }

    def recorded(self, what: str) -> tuple[str, ...]:
        """Return the values of a kind in the order of the rows, those of the group first."""
        groups = self._groups() if what in _OF_GROUPS else set()
        of_group: list[str] = []
        own: list[str] = []
        for row in self._about(what):
            if fnmatchcase(self.name, row["package"]):
                own += values(row)
            elif row["package"] in groups:
                of_group += values(row)
        return tuple(dict.fromkeys((*of_group, *own)))

    def one(self, what: str, default: str = "") -> str:
        """Return the value of a kind; that of the package counts more than that of its group."""
        if found := self.recorded(what):
            return found[-1]
        if default:
            return default
        where = ", ".join(self.repositories)
        raise LookupError(f"no record has {what!r} of {self.name} in {where}")

    @property
    def full_version(self) -> str:
        """The version with epoch and revision (or release)."""
        return self.one("version form").replace("VERSION", self.version)

    def relations(self, what: str) -> tuple[str, ...]:
        """Return the relations of a kind, with versions in place of the words for them."""
        full = self.full_version
        return tuple(
            one.replace("VERSION-REVISION", full).replace("VERSION", full.rpartition("-")[0])
            for one in self.recorded(what)
        )
