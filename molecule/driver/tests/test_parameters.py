# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameters of the module and nvidia_peermem, by variable. The teardown finds both on the node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

CONVERGE = str(Path(__file__).parent.parent / "converge.yml")
FILE = "/etc/modprobe.d/metal-gpu-parameters.conf"
AT_BOOT = "/etc/modules-load.d/metal-gpu.conf"
REBOOT = ("-e", "nvidia_driver_reboot_ok=true")
PEERMEM = ("-e", "nvidia_driver_peermem=true")
STEP = "Set the parameters of the NVIDIA module"
MEMOPS, PROFILING = "NVreg_EnableStreamMemOPs", "NVreg_RestrictProfilingToAdminUsers"
# The headers of MLNX_OFED, which NVIDIA's makefile looks for.
OFED = "/usr/src/ofa_kernel/default"
MODULE = "nvidia/580.178.04"


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-1")


def wants(**parameters):
    return ("-e", json.dumps({"nvidia_driver_module_parameters": parameters}))


def in_force(gpu):
    lines = gpu.check_output("cat /proc/driver/nvidia/params").splitlines()
    return dict(line.split(": ") for line in lines)


def boot_id(gpu):
    return gpu.check_output("cat /proc/sys/kernel/random/boot_id")


def lines(gpu):
    text = gpu.file(FILE).content_string
    return [line for line in text.splitlines() if line.startswith("options nvidia ")]


def test_parameters_wait_for_a_reboot(laboratory, gpu):
    """Check mode predicts the file. Without permission, the module keeps its values."""
    booted = boot_id(gpu)
    check = laboratory.playbook(CONVERGE, "--check", *wants(**{MEMOPS: 1}))
    assert check.returncode == 0
    assert STEP in check.words
    assert not gpu.file(FILE).exists
    run = laboratory.playbook(CONVERGE, *wants(**{MEMOPS: 1}))
    assert run.returncode == 0
    assert "PARAMETERS_PENDING gpu-1: " in run.words
    assert f"{MEMOPS}=0; they need a reboot" in run.words
    assert lines(gpu) == [f"options nvidia {MEMOPS}=1"]
    assert in_force(gpu)["EnableStreamMemOPs"] == "0"
    again = laboratory.playbook(CONVERGE, *wants(**{MEMOPS: 1}))
    assert "gpu-1" in again.unchanged
    assert "PARAMETERS_PENDING gpu-1: " in again.words
    assert boot_id(gpu) == booted


def test_reboot_applies_them(laboratory, gpu):
    booted = boot_id(gpu)
    assert laboratory.playbook(CONVERGE, *REBOOT, *wants(**{MEMOPS: 1})).returncode == 0
    assert in_force(gpu)["EnableStreamMemOPs"] == "1"
    assert boot_id(gpu) != booted
    again = laboratory.playbook(CONVERGE, *REBOOT, *wants(**{MEMOPS: 1}))
    assert "gpu-1" in again.unchanged
    assert "PARAMETERS_" not in again.words


def test_another_value_and_another_name(laboratory, gpu):
    """/proc/driver/nvidia/params has another name for the second one."""
    wanted = wants(**{MEMOPS: 0, PROFILING: 0})
    assert in_force(gpu)["RmProfilingAdminOnly"] == "1"
    assert laboratory.playbook(CONVERGE, *REBOOT, *wanted).returncode == 0
    assert lines(gpu) == [f"options nvidia {MEMOPS}=0", f"options nvidia {PROFILING}=0"]
    found = in_force(gpu)
    assert (found["EnableStreamMemOPs"], found["RmProfilingAdminOnly"]) == ("0", "0")


def test_name_that_the_module_does_not_have(laboratory, gpu):
    """It is no reason for a reboot."""
    booted = boot_id(gpu)
    run = laboratory.playbook(CONVERGE, *REBOOT, *wants(NVreg_Typo=1))
    assert run.returncode == 0
    assert "PARAMETERS_UNKNOWN gpu-1: " in run.words
    assert boot_id(gpu) == booted


def test_no_parameters_any_more(laboratory, gpu):
    check = laboratory.playbook(CONVERGE, "--check")
    assert STEP in check.words
    assert gpu.file(FILE).exists
    assert laboratory.playbook(CONVERGE).returncode == 0
    assert not gpu.file(FILE).exists
    assert "gpu-1" in laboratory.playbook(CONVERGE).unchanged


def test_peermem_without_the_api(laboratory, gpu):
    """The module was built without it. Nothing loads it at boot, and the GPU works."""
    run = laboratory.playbook(CONVERGE, *PEERMEM)
    assert run.returncode != 0
    assert "MODULE_REJECTED gpu-1: the kernel does not load nvidia_peermem: " in run.words
    assert "Invalid argument" in run.words
    assert "peermem" not in gpu.file(AT_BOOT).content_string
    assert len(gpu.check_output("nvidia-smi -L").splitlines()) == 1


def test_peermem_of_a_new_build(laboratory, gpu):
    """As the page says: the stack came later than the driver, so the module is built again."""
    gpu.check_output(f"mkdir -p {OFED}")
    for action in ("remove", "install"):
        gpu.check_output(f"dkms {action} {MODULE} -k $(uname -r)")
    gpu.check_output(f"rm -r {Path(OFED).parent}")
    check = laboratory.playbook(CONVERGE, "--check", *PEERMEM)
    assert check.returncode == 0
    assert "Load nvidia_peermem, now and at boot" in check.words
    assert laboratory.playbook(CONVERGE, *PEERMEM).returncode == 0
    assert "nvidia_peermem" in gpu.check_output("lsmod")
    assert "nvidia_peermem\n" in gpu.file(AT_BOOT).content_string
    assert "gpu-1" in laboratory.playbook(CONVERGE, *PEERMEM).unchanged
    laboratory.reboot("gpu-1")
    assert "nvidia_peermem" in gpu.check_output("lsmod")


def test_peermem_that_nobody_wants_any_more(laboratory, gpu):
    """The file no longer names it. The loaded module stays until the next boot."""
    assert laboratory.playbook(CONVERGE).returncode == 0
    assert "peermem" not in gpu.file(AT_BOOT).content_string
    assert "nvidia_peermem" in gpu.check_output("lsmod")
    run = laboratory.playbook(CONVERGE, *PEERMEM, *wants(**{MEMOPS: 1}))
    assert run.returncode == 0
    assert gpu.file(FILE).exists
