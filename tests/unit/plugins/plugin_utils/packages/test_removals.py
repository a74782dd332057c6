# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.removals import (
    in_the_way,
    removed,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import parse_scene, recording

APT = parse_scene(recording("packages/apt-install-removes.txt"))
APTS = parse_scene(recording("packages/apt-2.8.4-3.0.4.txt"))
DNF = parse_scene(recording("packages/dnf-install-removes.txt"))
REMOVED = {"less", "patch", "xxd", "build-essential", "dpkg-dev"}
REMOVED |= {"tcl-dev", "tcl8.6-dev", "tk-dev", "tk8.6-dev"}


@pytest.mark.parametrize("scene", ["no-remove-stdout", "simulate-stdout"])
def test_apt_lists_each_package_once(scene: str) -> None:
    found = removed(APT[scene])
    assert (len(found), set(found)) == (9, REMOVED)


def test_apt_refuses_to_remove() -> None:
    found = in_the_way(APT["no-remove-stderr"], APT["no-remove-stdout"])
    assert {*found} == REMOVED


def test_newer_apt() -> None:
    """apt-get 3.0 prints the old form; the form of the program apt is in the table below."""
    driver = {*removed(APTS["2.8.4-simulate-stdout"])}
    assert (len(driver), driver) == (8, {*removed(APTS["2.8.4-no-remove-stdout"])})
    found = in_the_way(APTS["2.8.4-no-remove-stderr"], APTS["2.8.4-no-remove-stdout"])
    assert {*found} == driver
    assert removed(APTS["2.8.4-purge-stdout"]) == ["nvidia-utils-580-server"]
    assert removed(APTS["3.0.4-purge-stdout"]) == ["dbus"]


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        # The name is too long for its column.
        ("allowerasing-stdout", ["kmod-nvidia-latest-dkms"]),
        ("remove-stdout", ["containerd.io"]),
        ("conflict-stdout", []),
    ],
)
def test_table_of_dnf(scene: str, expected: list[str]) -> None:
    assert removed(DNF[scene]) == expected


def test_dnf_refuses_to_remove() -> None:
    assert in_the_way(DNF["conflict-stderr"], "") == ["kmod-nvidia-latest-dkms"]
    other = DNF["conflict-stderr"].replace(" conflicts with ", " requires ")
    assert in_the_way(other, "") == []


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        pytest.param("REMOVING:\n  runc  libfoo:i386\n\nInstalling:\n  x\n", ["runc", "libfoo"]),
        pytest.param("The following packages will be REMOVED:\n  old* runc\n", ["old", "runc"]),
        pytest.param("The following NEW packages will be installed:\n  x\n", []),
        pytest.param("", []),
    ],
    ids=["apt 3", "purged", "none", "nothing said"],
)
def test_other_lists(printed: str, expected: list[str]) -> None:
    assert removed(printed) == expected
