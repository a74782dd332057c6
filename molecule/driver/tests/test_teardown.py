# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The teardown uninstalls the driver. After it, files that cannot be installed leave no trace."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import footprint
import pytest

CONVERGE = str(Path(__file__).parent.parent / "converge.yml")
ABSENT = ("-e", "nvidia_driver_state=absent")
LEGACY = "NVIDIA-Linux-x86_64-390.25.run"
FOREIGN = "NVIDIA-Linux-aarch64-580.178.04.run"
SOURCE = "/usr/src/nvidia-580.178.04"


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-1")


def of_file(laboratory, name, version):
    file = laboratory.facts["mirror"]["files"][name]
    values = (
        f"nvidia_driver_runfile_url={file['url']}",
        f"nvidia_driver_runfile_sha256={file['sha256']}",
        f"nvidia_driver_version={version}",
    )
    return [word for value in values for word in ("-e", value)]


def has_no_driver(gpu):
    programs = ("nvidia-smi", "nvidia-modprobe", "nvidia-uninstall")
    paths = (*(f"/usr/bin/{name}" for name in programs), "/var/lib/nvidia", SOURCE)
    left = [path for path in paths if gpu.file(path).exists]
    return not left and "nvidia" not in gpu.check_output("lsmod")


def test_teardown(laboratory, gpu):
    assert laboratory.playbook(CONVERGE, *ABSENT).returncode == 0
    assert has_no_driver(gpu)
    again = laboratory.playbook(CONVERGE, *ABSENT)
    assert "gpu-1" in again.unchanged


def test_node_is_what_it_was(footprints):
    assert footprint.of_node(footprints, "gpu-1") == []


def test_file_of_another_machine_is_refused(laboratory, gpu):
    run = laboratory.playbook(CONVERGE, *of_file(laboratory, FOREIGN, "580.178.04"))
    assert run.returncode != 0
    assert "RUNFILE_UNSUITABLE gpu-1: " in run.words
    assert "it is for aarch64" in run.words
    assert has_no_driver(gpu)


def test_wrong_checksum(laboratory, gpu):
    wrong = "0" * 64
    run = laboratory.playbook(CONVERGE, "-e", f"nvidia_driver_runfile_sha256={wrong}")
    assert run.returncode != 0
    assert "RUNFILE_CHECKSUM gpu-1: " in run.words
    name = "NVIDIA-Linux-x86_64-580.178.04.run"
    # Both sums, without the blanks at which Ansible breaks lines.
    words = re.sub(r"\s", "", run.output)
    assert laboratory.facts["mirror"]["files"][name]["sha256"] in words
    assert wrong in words
    assert has_no_driver(gpu)
    assert not gpu.file("/var/lib/metal-gpu/packages/nvidia_driver.run").exists


def test_module_that_does_not_build(laboratory, gpu):
    """The words are DKMS's. Nothing stays on the node."""
    laboratory.lab("fault", "gpu-1", "build-fails", "kernel-changed")
    run = laboratory.playbook(CONVERGE)
    assert run.returncode != 0
    assert "RUNFILE_FAILED gpu-1: " in run.words
    assert "Bad return status for module build on kernel" in run.words
    assert has_no_driver(gpu)
    laboratory.lab("fault", "gpu-1", "builds")


def test_file_of_2018_from_the_controller(laboratory, gpu, tmp_path):
    """Its installer knows no option for the kind of module."""
    words = of_file(laboratory, LEGACY, "390.25")
    path = tmp_path / LEGACY
    with urllib.request.urlopen(laboratory.facts["mirror"]["files"][LEGACY]["url"]) as answer:
        path.write_bytes(answer.read())
    words[1] = f"nvidia_driver_runfile_url={path}"
    run = laboratory.playbook(CONVERGE, *words, "-e", "nvidia_driver_flavour=proprietary")
    assert run.returncode == 0
    assert gpu.check_output("cat /sys/module/nvidia/version") == "390.25"
    assert laboratory.playbook(CONVERGE, *ABSENT).returncode == 0
    assert has_no_driver(gpu)
