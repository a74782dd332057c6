# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names, versions and relations of the packages are those of the records, or are listed here."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

import metal_lab
from metal_lab import groups, packages
from metal_lab.description import Description, Node
from metal_lab.packages import Package
from metal_lab.parts import PARTS

FOLDER = Path(metal_lab.__file__).parent / "recorded" / "packages"
ROWS: list[dict[str, Any]] = [
    row for path in FOLDER.glob("*.yml") for row in yaml.safe_load(path.read_text()).get("rows", [])
]
# The repositories whose records a pool is compared with. Those of the driver are one pool here:
# what Debian 12 lacks can be in the record of Debian 13.
POOLS = {
    "nvidia": ("debian12", "debian13", "ubuntu2204"),
    "docker/bookworm": ("docker-bookworm",),
    "docker/trixie": ("docker-trixie",),
    "toolkit": ("toolkit-deb",),
    "cri-dockerd": ("cri-dockerd",),
}
# What no record has, and why it is there.
UNRECORDED = {
    "nvidia-driver-pinning-580.173.02": "named like those of other versions",
    "nvidia-driver-pinning-580.178.04": "named like those of other versions",
    "nvidia-driver-pinning-610.57.04": "named like those of other versions",
    "nvidia-fabricmanager": "recorded in other versions; it has the version of its driver",
    "580.173.02-1": "recorded for Ubuntu, with Ubuntu's revision",
    "5:29.8.1-1~debian.12~bookworm": "recorded for Debian 13",
    "5:29.9.0-1~debian.13~trixie": "recorded for Debian 12",
    "2.4.2-1~debian.12~bookworm": "the version of containerd that the laboratory builds",
    "2.4.2-1~debian.13~trixie": "the version of containerd that the laboratory builds",
    "2.99.0-1~debian.12~bookworm": "an update that does not exist",
    "2.99.0-1~debian.13~trixie": "an update that does not exist",
    "1.99.0-1": "an update that does not exist",
}
NODES = (Node("gpu-1", "debian12", "t4x1"), Node("gpu-2", "debian13", "t4x1"))
EVERYTHING = Description(NODES, tuple(PARTS), ("580.178.04", "580.173.02"))


def everything() -> Iterator[tuple[str, Package]]:
    programs = defaultdict(lambda: packages.EMPTY)
    for group in groups.groups(EVERYTHING, programs, Path, "6.1.0-26-amd64"):
        for package in group.packages:
            yield group.pool, package


COMPARED = [
    pytest.param(pool, package, id=f"{pool}, {package.name} {package.version}")
    for pool, package in everything()
    if pool in POOLS
]


def about(pool: str, what: str) -> Iterator[dict[str, Any]]:
    for row in ROWS:
        names = row.get("repositories") or [row["repository"]]
        if row["what"] == what and not {*names}.isdisjoint(POOLS[pool]):
            yield row


def values(row: dict[str, Any]) -> list[str]:
    found = row["value"]
    return [*map(str, found)] if isinstance(found, list) else [str(found)]


def branch(package: Package) -> int:
    number = re.match(r"\d+", package.version.rpartition(":")[2])
    return int(number[0]) if number else 0


def of_package(pool: str, what: str, package: Package) -> Iterator[dict[str, Any]]:
    """Yield the rows about a package, of its branch of the driver."""
    for row in about(pool, what):
        since, until = row.get("first branch", 0), row.get("last branch", 10**9)
        if fnmatchcase(package.name, row["package"]) and since <= branch(package) <= until:
            yield row


@pytest.mark.parametrize(("pool", "package"), COMPARED)
def test_name_and_version_are_recorded(pool: str, package: Package) -> None:
    named = [row for row in about(pool, "package") if package.name in values(row)]
    groups = {row["of"] for row in named if "of" in row} | {package.name}
    versions = {
        version
        for row in about(pool, "version")
        if row["package"] in groups
        for version in values(row)
    }
    assert named or package.name in UNRECORDED or pool == "cri-dockerd"
    is_pin = package.name in UNRECORDED
    assert package.version in versions or package.version in UNRECORDED or is_pin


@pytest.mark.parametrize("what", ["depends", "provides", "conflicts", "replaces"])
@pytest.mark.parametrize(("pool", "package"), COMPARED)
def test_relations_are_those_of_the_records(pool: str, package: Package, what: str) -> None:
    upstream = package.version.rpartition(":")[2]
    recorded = {
        relation.replace("(= version)", f"(= {upstream})")
        for row in of_package(pool, what, package)
        for relation in values(row)
    }
    assert recorded <= {*getattr(package, what)}


def test_nothing_is_listed_that_is_recorded() -> None:
    used = {one for _pool, package in everything() for one in (package.name, package.version)}
    assert {*UNRECORDED} <= used


def test_pin_is_in_the_recorded_file() -> None:
    (place,) = {
        one
        for row in about("nvidia", "file")
        if row["package"].startswith("nvidia-driver-pinning")
        for one in values(row)
    }
    pins = [one for _pool, one in everything() if "-pinning-" in one.name and one.folder != "empty"]
    assert pins
    assert all(place in packages.texts(pin) for pin in pins)


def test_persistence_daemon_starts_with_the_recorded_options() -> None:
    (unit,) = {
        one
        for row in about("nvidia", "unit")
        if row["package"] == "nvidia-persistenced"
        for one in values(row)
    }
    texts = packages.texts(
        next(one for _pool, one in everything() if one.name == "nvidia-persistenced")
    )
    assert f"ExecStart={unit}\n" in texts["/usr/lib/systemd/system/nvidia-persistenced.service"]


def test_updates_are_newer_and_empty() -> None:
    updates = [package for _pool, package in everything() if package.folder == "empty"]
    assert {"nvidia-driver-cuda", "docker-ce", "containerd.io"} <= {one.name for one in updates}
    for one in updates:
        assert (one.binaries, one.links, one.units) == ({}, {}, ())
        assert packages.control_files(one).keys() == {"control"}
        assert list(packages.texts(one)) == [f"/usr/share/doc/{one.name}/copyright"]
