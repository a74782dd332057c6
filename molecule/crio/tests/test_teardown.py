# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown of nodes with CRI-O: gpu-1 keeps its engine, gpu-2 had none and has none again.

Only what docs/teardown.md lists may differ.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

import footprint
import pytest

NODES = ("gpu-1", "gpu-2")
OPERATIONS_ALLOWED = 3


def test_everything_but_the_engine_goes(laboratory):
    (before,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0
    (after,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)


def test_running_crio_does_without_the_runtime(laboratory, node):
    status = laboratory.host(node).check_output("crio status config 2>/dev/null")
    runtime = tomllib.loads(status)["crio"]["runtime"]
    assert runtime["runtimes"].keys() == {"crun", "runc"}


def test_second_run_changes_nothing_and_is_cheap(laboratory):
    laboratory.second_run("metal.gpu.teardown", OPERATIONS_ALLOWED)


def test_engine_that_a_kubelet_needs_stays(laboratory):
    run = laboratory.playbook("metal.gpu.teardown", "--extra-vars=teardown_engine=true")
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    assert re.search(r"CRIO_IN_USE gpu-2: CRI-O is not removed, because the kubelet", run.words)
    assert "CRIO_IN_USE gpu-1" not in run.words  # it is the admin's, and stays anyway


@pytest.fixture(scope="module")
def no_engine(laboratory: Any) -> None:
    """The admin of gpu-2 stops the kubelet and then removes CRI-O."""
    host = laboratory.host("gpu-2")
    host.check_output("systemctl stop kubelet")
    run = laboratory.playbook(
        "metal.gpu.teardown", "--limit=gpu-2", "--extra-vars=teardown_engine=true"
    )
    assert run.returncode == 0
    assert not host.file("/usr/bin/crio").exists


def test_node_is_what_it_was(no_engine, footprints, node):
    assert footprint.of_node(footprints, node) == []


def test_cluster_is_what_it_was(no_engine, footprints):
    assert footprint.of_cluster(footprints) == []
