# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Eight H100 behind NVSwitches: without Fabric Manager they are listed and cannot compute.

What Fabric Manager does everywhere is tested on both nodes.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

ALL_OK = r"gpu-1 .*?(\s+8){5}\s+8/8\s+ok\b"
UNIT, PACKAGE = "nvidia-fabricmanager.service", "nvidia-fabricmanager"
STATES = "nvidia-smi --query-gpu=fabric.state,fabric.status --format=csv,noheader"


@pytest.fixture
def host(laboratory: Any) -> Any:
    return laboratory.host("gpu-1")


def codes(run: Any) -> set[str]:
    return set(re.findall(r"\b(FABRIC_\w+|DRIFTED|NVML_\w+) gpu-1: ", run.words))


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert check.announced == converge.announced


def test_every_gpu_is_in_the_fabric(laboratory, node):
    host = laboratory.host(node)
    assert host.check_output(STATES).splitlines() == ["Completed, Success"] * 8
    assert host.service(UNIT).is_running
    assert host.service(UNIT).is_enabled


def test_fabric_manager_is_held_in_the_version_of_the_driver(laboratory, node):
    host = laboratory.host(node)
    driver = host.package("nvidia-driver-cuda").version
    assert host.package(PACKAGE).version == driver
    assert PACKAGE in host.check_output("apt-mark showhold").split()


def test_it_starts_before_the_kubelet(laboratory, node):
    before = laboratory.host(node).check_output("systemctl show -p Before %s", UNIT)
    assert "kubelet.service" in before


def test_second_run_changes_nothing(laboratory):
    laboratory.second_run("metal.gpu.site", 1)


def test_stopped(laboratory, host):
    """The state stays, so it shows nothing."""
    host.check_output("systemctl stop %s", UNIT)
    assert host.check_output(STATES).splitlines() == ["Completed, Success"] * 8
    run = laboratory.playbook("metal.gpu.verify")
    assert run.returncode != 0
    assert codes(run) == {"FABRIC_MANAGER_STOPPED"}
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    assert re.search(ALL_OK, run.output)
    assert host.service(UNIT).is_running


def test_gpus_that_left_the_fabric(laboratory, host):
    laboratory.lab("fault", "gpu-1", "fabric-reset")
    run = laboratory.playbook("metal.gpu.verify")
    assert run.returncode != 0
    assert codes(run) == {"FABRIC_NOT_READY"}
    assert "Not Started" in run.words
    host.check_output("systemctl restart %s", UNIT)
    assert laboratory.playbook("metal.gpu.verify").returncode == 0


def test_memory_that_the_gpus_replace(laboratory, host):
    """What only Ampere and newer GPUs report. The device plugin sees nothing of it."""
    faults = ("remap-failed 1", "ecc-sram-threshold 2", "remap-pending 3", "mig-pending 4")
    for fault in faults:
        laboratory.lab("fault", "gpu-1", *fault.split())
    run = laboratory.playbook("metal.gpu.verify")
    laboratory.lab("fault", "gpu-1", "restore")
    host.check_output("systemctl restart %s", UNIT)
    assert run.returncode != 0
    found = re.findall(r"\b([A-Z]+(?:_[A-Z]+)+) gpu-1: ", run.words)
    assert sorted(found) == [
        *("GPU_RESET_DUE", "GPU_UNRELIABLE", "GPU_UNRELIABLE", "MIG_MODE_PENDING")
    ]
    assert "row remapping failed" in run.words
    assert laboratory.playbook("metal.gpu.verify").returncode == 0


def test_lost_switch(laboratory, host):
    laboratory.lab("fault", "gpu-1", "lose-nvswitch", "1")
    assert host.run("systemctl restart %s", UNIT).rc != 0
    run = laboratory.playbook("metal.gpu.verify")
    assert codes(run) == {"FABRIC_MANAGER_STOPPED"}
    assert "number of NVSwitches don't match" in run.words
    laboratory.lab("fault", "gpu-1", "restore")
    host.check_output("systemctl reset-failed %s", UNIT)
    host.check_output("systemctl start %s", UNIT)
    assert laboratory.playbook("metal.gpu.verify").returncode == 0


def test_removed(laboratory, host):
    """An admin removed it. The driver is still the role's, so the role installs it again."""
    host.check_output("systemctl disable --now %s", UNIT)
    host.check_output("apt-get purge --yes --allow-change-held-packages %s", PACKAGE)
    host.check_output("systemctl daemon-reload")
    run = laboratory.playbook("metal.gpu.verify")
    assert codes(run) == {"FABRIC_MANAGER_MISSING", "DRIFTED"}
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    assert re.search(ALL_OK, run.output)
    assert PACKAGE in host.check_output("apt-mark showhold").split()
