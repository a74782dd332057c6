# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The nodes have no driver any more, and their repositories do not have all that a driver needs.

The file name makes pytest run it after the teardown.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCKER = str(Path(__file__).parent.parent / "docker.yml")
DROPPED = "580.173.02"


@pytest.mark.parametrize(
    ("name", "options", "node", "release"),
    [
        # Within a stream, and with all packages of the repository.
        pytest.param("metal.gpu.site", ("--check",), "gpu-1", "el9", id="stream, check"),
        pytest.param("metal.gpu.site", (), "gpu-1", "el9", id="stream, run"),
        pytest.param(DOCKER, ("--check",), "gpu-2", "el10", id="check"),
        pytest.param(DOCKER, (), "gpu-2", "el10", id="run"),
    ],
)
def test_driver_that_the_repository_has_dropped(laboratory, name, options, node, release):
    """The versions of the branch come first, and nothing is installed."""
    version = ("-e", f"nvidia_driver_version={DROPPED}", "-e", f"metal_gpu_hosts={node}")
    run = laboratory.playbook(name, *version, *options)
    assert run.returncode != 0
    (missing, found) = re.search(
        rf"PACKAGE_VERSION_MISSING {node}: no enabled repository has (.*?); "
        r"available versions: (.*?) What to do",
        run.words,
    ).groups()
    assert "nvidia-driver-cuda" in missing
    assert missing.endswith(f"in version 3:{DROPPED}")
    versions = re.findall(rf"3:(\S+)-1[.]{release}", found)
    assert {*versions[:2]} == {"580.178.04", "580.999.01"}
    assert laboratory.host(node).check_output("rpm -qa '*nvidia*'") == ""


EPEL, APPSTREAM = "/etc/yum.repos.d/epel.repo", "/etc/yum.repos.d/rocky-appstream.repo"


def enable(host, path, *, enabled):
    host.check_output(f"sed -i s/^enabled=.*/enabled={int(enabled)}/ {path}")


@pytest.fixture(params=[("--check",), ()], ids=["check", "run"])
def options(request):
    return request.param


@pytest.mark.parametrize(("name", "node"), [("metal.gpu.site", "gpu-1"), (DOCKER, "gpu-2")])
def test_system_without_epel(laboratory, name, node, options):
    """As every installation is. The refusal comes before any change."""
    host = laboratory.host(node)
    enable(host, EPEL, enabled=False)
    before = host.check_output("ls -R /etc/yum.repos.d /etc/modprobe.d /boot; rpm -qa | sort")
    run = laboratory.playbook(name, "-e", f"metal_gpu_hosts={node}", *options)
    assert run.returncode != 0
    assert re.search(rf"EPEL_MISSING {node}: dkms, .*, is not installed, and EPEL, .*", run.words)
    assert "`dnf install epel-release` on Rocky Linux" in run.words
    assert re.search(rf"^{node}\s+: ok=\d+\s+changed=0\s", run.output, re.M)
    after = host.check_output("ls -R /etc/yum.repos.d /etc/modprobe.d /boot; rpm -qa | sort")
    assert after == before


def test_epel_without_what_its_packages_need(laboratory, options):
    """The admin has enabled EPEL. What dkms needs is in a repository of the system."""
    host = laboratory.host("gpu-1")
    enable(host, EPEL, enabled=True)
    enable(host, APPSTREAM, enabled=False)
    run = laboratory.playbook("metal.gpu.site", "-e", "metal_gpu_hosts=gpu-1", *options)
    assert run.returncode != 0
    assert "DEPENDENCY_MISSING gpu-1: no enabled repository has " in run.words
    for name in ("elfutils-libelf-devel", "gcc", "make"):
        assert re.search(rf"{name}, which dkms-3\S+ needs", run.words)
    assert "that is BaseOS, AppStream or EPEL (" in run.words
    assert host.check_output("rpm -qa '*nvidia*' dkms") == ""


def test_the_admin_enables_them(laboratory):
    host = laboratory.host("gpu-1")
    enable(host, APPSTREAM, enabled=True)
    run = laboratory.playbook("metal.gpu.site", "-e", "metal_gpu_hosts=gpu-1")
    assert run.returncode == 0
    assert host.package("dkms").is_installed
    assert len(set(host.check_output("nvidia-smi -L").splitlines())) == 4
