# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""nvidia-docker v1 and v2 on a node in use: listed first, removed only with permission."""

from __future__ import annotations

import re
from typing import Any

import pytest
from scenes import ADMINS_SERVICE

SITE = ("metal.gpu.site", "--limit=gpu-1", "--tags=engine,runtime")
LISTS = "/etc/apt/sources.list.d"
STATE = "docker inspect --format '{{.Id}} {{.State.StartedAt}}' " + ADMINS_SERVICE


@pytest.fixture(scope="module")
def leftovers(laboratory: Any) -> None:
    laboratory.lab("scene", "gpu-1", "nvidia-docker")


def test_containers_and_volumes_of_v1_are_named_before_anything_goes(laboratory, leftovers):
    run = laboratory.playbook(*SITE)
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    assert re.search(r"NVIDIA_DOCKER_V1 gpu-1: .*training-2018.*nvidia_driver_390.25", run.words)
    assert "training-2018" in laboratory.host("gpu-1").check_output("docker ps")


def test_all_of_it_goes_with_a_permission(laboratory, leftovers):
    host = laboratory.host("gpu-1")
    before = host.check_output(STATE), host.file("/etc/docker/daemon.json").content_string
    run = laboratory.playbook(*SITE, "-e", "docker_ce_v1_removal_ok=true")
    assert run.returncode == 0
    assert "training-2018" not in host.check_output("docker ps --all")
    assert "nvidia_driver" not in host.check_output("docker volume ls")
    packages = host.check_output("dpkg-query --show")
    assert "nvidia-docker" not in packages
    assert "nvidia-container-runtime" not in packages
    assert "nvidia-docker" not in host.check_output("ls %s", LISTS)
    assert (host.check_output(STATE), host.file("/etc/docker/daemon.json").content_string) == before
