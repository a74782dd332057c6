# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.packages import (
    Package,
    Relations,
    Unfinished,
    parse_module_states,
    parse_packages,
    parse_relations,
    parse_unfinished,
    with_locks,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "packages/dpkg-query.txt",
            {
                "python3-minimal": Package("3.11.2-1+b1", False),
                "sudo": Package("1.9.13p3-1+deb12u4", True),
            },
            id="dpkg",
        ),
        pytest.param(
            "packages/dpkg-query-unfinished.txt",
            {"libcuda1": Package("550.163.01-2", False)},
            id="unfinished",
        ),
        pytest.param(
            "packages/rpm.txt",
            {
                "nvidia-driver-cuda": Package("3:580.178.04-1.el9", None),
                "libnvidia-ml": Package("3:580.178.04-1.el9", None),
                "kmod": Package("28-10.el9", None),
            },
            id="rpm",
        ),
    ],
)
def test_parse_packages(name, expected):
    assert parse_packages(recording(name), "x86_64") == expected


def test_parse_unfinished():
    assert parse_unfinished(recording("packages/dpkg-query-unfinished.txt"), "x86_64") == {
        "nvidia-driver-cuda": Unfinished(version="550.163.01-2", state="unpacked"),
        "nvidia-kernel-open-dkms": Unfinished(version="550.163.01-2", state="half-configured"),
        "nvidia-persistenced": Unfinished(version="550.163.01-2", state="half-installed"),
    }
    assert parse_unfinished(recording("packages/dpkg-query.txt"), "x86_64") == {}
    assert parse_unfinished(recording("packages/rpm.txt"), "x86_64") == {}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("machine", "native", "foreign"),
    [("x86_64", "amd64", "i386"), ("x86_64", "x86_64", "i686"), ("aarch64", "arm64", "armhf")],
)
def test_packages_of_another_architecture_do_not_hide_native_ones(machine, native, foreign, order):
    """Their version and hold can differ, whichever row comes last."""
    rows = [f"a\t2\tinstalled\thold\t{native}", f"a\t1\tinstalled\tinstall\t{foreign}"]
    rows += [f"b\t1\tinstalled\tinstall\t{foreign}", "c\t1\tinstalled\tinstall\tall"]
    rows += [f"d\t1\thalf-configured\tinstall\t{foreign}", f"d\t2\tinstalled\thold\t{native}"]
    text = "".join(f"{row}\n" for row in rows[::order])
    found = parse_packages(text, machine)
    assert found == {"a": Package("2", True), "c": Package("1", False), "d": Package("2", True)}
    # dpkg must first finish the packages of every architecture.
    assert parse_unfinished(text, machine) == {
        f"d:{foreign}": Unfinished(version="1", state="half-configured")
    }


@pytest.mark.parametrize(
    ("locks", "held"),
    [
        pytest.param("", False, id="nothing"),
        pytest.param("a-3:1-1.el9.*\n", True, id="this version"),
        pytest.param("a-3:2-1.el9.*\n", False, id="another version"),
        pytest.param("# a-3:1-1.el9.*\n!a-3:1-1.el9.*\n", False, id="comment and exclusion"),
        pytest.param("a\n", True, id="by hand, whatever the version"),
        pytest.param("b-3:1-1.el9.*\n", False, id="another package"),
    ],
)
def test_version_locks(locks, held):
    found = with_locks({"a": Package("3:1-1.el9", None)}, locks)
    assert found == {"a": Package("3:1-1.el9", held)}


def test_version_lock_without_epoch():
    """dnf writes 0 where rpm says nothing."""
    found = with_locks({"kmod": Package("28-10.el9", None)}, "kmod-0:28-10.el9.*\n")
    assert found["kmod"].held is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[nvidia-driver]\nstream=580-open\nstate=enabled\n", {"nvidia-driver": "580-open"}),
        ("[nvidia-driver]\nstream=\nstate=\n", {}),
        ("[nvidia-driver]\nstream=580-open\nstate=disabled\n", {}),
        ("stream=580-open\n", {}),
    ],
)
def test_parse_module_states(text, expected):
    assert parse_module_states(text) == expected


def test_parse_relations():
    status = """\
Depends: a field before the name of a package

Package: gpu-app
Status: install ok installed
Pre-Depends: libc6
Depends: libcuda1 (>= 580) | libcuda.so.1

Package: libcuda1
Status: deinstall ok config-files
Provides: libcuda.so.1
"""
    needs = "libc6, libcuda1 (>= 580) | libcuda.so.1"
    assert parse_relations(status) == [Relations("gpu-app", needs, "")]
    assert parse_relations("") == []
