# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Docker of a user, which is a real one, and what Docker of a snap leaves: both are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from docker_table import rows

PLAYBOOK = "metal.gpu.docker_hosts"
SITE = ("metal.gpu.site", "--extra-vars=metal_gpu_engine=docker")
# What the real ones leave, as tests/recorded/other_dockers.yml says.
SOCKET, USERS_UNIT = "/run/user/1000/docker.sock", "/home/admin/.config/systemd/user/docker.service"
SNAP, SNAPS_UNIT = "/snap/bin/docker", "/etc/systemd/system/snap.docker.dockerd.service"
SNAPS_PROGRAM = "#!/bin/sh\nexec sleep 1000000\n"
SNAPS_SERVICE = "[Service]\nExecStart=/usr/bin/snap run docker.dockerd\n"


def state(host: Any) -> list[str]:
    """Return evidence of any change."""
    commands = (
        "find /etc -xdev -type f -exec sha256sum {} + | sort | sha256sum",
        r"find /usr -xdev -type f -printf '%p %s %T@\n' | sort | sha256sum",
        "dpkg-query -W | sha256sum",
        "systemctl list-units --type=service --state=running --plain --no-legend 'docker*' 'snap*'",
    )
    return [host.check_output(command) for command in commands]


def assert_refused(laboratory: Any, node: str, words: str) -> None:
    """Assert that docker_hosts and site with Docker refuse a host, and that nothing has changed."""
    host = laboratory.host(node)
    before = state(host)
    for command in ([PLAYBOOK], [*SITE, f"--limit={node}"]):
        run = laboratory.playbook(*command)
        assert run.returncode != 0
        assert "Nothing was changed" in run.output
        assert re.search(words, run.words)
        assert "Compute on every GPU" not in run.output
    assert state(host) == before


def assert_works_again(laboratory: Any) -> None:
    run = laboratory.playbook(PLAYBOOK)
    assert run.returncode == 0
    assert run.unchanged >= {"gpu-1", "gpu-2"}
    assert rows(run) == {"gpu-1": ["4/4", "ok"], "gpu-2": ["4/4", "ok"]}


@pytest.fixture(scope="module", autouse=True)
def _converged(laboratory: Any) -> None:
    """The inventory has no NFS mounts, and the hosts still have those of the tests before."""
    assert laboratory.playbook(PLAYBOOK).returncode == 0


@pytest.fixture
def snap(laboratory: Any) -> Any:
    """gpu-2 has what Docker of a snap leaves. The snap itself needs a store and squashfs."""
    host = laboratory.host("gpu-2")
    host.check_output("printf %s > /usr/bin/snap; chmod +x /usr/bin/snap", SNAPS_PROGRAM)
    host.check_output("mkdir -p /snap/bin /var/snap/docker/current/config")
    host.check_output("ln -s /usr/bin/snap %s", SNAP)
    host.check_output("printf %s > %s; systemctl daemon-reload", SNAPS_SERVICE, SNAPS_UNIT)
    host.check_output("systemctl start snap.docker.dockerd")
    yield host
    host.check_output("systemctl stop snap.docker.dockerd; rm %s", SNAPS_UNIT)
    host.check_output("systemctl daemon-reload; rm -r /snap /var/snap /usr/bin/snap")


def test_docker_of_a_snap_is_refused_before_anything_starts(laboratory, snap):
    assert_refused(laboratory, "gpu-2", rf"SNAP_DOCKER gpu-2: .*{SNAP}")


def as_user(host: Any, command: str) -> str:
    path = "PATH=/home/admin/bin:$PATH XDG_RUNTIME_DIR=/run/user/1000"
    return host.check_output("su admin -c %s", f"cd && export {path} && {command}")


@pytest.fixture
def rootless(laboratory: Any) -> Any:
    """A user runs a real Docker without root on gpu-1, and the system's Docker is stopped.

    The end is what the finding says.
    """
    host = laboratory.host("gpu-1")
    laboratory.lab("scene", "gpu-1", "rootless-docker")
    yield host
    as_user(host, "dockerd-rootless-setuptool.sh --skip-iptables uninstall")
    as_user(host, "rootlesskit rm -rf ~/.local/share/docker")
    host.check_output("loginctl disable-linger admin")
    host.check_output("rm -r /home/admin/bin /home/admin/.docker /home/admin/.config")
    host.check_output("systemctl start docker.socket docker.service")


def test_docker_without_root_is_refused_before_anything_starts(laboratory, rootless):
    assert "name=rootless" in as_user(rootless, "docker info --format '{{.SecurityOptions}}'")
    started = "systemctl --user show docker --property=ActiveEnterTimestampMonotonic,ActiveState"
    before = as_user(rootless, started)
    assert "ActiveState=active" in before
    assert_refused(laboratory, "gpu-1", rf"ROOTLESS_DOCKER gpu-1: .*{SOCKET}, {USERS_UNIT}")
    assert as_user(rootless, started) == before


def test_users_docker_that_is_stopped_is_named_by_its_unit(laboratory, rootless):
    as_user(rootless, "systemctl --user stop docker")
    run = laboratory.playbook(PLAYBOOK, "--limit=gpu-1")
    assert run.returncode != 0
    assert re.search(rf"ROOTLESS_DOCKER gpu-1: [^(]*\({USERS_UNIT}\)", run.words)


def test_users_docker_beside_the_systems_is_left_alone(laboratory, rootless):
    rootless.check_output("systemctl start docker.socket docker.service")
    assert_works_again(laboratory)
    assert "name=rootless" in as_user(rootless, "docker info --format '{{.SecurityOptions}}'")


def test_hosts_work_after_other_dockers_are_gone(laboratory):
    assert_works_again(laboratory)
