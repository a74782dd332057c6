# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown without the internet. The file name makes pytest run it last."""

from __future__ import annotations

import footprint


def test_everything_goes_from_the_node(laboratory):
    run = laboratory.playbook("metal.gpu.teardown", "-e", "metal_gpu_hosts=gpu-1")
    assert run.returncode == 0
    assert laboratory.host("gpu-1").check_output("rpm -qa '*nvidia*'") == ""


def test_everything_goes_from_the_docker_host(laboratory, tmp_path):
    absent = str(footprint.docker_hosts_absent(tmp_path))
    assert laboratory.playbook(absent, "--limit=gpu-2").returncode == 0
    left = laboratory.host("gpu-2").check_output("rpm -qa '*nvidia*' 'docker*' 'containerd*'")
    assert left == ""
    assert "gpu-2" in laboratory.playbook(absent, "--limit=gpu-2").unchanged


def test_node_is_what_it_was(footprints, node):
    assert footprint.of_docker_host(footprints, node) == []


def test_cluster_is_what_it_was(footprints):
    before, after = (each["cluster"] for each in footprints)
    # The scene removed the kubelet of gpu-2 before the first run.
    del before["Node//gpu-2"], after["Node//gpu-2"]
    assert after == before
