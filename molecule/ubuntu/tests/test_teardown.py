# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown, after all tests of the first run: only what docs/teardown.md lists may differ."""

from __future__ import annotations

import re
from pathlib import Path

import footprint

ABSENT = str(Path(__file__).parents[2] / "redhat" / "docker_absent.yml")
COMPILER = str(Path(__file__).parents[1] / "compiler.yml")
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


def test_machine_with_docker(laboratory):
    assert laboratory.playbook(ABSENT).returncode == 0
    host = laboratory.host("gpu-2")
    assert "nvidia" not in host.check_output("lsmod; apt-mark showhold")
    again = laboratory.playbook(ABSENT)
    assert re.search(r"^gpu-2\s+: ok=\d+\s+changed=0\s", again.output, re.M)


def test_machine_with_another_compiler(laboratory):
    """The compiler stays: modules of others may need it now."""
    absent = ("-e", "nvidia_driver_state=absent")
    assert laboratory.playbook(COMPILER, *absent).returncode == 0
    host = laboratory.host("gpu-3")
    assert "nvidia" not in host.check_output("lsmod; apt-mark showhold")
    assert host.package("gcc-12").is_installed
    host.check_output("apt-get --yes purge gcc-12")
    again = laboratory.playbook(COMPILER, *absent)
    assert re.search(r"^gpu-3\s+: ok=\d+\s+changed=0\s", again.output, re.M)


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
