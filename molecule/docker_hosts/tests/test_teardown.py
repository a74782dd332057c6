# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook of docs/docker-hosts.md takes everything back: gpu-1 keeps its Docker.

Only what docs/teardown.md lists may differ. The file name makes pytest run it last.
"""

from __future__ import annotations

import json
from typing import Any

import footprint
import pytest
from scenes import ADMINS_SERVICE


@pytest.fixture(scope="module")
def taken_back(laboratory: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = footprint.docker_hosts_absent(tmp_path_factory.mktemp("teardown"))
    run = laboratory.playbook(str(path))
    assert run.returncode == 0
    return path


def test_docker_of_the_admin_runs_without_the_runtime(laboratory, taken_back):
    host = laboratory.host("gpu-1")
    engine = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert "nvidia" not in engine["Runtimes"]
    state = host.check_output("docker inspect --format '{{.State.Status}}' " + ADMINS_SERVICE)
    assert state == "running"


def test_nfs_client_of_the_role_is_gone(laboratory, taken_back):
    """Its settings stay, so dpkg knows it."""
    host = laboratory.host("gpu-1")
    state = "dpkg-query --show --showformat '${db:Status-Status}' nfs-common"
    assert host.check_output(state) == "config-files"
    assert "srv-nfs" not in host.check_output("ls /etc/systemd/system")


def test_docker_of_the_role_is_gone(laboratory, taken_back):
    assert "dockerd" not in laboratory.host("gpu-2").check_output("ls /usr/bin /usr/sbin")


def test_host_is_what_it_was(taken_back, footprints, node):
    before, after = (each["nodes"][node] for each in footprints)
    assert footprint.differences(before, after) == []


def test_second_run_changes_nothing(laboratory, taken_back, node):
    assert node in laboratory.playbook(str(taken_back)).unchanged
