# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown: gpu-1 had no engine and has none again, gpu-2 and gpu-3 keep the admin's Docker.

Only what docs/teardown.md lists may differ. The file name makes pytest run it last.
"""

from __future__ import annotations

import json
from typing import Any

import footprint
import pytest
from scenes import started

KEPT = ("gpu-2", "gpu-3")
LABELS = {"gpu-2": ["rack=7"], "gpu-3": ["rack=8"]}  # as the tests before have left them
DAEMON_JSON = "/etc/docker/daemon.json"
OPERATIONS_ALLOWED = 3


@pytest.fixture(params=["gpu-1", *KEPT])
def node(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def containers(laboratory: Any) -> list[str]:
    """Return evidence of whether the admin's containers were touched."""
    return [started(laboratory.host(name))[1] for name in KEPT]


def test_everything_but_the_engines_goes(laboratory):
    before = containers(laboratory)
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0
    assert containers(laboratory) == before


@pytest.mark.parametrize("kept", KEPT)
def test_docker_has_its_own_runtimes_and_the_options_of_the_variables(laboratory, kept):
    host = laboratory.host(kept)
    engine = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert engine["DefaultRuntime"] == "runc"
    assert "nvidia" not in engine["Runtimes"]
    assert "quiet" in engine["Runtimes"]
    settings = json.loads(host.file(DAEMON_JSON).content_string)
    assert settings["labels"] == LABELS[kept]
    assert settings["registry-mirrors"] == ["https://mirror.example.org"]


def test_second_run_changes_nothing_and_is_cheap(laboratory):
    laboratory.second_run("metal.gpu.teardown", OPERATIONS_ALLOWED)


@pytest.fixture(scope="module")
def no_engine(laboratory: Any) -> None:
    """The admin of gpu-1 stops the kubelet and then removes what the roles did to engines."""
    laboratory.host("gpu-1").check_output("systemctl stop kubelet")
    before = containers(laboratory)
    run = laboratory.playbook("metal.gpu.teardown", "--extra-vars=teardown_engine=true")
    assert run.returncode == 0
    for name in KEPT:
        assert f"ENGINE_OF_ADMIN {name}: " in run.words
    assert not laboratory.host("gpu-1").file("/usr/bin/containerd").exists
    assert containers(laboratory) == before


def test_node_is_what_it_was(no_engine, footprints, node):
    """Byte by byte, daemon.json among them."""
    assert footprint.of_node(footprints, node) == []


def test_cluster_is_what_it_was(no_engine, footprints):
    assert footprint.of_cluster(footprints) == []
