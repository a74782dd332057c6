# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown, after all other tests of the scenario: only what docs/teardown.md lists may differ."""

from __future__ import annotations

from pathlib import Path

import footprint

ABSENT = str(Path(__file__).parent.parent / "docker_absent.yml")


def test_node_of_the_cluster(laboratory):
    run = laboratory.playbook("metal.gpu.teardown", "-e", "metal_gpu_hosts=gpu-1")
    assert run.returncode == 0
    host = laboratory.host("gpu-1")
    assert host.check_output("rpm -qa '*nvidia*'") == ""
    assert host.package("containerd.io").is_installed
    assert laboratory.objects("node", "gpu-1")["status"]["allocatable"]["nvidia.com/gpu"] == "0"


def test_machine_with_docker(laboratory):
    assert laboratory.playbook(ABSENT).returncode == 0
    host = laboratory.host("gpu-2")
    assert host.check_output("rpm -qa '*nvidia*' 'docker*' 'containerd*'") == ""
    assert host.check_output("dnf --quiet --disablerepo='*' versionlock list") == ""
    # The package stops docker.service alone.
    assert not host.service("docker.socket").is_running
    again = laboratory.playbook(ABSENT)
    assert "gpu-2" in again.unchanged


def test_initial_ramdisks_have_no_blacklist(laboratory, node):
    host = laboratory.host(node)
    images = host.check_output("ls /boot/initramfs-*.img").split()
    assert len(images) == 2
    for image in images:
        assert "nouveau" not in host.file(image).content_string


def test_node_is_what_it_was(footprints, node):
    assert footprint.of_docker_host(footprints, node) == []


def test_cluster_is_what_it_was(footprints):
    before, after = (each["cluster"] for each in footprints)
    # Docker replaced Kubernetes on gpu-2 before the first run.
    del before["Node//gpu-2"], after["Node//gpu-2"]
    assert after == before
