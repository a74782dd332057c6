# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown of Docker nodes: gpu-1 keeps an engine, gpu-2 had none and has none again.

Only what docs/teardown.md lists may differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import footprint
import pytest
from scenes import ADMINS_SERVICE

NODES = ("gpu-1", "gpu-2")
OPERATIONS_ALLOWED = 3


def services(laboratory: Any) -> list[str]:
    """Return evidence of whether the admin's container and pod were touched."""
    (pod,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    container = laboratory.host("gpu-1").check_output(
        "docker inspect --format '{{.Id}} {{.State.Status}} {{.State.StartedAt}}' " + ADMINS_SERVICE
    )
    return [container, pod["containerID"], str(pod["restartCount"]), *pod["state"]]


@pytest.fixture
def late_container(laboratory: Any) -> Iterator[str]:
    """The admin created this container while the NVIDIA runtime was the default."""
    host, name = laboratory.host("gpu-1"), "made-late"
    host.check_output("docker create --name %s docker.io/library/busybox:1.35", name)
    yield name
    host.check_output("docker rm %s", name)


def test_everything_but_the_engine_goes(laboratory, late_container):
    before = services(laboratory)
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0
    assert "CONTAINERS_OF_RUNTIME gpu-1: containers use the runtime nvidia" in run.output
    assert late_container in run.output
    assert services(laboratory) == before


def test_docker_does_without_the_runtime(laboratory, node):
    host = laboratory.host(node)
    engine = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert engine["DefaultRuntime"] == "runc"
    assert "nvidia" not in engine["Runtimes"]
    assert ("quiet" in engine["Runtimes"]) == (node == "gpu-1")


def test_second_run_changes_nothing_and_is_cheap(laboratory):
    laboratory.second_run("metal.gpu.teardown", OPERATIONS_ALLOWED)


def test_engine_that_a_kubelet_needs_stays(laboratory):
    run = laboratory.playbook("metal.gpu.teardown", "--extra-vars=teardown_engine=true")
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    for name in NODES:
        assert re.search(rf"DOCKER_IN_USE {name}: .*running kubelet", run.words)


@pytest.fixture(scope="module")
def no_engine(laboratory: Any) -> None:
    """The admin of gpu-2 stops the kubelet and then removes Docker."""
    laboratory.host("gpu-2").check_output("systemctl stop kubelet")
    run = laboratory.playbook(
        "metal.gpu.teardown", "--limit=gpu-2", "--extra-vars=teardown_engine=true"
    )
    assert run.returncode == 0
    assert "dockerd" not in laboratory.host("gpu-2").check_output("ls /usr/bin /usr/sbin")


def test_node_is_what_it_was(no_engine, footprints, node):
    assert footprint.of_node(footprints, node) == []


def test_cluster_is_what_it_was(no_engine, footprints):
    assert footprint.of_cluster(footprints) == []


@pytest.fixture
def rootless(laboratory: Any) -> Any:
    """A user runs a rootless Docker on gpu-2, which no kubelet can use."""
    host, path = laboratory.host("gpu-2"), "/run/user/1000/docker.sock"
    socket = f"import socket; socket.socket(socket.AF_UNIX).bind('{path}')"
    host.check_output("mkdir -p /run/user/1000 && python3 -c %s", socket)
    yield path
    host.check_output("rm %s", path)


def test_rootless_docker_is_not_taken_for_an_engine(laboratory, no_engine, rootless):
    run = laboratory.playbook("metal.gpu.site", "--limit=gpu-2")
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    assert re.search(rf"ROOTLESS_DOCKER gpu-2: .*{rootless}", run.words)
    assert "dockerd" not in laboratory.host("gpu-2").check_output("ls /usr/bin /usr/sbin")
