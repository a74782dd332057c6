# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown, after all tests of the first run: only what docs/teardown.md lists may differ."""

from __future__ import annotations

from pathlib import Path

import footprint

ABSENT = str(Path(__file__).parents[2] / "redhat" / "docker_absent.yml")
# The package docker-ce creates the group docker, and Ubuntu's driver a user for the daemon, which
# it removes. Both leave copies of the files from before.
ACCOUNTS = tuple(
    f"/etc/{name}{end}"
    for name in ("group", "gshadow", "passwd", "shadow", "subgid", "subuid")
    for end in ("", "-")
)


def test_node_of_the_cluster(laboratory):
    run = laboratory.playbook("metal.gpu.teardown", "-e", "metal_gpu_hosts=gpu-1")
    assert run.returncode == 0
    host = laboratory.host("gpu-1")
    assert "nvidia" not in host.check_output("lsmod; apt-mark showhold; getent passwd")
    assert laboratory.objects("node", "gpu-1")["status"]["allocatable"]["nvidia.com/gpu"] == "0"


def test_machines_with_docker(laboratory):
    assert laboratory.playbook(ABSENT).returncode == 0
    again = laboratory.playbook(ABSENT)
    for name in ("gpu-2", "gpu-3"):
        words = laboratory.host(name).check_output("lsmod; apt-mark showhold")
        assert "nvidia" not in words
        assert name in again.unchanged


def test_compiler_of_the_kernel_stays(laboratory):
    """Modules of others may need it now."""
    assert laboratory.host("gpu-3").package("gcc-12").is_installed


def test_node_is_what_it_was(footprints, node):
    before, after = (each["nodes"][node] for each in footprints)
    for path in ACCOUNTS:
        before["files"].pop(path, None)
        after["files"].pop(path, None)
    assert footprint.differences(before, after) == []


def test_cluster_is_what_it_was(footprints):
    before, after = (each["cluster"] for each in footprints)
    # gpu-2 and gpu-3 lost Kubernetes before the first run.
    for each in (before, after):
        del each["Node//gpu-2"], each["Node//gpu-3"]
    assert after == before
