# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secure Boot: the key of DKMS is created, enrolled, and used. Without it, nothing is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

CONVERGE = str(Path(__file__).parent.parent / "converge.yml")
REBOOT = str(Path(__file__).parent / "reboot.yml")
ON_GPU_2 = ("-e", "node=gpu-2")
SOURCE, KERNEL = "nvidia/580.178.04", "6.1.0-51-amd64"
KEY = "/var/lib/dkms/mok.pub"
MODULE = f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko"


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-2")


def converge(laboratory):
    return laboratory.playbook(CONVERGE, *ON_GPU_2)


def create_key(gpu):
    """Do what the message says."""
    gpu.check_output(
        'install -d /var/lib/dkms && openssl req -new -x509 -nodes -days 36500 -subj "/CN=DKMS '
        'module signing key" -newkey rsa:2048 -keyout /var/lib/dkms/mok.key -outform DER '
        f"-out {KEY} 2> /dev/null"
    )


def enrol(laboratory, gpu):
    gpu.check_output(f"printf 'once\\nonce\\n' | mokutil --import {KEY}")
    laboratory.lab("fault", "gpu-2", "keys-confirmed")
    assert laboratory.playbook(REBOOT, *ON_GPU_2).returncode == 0


def test_refused_step_by_step(laboratory, gpu):
    """Each message has the next step for this node. Until the last one, nothing is installed."""
    run = converge(laboratory)
    assert run.returncode != 0
    assert "SECURE_BOOT_ON gpu-2: " in run.words
    assert "openssl req -new -x509" in run.words
    create_key(gpu)
    run = converge(laboratory)
    assert run.returncode != 0
    assert f"mokutil --import {KEY}" in run.words
    gpu.check_output(f"printf 'once\\nonce\\n' | mokutil --import {KEY}")
    run = converge(laboratory)
    assert run.returncode != 0
    assert f"confirm the key {KEY}" in run.words
    assert not gpu.package("nvidia-driver-cuda").is_installed
    assert not gpu.file("/etc/modprobe.d/metal-gpu-nouveau.conf").exists


def test_enrolled_key_signs_the_module(laboratory, gpu):
    laboratory.lab("fault", "gpu-2", "keys-confirmed")
    assert laboratory.playbook(REBOOT, *ON_GPU_2).returncode == 0
    assert converge(laboratory).returncode == 0
    checksum = gpu.check_output(f"sha256sum {KEY}").split()[0]
    assert f"signer={checksum}" in gpu.check_output(f"cat {MODULE}")
    assert len(gpu.check_output("nvidia-smi -L").splitlines()) == 1
    again = converge(laboratory)
    assert "gpu-2" in again.unchanged


def test_module_of_a_former_key_is_rejected(laboratory, gpu):
    """The remedy builds the module again, with the key that is enrolled now."""
    gpu.check_output("rm /var/lib/dkms/mok.key /var/lib/dkms/mok.pub")
    create_key(gpu)
    laboratory.lab("fault", "gpu-2", "restore")
    laboratory.lab("fault", "gpu-2", "secure-boot")
    enrol(laboratory, gpu)
    run = converge(laboratory)
    assert run.returncode != 0
    assert "MODULE_REJECTED gpu-2: " in run.words
    assert "Key was rejected by service" in run.words
    for action in ("build", "install"):
        gpu.check_output(f"dkms {action} --force {SOURCE} -k {KERNEL}")
    assert converge(laboratory).returncode == 0
    assert len(gpu.check_output("nvidia-smi -L").splitlines()) == 1
