# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The packages of the laboratory are those of the records. What no record has is listed here."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from metal_lab import debs, groups, records, rpm_packages
from metal_lab.debs import EMPTY, Package
from metal_lab.description import Description, Node
from metal_lab.parts import PARTS
from metal_lab.records import Subject
from metal_lab.rpms import Rpm

# The repositories whose records a pool is compared with. Those of the driver are one pool here:
# what Debian 12 lacks can be in the record of Debian 13.
POOLS = {
    "nvidia": ("debian12", "debian13", "ubuntu2204"),
    "docker/bookworm": ("docker-bookworm",),
    "docker/trixie": ("docker-trixie",),
    "toolkit": ("toolkit-deb",),
    "cri-o": ("crio-deb",),
    "cri-dockerd": ("cri-dockerd",),
    "nvidia-rhel9": ("rhel9",),
    "docker-centos9": ("docker-centos9",),
    "toolkit-rpm": ("toolkit-rpm", "toolkit-deb"),
}
# What no record has, and why it is there.
UNRECORDED = {
    "nvidia-driver-pinning-580.173.02": "named like those of other versions",
    "nvidia-driver-pinning-580.178.04": "named like those of other versions",
    "nvidia-driver-pinning-610.57.04": "named like those of other versions",
    "nvidia-fabricmanager": "recorded in other versions; it has the version of its driver",
    "580.173.02-1": "recorded for Ubuntu, with Ubuntu's revision",
    "3:580.173.02-1.el9": "recorded for Ubuntu",
    "5:29.8.1-1~debian.12~bookworm": "recorded for Debian 13",
    "5:29.9.0-1~debian.13~trixie": "recorded for Debian 12",
    "2.4.2-1~debian.12~bookworm": "the version of containerd that the laboratory builds",
    "2.4.2-1~debian.13~trixie": "the version of containerd that the laboratory builds",
    "2.4.2-1.el9": "the version of containerd that the laboratory builds",
    "1.36.3-1.1": "the version of CRI-O that the laboratory builds",
    "2.99.0-1~debian.12~bookworm": "an update that does not exist",
    "2.99.0-1~debian.13~trixie": "an update that does not exist",
    "1.99.0-1": "an update that does not exist",
}
NODES = (
    Node("gpu-1", "debian12", "t4x1"),
    Node("gpu-2", "debian13", "t4x1"),
    Node("gpu-3", "rocky9", "t4x1"),
    Node("gpu-4", "debian12", "b200x8"),
)
EVERYTHING = Description(NODES, tuple(PARTS), ("580.178.04", "580.173.02"))


def everything() -> Iterator[tuple[str, Package]]:
    needed = (EVERYTHING, defaultdict(lambda: EMPTY), EMPTY.joinpath, "6.1.0-26-amd64")
    for group in (*groups.groups(*needed), *rpm_packages.groups(*needed)):
        for package in group.packages:
            yield group.pool, package


def full_version(package: Package) -> str:
    if not isinstance(package, Rpm):
        return package.version
    epoch = f"{package.epoch}:" if package.epoch else ""
    return f"{epoch}{package.version}-{package.release}"


COMPARED = [
    pytest.param(pool, package, id=f"{pool}, {package.name} {package.version}")
    for pool, package in everything()
    if pool in POOLS
]


@pytest.mark.parametrize(("pool", "package"), COMPARED)
def test_name_and_version_are_recorded(pool: str, package: Package) -> None:
    named = [
        row for row in records.about(POOLS[pool], "package") if package.name in records.values(row)
    ]
    names = {row["of"] for row in named if "of" in row} | {package.name}
    versions = {
        version
        for row in records.about(POOLS[pool], "version")
        if row["package"] in names
        for version in records.values(row)
    }
    assert named or package.name in UNRECORDED or pool == "cri-dockerd"
    assert full_version(package) in versions or {full_version(package), package.name} & {
        *UNRECORDED
    }


def test_nothing_is_listed_that_is_recorded() -> None:
    used = {one for _pool, package in everything() for one in (package.name, full_version(package))}
    assert {*UNRECORDED} <= used


FORMS = [
    pytest.param(row, id=f"{row['package']}, {records.values(row)[0]}")
    for row in records.rows()
    if row["what"] == "version form" and row["confidence"] != "inferred"
]


@pytest.mark.parametrize("row", FORMS)
def test_form_of_versions_is_that_of_a_recorded_version(row: dict[str, str]) -> None:
    form = re.escape(row["value"]).replace("VERSION", r"[0-9][0-9.]*[0-9]")
    names = row["repositories"] if "repositories" in row else [row["repository"]]
    recorded = [
        version
        for one in records.about(tuple(names), "version")
        if re.fullmatch(row["package"].replace("*", ".*"), one["package"])
        for version in records.values(one)
    ]
    assert any(re.fullmatch(form, version) for version in recorded)


NVIDIA = ("debian12", "debian13")


@pytest.mark.parametrize(
    ("subject", "what", "expected"),
    [
        pytest.param(
            Subject("nvidia-smi", "580.178.04", NVIDIA),
            "depends",
            ("libnvidia-ml1 (= 580.178.04-1)",),
            id="its own version with revision",
        ),
        pytest.param(
            Subject("cuda-drivers", "580.178.04", NVIDIA),
            "depends",
            ("nvidia-driver-cuda (>= 580.178.04)", "nvidia-kernel-dkms (>= 580.178.04)"),
            id="its own version without revision",
        ),
        pytest.param(
            Subject("nvidia-kmod-common", "595.71.05", ("rhel9",)),
            "provides",
            ("nvidia-kmod-common = 3:595.71.05",),
            id="without release, with epoch",
        ),
        pytest.param(
            Subject("libnvidia-container-tools", "1.20.1", ("toolkit-rpm",)),
            "depends",
            ("libnvidia-container1 = 1.20.1-1",),
            id="with release, without epoch",
        ),
        pytest.param(
            Subject("nvidia-driver-cuda", "580.178.04", NVIDIA), "conflicts", (), id="older branch"
        ),
        pytest.param(
            Subject("nvidia-driver-cuda", "610.57.04", NVIDIA),
            "conflicts",
            ("nvidia-smi",),
            id="newer branch",
        ),
    ],
)
def test_relations(subject: Subject, what: str, expected: tuple[str, ...]) -> None:
    assert subject.relations(what) == expected


@pytest.mark.parametrize(
    ("name", "version", "exists"),
    [
        pytest.param("nvidia-smi", "580.178.04", True, id="a package of its own"),
        pytest.param("nvidia-smi", "595.71.05", False, id="later a part of another one"),
        pytest.param("nvidia-fabricmanager-575", "575.57.08", True, id="with the branch"),
        pytest.param("nvidia-fabricmanager-580", "580.178.04", False, id="later without it"),
    ],
)
def test_packages_of_a_branch(name: str, version: str, exists: bool) -> None:
    assert Subject(name, version, NVIDIA).exists is exists


def test_package_counts_more_than_its_group() -> None:
    sections = [
        Subject(name, "1.20.1", ("toolkit-deb",)).one("section")
        for name in ("nvidia-container-toolkit", "libnvidia-container1")
    ]
    assert sections == ["utils", "libs"]


def test_one_value_is_asked_for_and_there_are_several() -> None:
    assert records.only("rhel9", "default stream") == "open-dkms"
    with pytest.raises(LookupError, match="2 values for 'version form' of docker-trixie"):
        records.only("docker-trixie", "version form")


def test_package_that_no_record_has() -> None:
    with pytest.raises(LookupError, match="'version form' of another in docker-trixie"):
        _ = Subject("another", "1", ("docker-trixie",)).full_version


def test_both_records_of_debians_driver_agree() -> None:
    """debian_driver.yml has the whole driver of Debian 13, and packages/ what the roles install."""
    in_packages = {
        name: {*records.values(version)}
        for version in records.about(("debian-13",), "version")
        for row in records.about(("debian-13",), "package")
        for name in records.values(row)
        if version["package"] in (name, row.get("of"))
    }
    in_driver = {one.name: {one.version} for pool, one in everything() if "debian13" in pool}
    both = in_packages.keys() & in_driver.keys()
    assert {"libcuda1", "nvidia-persistenced"} <= both
    assert {name: in_driver[name] for name in both} == {name: in_packages[name] for name in both}


def test_pin_is_in_the_recorded_file() -> None:
    (place,) = {
        one
        for row in records.about(NVIDIA, "file")
        if row["package"].startswith("nvidia-driver-pinning")
        for one in records.values(row)
    }
    pins = [one for _pool, one in everything() if "-pinning-" in one.name and one.folder != "empty"]
    assert pins
    assert all(place in debs.texts(pin) for pin in pins)


def test_persistence_daemon_starts_with_the_recorded_options() -> None:
    unit = Subject("nvidia-persistenced", "580.178.04", ("debian13",)).one("unit")
    daemons = [one for pool, one in everything() if one.name == "nvidia-persistenced"]
    texts = debs.texts(daemons[0])
    assert f"ExecStart={unit}\n" in texts["/usr/lib/systemd/system/nvidia-persistenced.service"]


def test_updates_are_newer_and_empty() -> None:
    updates = [package for _pool, package in everything() if package.folder == "empty"]
    assert {"nvidia-driver-cuda", "docker-ce", "containerd.io"} <= {one.name for one in updates}
    for one in updates:
        assert (one.binaries, one.links, one.units) == ({}, {}, ())
        assert debs.control_files(one).keys() == {"control"}
        assert list(debs.texts(one)) == [f"/usr/share/doc/{one.name}/copyright"]
