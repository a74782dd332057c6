# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The driver comes from NVIDIA's .run file, and never beside one of packages."""

from __future__ import annotations

from pathlib import Path

import pytest

CONVERGE = str(Path(__file__).parent.parent / "converge.yml")
VERSION = "580.178.04"
FOLDER = "/var/lib/metal-gpu/packages/nvidia_driver.run"
SWITCH = ("-e", "nvidia_driver_switch_ok=true")
PACKAGES = ("-e", "nvidia_driver_source=nvidia")
OPERATIONS_ALLOWED = 1
FILES = {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
RULE = "/etc/udev/rules.d/70-metal-gpu-device-files.rules"
LOAD = "rmmod nvidia_uvm nvidia && modprobe -a nvidia nvidia_uvm"


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-1")


def works(gpu):
    return len(gpu.check_output("nvidia-smi -L").splitlines()) == 1


def device_files(gpu):
    return set(gpu.check_output("ls /dev | grep nvidia || true").split())


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert "Install the driver from the .run file" in str(check.announced)
    assert check.announced == converge.announced
    assert check.announced <= converge.ran
    assert converge.unannounced == set()


def test_driver_of_the_run_file_works(gpu):
    assert works(gpu)
    assert gpu.check_output("cat /sys/module/nvidia/version") == VERSION
    assert "Open Kernel Module" in gpu.check_output("cat /proc/driver/nvidia/version")
    # The installer refuses what it does not know: each of these is known to this version.
    log = gpu.check_output("cat /var/log/nvidia-installer.log")
    assert "--silent" in log
    assert "--dkms --kernel-module-type=open" in log
    assert not gpu.file(FOLDER).exists
    assert gpu.check_output("dpkg -l 'nvidia-*' 2>/dev/null | grep ^ii || true") == ""


def test_second_run_changes_nothing_and_is_cheap(laboratory):
    counts = laboratory.second_run(CONVERGE, OPERATIONS_ALLOWED)
    print(f"\nrole nvidia_driver alone: {counts['gpu-1']} remote operations", end=" ")


def test_loading_the_modules_creates_no_file_without_the_rule(gpu):
    gpu.check_output("nvidia-smi -pm 0")
    gpu.check_output(f"mv {RULE} /root/rule && {LOAD}")
    assert device_files(gpu) == FILES  # left from before
    gpu.check_output(f"rm /dev/nvidia* && {LOAD}")
    assert device_files(gpu) == set()
    gpu.check_output(f"mv /root/rule {RULE} && {LOAD}")
    assert device_files(gpu) == FILES
    gpu.check_output("nvidia-smi -pm 1")


def test_files_exist_after_a_boot(laboratory, gpu):
    """Nothing that uses a GPU has run: a .run file brings no unit, and there is no toolkit."""
    laboratory.reboot("gpu-1")
    assert device_files(gpu) == FILES
    assert works(gpu)


def test_file_that_is_missing_is_created(laboratory, gpu):
    laboratory.playbook(CONVERGE)
    laboratory.lab("fault", "gpu-1", "no-uvm-file")
    assert works(gpu)
    run = laboratory.playbook(CONVERGE)
    assert run.returncode == 0
    assert device_files(gpu) == FILES
    assert "gpu-1" in laboratory.playbook(CONVERGE).unchanged


def major(gpu):
    return int(gpu.check_output("stat --format=%Hr /dev/nvidia-uvm"))


def test_file_with_an_outdated_number_is_corrected(laboratory, gpu):
    laboratory.lab("fault", "gpu-1", "uvm-number")
    loaded = int(gpu.check_output("sed -n 's/ *nvidia-uvm$//p' /proc/devices"))
    assert major(gpu) != loaded
    assert works(gpu)
    run = laboratory.playbook(CONVERGE)
    assert run.returncode == 0
    assert major(gpu) == loaded
    assert "gpu-1" in laboratory.playbook(CONVERGE).unchanged


def test_rule_with_another_text_is_written_again(laboratory, gpu):
    good = gpu.check_output(f"cat {RULE}")
    gpu.check_output(f"sed -i 's/-c 0 -u/-u/' {RULE} && echo '# of the admin' >> {RULE}")
    check = laboratory.playbook(CONVERGE, "--check")
    assert f"{RULE} has another text than this role writes" in check.words
    run = laboratory.playbook(CONVERGE)
    assert run.returncode == 0
    assert gpu.check_output(f"cat {RULE}") == f"{good}\n# of the admin"
    assert "gpu-1" in laboratory.playbook(CONVERGE).unchanged
    gpu.check_output(f"sed -i '/# of the admin/d' {RULE}")


def test_directory_in_the_place_of_a_file_stays(laboratory, gpu):
    gpu.check_output("rm /dev/nvidia-uvm && mkdir /dev/nvidia-uvm")
    run = laboratory.playbook(CONVERGE)
    assert "DEVICE_FILE_BLOCKED gpu-1: /dev/nvidia-uvm is a directory" in run.words
    assert run.returncode != 0
    assert gpu.file("/dev/nvidia-uvm").is_directory
    gpu.check_output("rmdir /dev/nvidia-uvm")
    assert laboratory.playbook(CONVERGE).returncode == 0
    assert device_files(gpu) >= FILES
    assert gpu.check_output("stat --format=%F /dev/nvidia-uvm") == "character special file"


def test_failure_of_nvidia_modprobe_is_explained(laboratory, gpu):
    program = gpu.check_output("command -v nvidia-modprobe")
    laboratory.lab("fault", "gpu-1", "no-uvm-file")
    gpu.check_output(
        f"mv {program} /root/it && printf '#!/bin/sh\nexit 1\n' > {program} && chmod +x {program}"
    )
    run = laboratory.playbook(CONVERGE)
    gpu.check_output(f"mv /root/it {program}")
    assert "DEVICE_FILES_FAILED gpu-1: " in run.words
    assert "nvidia-modprobe ended with exit code 1 and printed nothing" in run.words
    assert run.returncode != 0
    assert laboratory.playbook(CONVERGE).returncode == 0
    assert device_files(gpu) == FILES


def test_another_source_needs_permission(laboratory, gpu):
    run = laboratory.playbook(CONVERGE, *PACKAGES)
    assert "gpu-1" in run.unchanged
    assert "DRIVER_KEPT gpu-1: " in run.words
    assert works(gpu)


def test_packages_and_back(laboratory, gpu):
    run = laboratory.playbook(CONVERGE, *PACKAGES, *SWITCH)
    assert run.returncode == 0
    assert works(gpu)
    assert gpu.package("nvidia-driver-cuda").version == f"{VERSION}-1"
    assert device_files(gpu) >= FILES
    for path in ("/usr/bin/nvidia-uninstall", "/var/lib/nvidia"):
        assert not gpu.file(path).exists
    assert "gpu-1" in laboratory.playbook(CONVERGE, *PACKAGES, *SWITCH).unchanged

    run = laboratory.playbook(CONVERGE, *SWITCH)
    assert run.returncode == 0
    assert works(gpu)
    assert gpu.file("/usr/bin/nvidia-uninstall").exists
    assert not gpu.package("nvidia-driver-cuda").is_installed
    assert not gpu.file("/etc/apt/sources.list.d/metal-gpu-nvidia-driver.sources").exists
    assert "gpu-1" in laboratory.playbook(CONVERGE, *SWITCH).unchanged


def test_no_reboot_under_a_process_that_computes(laboratory, gpu):
    """No kubelet knows of it: it runs on the node. It has the file open that CUDA needs.

    O_PATH, because no driver is behind the file.
    """
    booted = gpu.check_output("cat /proc/sys/kernel/random/boot_id")
    holder = "import os, time; os.open('/dev/nvidia-uvm', os.O_PATH); time.sleep(600)"
    gpu.check_output(f'nohup python3 -c "{holder}" > /dev/null 2>&1 & echo $! > /run/holder')
    wanted = '{"nvidia_driver_module_parameters": {"NVreg_EnableStreamMemOPs": 1}}'
    run = laboratory.playbook(CONVERGE, "-e", "nvidia_driver_reboot_ok=true", "-e", wanted)
    gpu.check_output("kill $(cat /run/holder); rm /run/holder")
    assert run.returncode != 0
    assert "REBOOT_BLOCKED gpu-1: " in run.words
    assert "in use: python3 (process " in run.words
    assert gpu.check_output("cat /proc/sys/kernel/random/boot_id") == booted
    assert laboratory.playbook(CONVERGE).returncode == 0
    assert works(gpu)


def test_driver_in_use_stays(laboratory, gpu):
    """A process uses the driver's library: nothing is unloaded, and nothing removed."""
    holder = "import ctypes, time; ctypes.CDLL('libnvidia-ml.so.1'); time.sleep(600)"
    gpu.check_output(f'nohup python3 -c "{holder}" > /dev/null 2>&1 & echo $! > /run/holder')
    run = laboratory.playbook(CONVERGE, *PACKAGES, *SWITCH)
    gpu.check_output("kill $(cat /run/holder); rm /run/holder")
    assert run.returncode != 0
    assert "DRIVER_IN_USE gpu-1: " in run.words
    assert works(gpu)
    assert "gpu-1" in laboratory.playbook(CONVERGE).unchanged
