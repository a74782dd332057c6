# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The teardown leaves no module. After it, installations fail before and after dpkg begins."""

from __future__ import annotations

from pathlib import Path

import footprint
import pytest

CONVERGE = str(Path(__file__).parent.parent / "converge.yml")
ABSENT = ("-e", "nvidia_driver_state=absent")


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-1")


def test_teardown(laboratory, gpu):
    everywhere = ("-e", "node=gpu-1:gpu-2")
    assert laboratory.playbook(CONVERGE, *ABSENT, *everywhere).returncode == 0
    assert gpu.check_output("dkms status") == ""
    assert gpu.check_output("find /lib/modules /var/lib/dkms -name 'nvidia*'") == ""
    again = laboratory.playbook(CONVERGE, *ABSENT, *everywhere)
    assert len(again.unchanged) == 2


@pytest.mark.parametrize("node", ["gpu-1", "gpu-2"])
def test_node_is_what_it_was(footprints, node):
    assert footprint.of_node(footprints, node) == []


def boot_id(gpu):
    return gpu.check_output("cat /proc/sys/kernel/random/boot_id")


def test_no_reboot_into_a_kernel_without_headers(laboratory, gpu):
    """nouveau has the GPUs, a reboot is permitted, and would start a kernel without a module.

    Without an index, only the package manager knows that there are no headers.
    """
    kernel = "linux-image-6.1.0-53-amd64"
    gpu.check_output("apt-get --quiet=2 update")
    gpu.check_output(f"DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 install {kernel}")
    laboratory.lab("fault", "gpu-1", "nouveau")
    booted = boot_id(gpu)
    for code, words in (
        ("KERNEL_HEADERS_GONE", "kernel 6.1.0-53-amd64"),
        ("PACKAGE_VERSION_MISSING", "linux-headers-6.1.0-53-amd64"),
    ):
        run = laboratory.playbook(CONVERGE, "-e", "nvidia_driver_reboot_ok=true")
        assert run.returncode != 0
        assert f"{code} gpu-1: " in run.words
        assert words in run.words
        assert boot_id(gpu) == booted
        assert not gpu.package("nvidia-driver-cuda").is_installed
        assert not gpu.file("/etc/modprobe.d/metal-gpu-nouveau.conf").exists
        gpu.check_output("rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin")
    gpu.check_output(f"apt-get --quiet=2 purge {kernel}")
    laboratory.lab("fault", "gpu-1", "restore")
    assert laboratory.playbook(CONVERGE, *ABSENT).returncode == 0


def test_half_installed_packages(laboratory, gpu):
    """The compiler's words are in the first message, and in that of the next run."""
    words = "error: too few arguments to function 'pci_resize_resource'"
    laboratory.lab("fault", "gpu-1", "build-fails", "kernel-changed")
    first = laboratory.playbook(CONVERGE)
    assert first.returncode != 0
    assert "PACKAGES_UNCONFIGURED gpu-1: " in first.words
    assert words in first.words
    assert "\niF  nvidia-kernel-open-dkms " in gpu.check_output("dpkg --list 'nvidia-*'")
    check = laboratory.playbook(CONVERGE, "--check")
    assert check.returncode != 0
    again = laboratory.playbook(CONVERGE)
    assert again.returncode != 0
    assert "PACKAGES_UNFINISHED gpu-1: " in again.words
    assert words in again.words
    laboratory.lab("fault", "gpu-1", "builds")
    gpu.check_output("dpkg --configure -a")  # as the remedy says
    assert laboratory.playbook(CONVERGE).returncode == 0
    assert len(gpu.check_output("nvidia-smi -L").splitlines()) == 1
    assert laboratory.playbook(CONVERGE, *ABSENT).returncode == 0
