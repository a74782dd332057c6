# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from metal_lab import debs, rpm_mirror, rpm_packages, rpms
from metal_lab.description import REDHAT, Description, Node
from metal_lab.groups import Group
from metal_lab.parts import PARTS
from metal_lab.rpms import Rpm

NOWHERE = Path("/nowhere")
NODES = tuple(Node(f"gpu-{os}", os, "t4x1") for os in REDHAT)
EVERYTHING = Description(NODES, tuple(PARTS), ("580.178.04", "595.71.05"))
RELEASE = "5.14.0-570.12.1.el9_6.x86_64"


def groups(description: Description) -> list[Group]:
    return list(
        rpm_packages.groups(description, defaultdict(lambda: NOWHERE), NOWHERE.joinpath, RELEASE)
    )


def everything() -> Iterator[tuple[str, Rpm]]:
    for group in groups(EVERYTHING):
        for package in group.packages:
            assert isinstance(package, Rpm)
            yield group.pool, package


def find(name: str, dist: str = "") -> Rpm:
    return next(p for _pool, p in everything() if p.name == name and p.release.endswith(dist))


def test_other_laboratories_build_no_rpm() -> None:
    assert groups(Description((Node("gpu-1", "debian12", "t4x1"),), tuple(PARTS))) == []


def test_systems_of_the_record_are_those_of_a_description() -> None:
    assert tuple(rpm_packages.SYSTEMS) == REDHAT


def test_pools_are_published_or_in_the_image() -> None:
    published = {repository.name for repository in rpm_mirror.repositories("0" * 40)}
    assert {pool for pool, _p in everything()} == published | {
        *("installed", "kubernetes-el9", "kubernetes-el10")
    }


@pytest.mark.parametrize(
    ("name", "nevra"),
    [
        ("docker-ce", "docker-ce-3:29.8.1-1.el9.x86_64"),
        ("docker-ce-cli", "docker-ce-cli-1:29.8.1-1.el9.x86_64"),
        ("containerd.io", "containerd.io-0:2.4.2-1.el9.x86_64"),
        ("nvidia-driver-cuda", "nvidia-driver-cuda-3:580.178.04-1.el9.x86_64"),
        ("kmod-nvidia-open-dkms", "kmod-nvidia-open-dkms-3:580.178.04-1.el9.noarch"),
        ("nvidia-container-toolkit", "nvidia-container-toolkit-0:1.20.1-1.x86_64"),
        ("docker-ce", "docker-ce-3:29.8.1-1.el10.x86_64"),
        ("kmod-nvidia-open-dkms", "kmod-nvidia-open-dkms-3:580.178.04-1.el10.noarch"),
    ],
)
def test_names_are_those_of_the_vendors(name: str, nevra: str) -> None:
    package = find(name, "el10" if ".el10." in nevra else "")
    full = f"{package.name}-{package.epoch}:{package.version}-{package.release}.{package.arch}"
    assert full == nevra


def test_every_requirement_can_be_met() -> None:
    held = set[str]()
    for _pool, package in everything():
        held |= {package.name, f"{package.name}(x86-64)"}
        held |= {provided.split(" = ")[0] for provided in package.provides}
    for _pool, package in everything():
        for requirement in package.depends:
            words = re.findall(r"[^\s()][^\s]*\(x86-64\)|[^\s()]+", requirement)
            alternatives = [word for word in words if word in held]
            assert alternatives, (package.name, requirement)


def test_each_system_has_its_own_releasever() -> None:
    """dnf takes $releasever from it."""
    found = {p.version: p.provides for _pool, p in everything() if p.name == "rocky-release"}
    assert found == {
        minor: (f"system-release = {minor}", f"system-release(releasever) = {major}")
        for minor, major in (("9.6", "9"), ("10.1", "10"))
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("docker-ce-cli", set(), id="a program alone"),
        pytest.param("nvidia-driver-cuda-libs", {"post", "postun"}, id="a library: ldconfig"),
        pytest.param("kubelet", {"post", "preun", "postun"}, id="a service"),
        pytest.param("kmod-nvidia-open-dkms", {"post", "preun"}, id="a module"),
    ],
)
def test_scripts(name: str, expected: set[str]) -> None:
    assert rpms.scripts(find(name)) == expected


def test_flags_of_the_kubelet_are_in_sysconfig() -> None:
    texts = rpms.texts(find("kubelet"))
    assert "KUBELET_EXTRA_ARGS=" in texts["/etc/sysconfig/kubelet"]
    drop_in = texts["/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"]
    assert "EnvironmentFile=-/etc/sysconfig/kubelet\n" in drop_in


def query(rpm: Path, form: str) -> list[str]:
    command = ["rpm", "--query", "--package", f"--queryformat={form}", str(rpm)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_same_input_gives_the_same_rpm(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o600)
    package = Rpm(
        "some",
        "1",
        "does something",
        epoch=3,
        depends=("other >= 2",),
        binaries={"/usr/bin/some": program, "/etc/some/list": debs.EMPTY},
        links={"/usr/bin/other": "some"},
        units=("some.service",),
        release="1.el9",
    )
    first, second = (package.build(tmp_path / name) for name in ("a", "b"))
    assert first.name == "some-1-1.el9.x86_64.rpm"
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in first.parent.iterdir()] == [first.name]
    assert query(first, "[%{REQUIRENEVRS}\n]")[:1] == ["/bin/sh"]
    assert "other >= 2" in query(first, "[%{REQUIRENEVRS}\n]")
    assert query(first, "[%{FILEMODES:perms} %{FILENAMES} %{FILEFLAGS:fflags}\n]") == [
        "drwxr-xr-x /etc/some ",
        "-rw-r--r-- /etc/some/list cn",
        "lrwxrwxrwx /usr/bin/other ",
        "-rwxr-xr-x /usr/bin/some ",
        "drwxr-xr-x /usr/share/doc/some ",
        "-rw-r--r-- /usr/share/doc/some/copyright d",
    ]


def test_scripts_of_packages_are_shell(tmp_path: Path) -> None:
    for name in ("kmod-nvidia-open-dkms", "nvidia-persistenced"):
        rpm = replace(find(name), binaries={}, links={}).build(tmp_path)
        for script in ("POSTIN", "PREUN"):
            text = "\n".join(query(rpm, f"%{{{script}}}"))
            subprocess.run(["sh", "-n"], input=text, text=True, check=True)
            assert text
