# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real dkms builds the module for each kernel that the node runs or boots next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CONVERGE = str(Path(__file__).parent.parent / "converge.yml")
SOURCE = "nvidia/580.178.04"
OLD, NEW, WITHOUT_HEADERS = "6.1.0-51-amd64", "6.1.0-52-amd64", "6.1.0-53-amd64"
DEVICES = {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
LOG = f"/var/lib/dkms/{SOURCE}/build/make.log"


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-1")


def works(gpu):
    return len(gpu.check_output("nvidia-smi -L").splitlines()) == 1


def devices(gpu):
    return set(gpu.check_output("cd /dev && ls -d nvidia*").split()) - {"nvidia-modeset"}


def built(gpu):
    """Return the kernels for which DKMS has installed the module."""
    status = gpu.check_output(f"dkms status {SOURCE}")
    return set(re.findall(r", (\S+), x86_64: installed$", status, re.M))


def reboot(laboratory):
    run = laboratory.playbook(str(Path(__file__).parent / "reboot.yml"))
    assert run.returncode == 0


def install(gpu, *packages):
    """Do what the admin, or an unattended upgrade, does."""
    gpu.check_output("apt-get --quiet=2 update")
    gpu.check_output(
        f"DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 install {' '.join(packages)}"
    )


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert "Build the kernel module" in str(check.announced)
    assert check.announced == converge.announced
    # DKMS has built both when the driver was installed. The role builds what it has left out.
    assert check.announced - converge.ran == {("gpu-1", "Build the kernel module")}
    assert converge.unannounced == set()


def test_module_is_built_for_the_running_kernel_and_the_next_one(gpu):
    assert gpu.check_output("uname -r") == OLD
    assert works(gpu)
    assert devices(gpu) == DEVICES
    assert built(gpu) == {OLD, NEW}
    assert gpu.package(f"linux-headers-{OLD}").is_installed
    assert gpu.package(f"linux-headers-{NEW}").is_installed


def test_second_run_changes_nothing_and_is_cheap(laboratory, gpu):
    run = laboratory.playbook(CONVERGE, "-vvv")
    assert "gpu-1" in run.unchanged
    assert run.operations()[laboratory.addresses["gpu-1"]] == 1


def test_next_kernel_has_its_gpus(laboratory, gpu):
    reboot(laboratory)
    assert gpu.check_output("uname -r") == NEW
    assert devices(gpu) == DEVICES
    assert works(gpu)
    assert "gpu-1" in laboratory.playbook(CONVERGE).unchanged


def test_kernel_without_headers_is_named_in_time(laboratory, gpu):
    install(gpu, f"linux-image-{WITHOUT_HEADERS}")
    run = laboratory.playbook(CONVERGE)
    assert "gpu-1" in run.unchanged
    assert f"KERNEL_PENDING gpu-1: kernel {WITHOUT_HEADERS} boots next" in run.words
    assert "it has no headers" in run.words


def test_kernel_that_is_removed_is_no_longer_named(laboratory, gpu):
    gpu.check_output(f"apt-get --quiet=2 purge linux-image-{WITHOUT_HEADERS}")
    run = laboratory.playbook(CONVERGE)
    assert "gpu-1" in run.unchanged
    assert "KERNEL_PENDING" not in run.words


CAUSES = {
    "compiler-missing": "g++: command not found",
    "compiler-old": "cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'",
    "kernel-changed": "error: too few arguments to function 'pci_resize_resource'",
    "headers-incomplete": "ERROR: Kernel configuration is invalid.",
    "no-space": "No space left on device",
}


def unload(gpu):
    gpu.check_output("systemctl stop nvidia-persistenced")
    gpu.check_output("modprobe -r nvidia_drm nvidia_uvm nvidia")


@pytest.fixture
def build_fails(laboratory, gpu):
    """The driver is not loaded, and DKMS cannot build its module."""

    def start(cause):
        unload(gpu)
        gpu.check_output(f"dkms unbuild {SOURCE} -k {NEW}")
        laboratory.lab("fault", "gpu-1", "build-fails", cause)

    yield start
    laboratory.lab("fault", "gpu-1", "builds")


@pytest.mark.parametrize("cause", CAUSES)
def test_words_of_the_compiler(laboratory, gpu, build_fails, cause):
    """The run ends before the node is harmed, and does not reboot it."""
    build_fails(cause)
    booted = gpu.check_output("cat /proc/sys/kernel/random/boot_id")
    # The second run of one cause does not build again, and says the same.
    for _run in range(2 if cause == "kernel-changed" else 1):
        run = laboratory.playbook(CONVERGE, "-e", "nvidia_driver_reboot_ok=true")
        assert run.returncode != 0
        assert "DKMS_BUILD_FAILED gpu-1: " in run.words
        assert CAUSES[cause] in run.words
        assert LOG in run.words
        assert f"for kernel {NEW}" in run.words
    assert gpu.check_output("cat /proc/sys/kernel/random/boot_id") == booted
    laboratory.lab("fault", "gpu-1", "builds")
    gpu.check_output(f"dkms install {SOURCE} -k {NEW}")  # as the remedy says
    assert laboratory.playbook(CONVERGE).returncode == 0
    assert works(gpu)


def test_disk_that_is_full_in_the_middle(laboratory, gpu):
    """The space is enough for the build, and not for its result."""
    unload(gpu)
    gpu.check_output(f"dkms unbuild {SOURCE} -k {NEW}")
    laboratory.lab("fault", "gpu-1", "disk-full", "/var/lib/dkms", "12")
    run = laboratory.playbook(CONVERGE)
    assert run.returncode != 0
    assert "DKMS_BUILD_FAILED gpu-1: " in run.words
    assert "No space left on device" in run.words
    gpu.check_output("rm /var/lib/dkms/.full")
    repaired = laboratory.playbook(CONVERGE)
    assert repaired.returncode == 0
    assert works(gpu)
    assert built(gpu) == {OLD, NEW}
    # Back from the fault's file system to the node's own.
    gpu.check_output(
        "cp -a /var/lib/dkms /tmp/dkms && umount /var/lib/dkms && rm -r /var/lib/dkms"
        " && cp -a /tmp/dkms /var/lib/ && rm -r /tmp/dkms"
    )


def test_module_that_dkms_has_built_and_not_installed(laboratory, gpu):
    unload(gpu)
    gpu.check_output(f"rm /lib/modules/{NEW}/updates/dkms/nvidia*.ko && depmod {NEW}")
    run = laboratory.playbook(CONVERGE)
    assert run.returncode == 0
    assert works(gpu)


def test_run_that_ended_between_the_removal_and_the_build(laboratory, gpu):
    """Without a build, DKMS no longer has the driver. The next run finds its source in /usr/src."""
    unload(gpu)
    gpu.check_output(f"dkms remove {SOURCE} --all")
    assert gpu.check_output(f"dkms status {SOURCE}") == ""
    run = laboratory.playbook(CONVERGE)
    assert run.returncode == 0
    assert works(gpu)
    assert built(gpu) == {NEW}
    assert "gpu-1" in laboratory.playbook(CONVERGE).unchanged
