# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Eight B200, whose NVSwitches are behind an adapter: Fabric Manager needs nvlsm to reach them.

test_fabric.py has what both nodes have in common.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

ALL_OK = r"gpu-2 .*?(\s+8){5}\s+8/8\s+ok\b"
UNIT, PACKAGE = "nvidia-fabricmanager.service", "nvidia-fabricmanager"
STATES = "nvidia-smi --query-gpu=fabric.state,fabric.status --format=csv,noheader"
DROP_IN = "/etc/modules-load.d/metal-gpu-fabric.conf"
PROGRAM = "/opt/nvidia/nvlsm/sbin/nvlsm"


@pytest.fixture
def host(laboratory: Any) -> Any:
    return laboratory.host("gpu-2")


def codes(run: Any) -> set[str]:
    return set(re.findall(r"\b(FABRIC_\w+|SUBNET_\w+|DRIFTED|NVML_\w+) gpu-2: ", run.words))


def processes(host: Any) -> list[str]:
    """Return the processes of nvlsm: a program of the node, so it has no process elsewhere."""
    listed = host.run("pgrep --full ^%s", PROGRAM)
    return str(listed.stdout).split()


def test_nothing_shows_on_the_bus(host):
    """No NVSwitch. Only the vital product data of the adapters show them."""
    assert "10de:22a" not in host.check_output("lspci -n")
    found = host.check_output("grep -l SMDL=SW_MNG /sys/bus/pci/devices/*/vpd").split()
    assert len(found) == 4


def test_fabric_manager_has_started_nvlsm(host):
    assert len(processes(host)) == 1


def test_packages(host):
    """The version of nvlsm is a date."""
    assert host.package("nvlsm").version == "2025.10.14-1"
    assert "nvlsm" in host.check_output("apt-mark showhold").split()
    assert host.package("infiniband-diags").is_installed
    assert host.package("nvidia-kernel-open-dkms").is_installed


def test_modules(host):
    """The kernel loads the module of the adapters. Nobody else loads the other one."""
    assert {"mlx5_ib", "ib_umad"} <= {
        line.split()[0] for line in host.check_output("lsmod").splitlines()
    }
    assert "ib_umad" in host.file(DROP_IN).content_string.splitlines()


def test_a_boot_trains_the_fabric_before_the_kubelet(laboratory, host):
    """The fabric is lost with the boot, so it was trained again."""
    laboratory.reboot("gpu-2")
    host.run("timeout 60 systemctl is-system-running --wait")  # other units may have failed
    assert host.service("kubelet.service").is_running
    started = {
        unit: int(
            host.check_output("systemctl show -p ActiveEnterTimestampMonotonic --value %s", unit)
        )
        for unit in (UNIT, "kubelet.service")
    }
    assert 0 < started[UNIT] < started["kubelet.service"]
    assert host.check_output(STATES).splitlines() == ["Completed, Success"] * 8
    assert len(processes(host)) == 1


def test_nvlsm_ended(laboratory, host):
    """systemd does not notice, and the states stay. A reboot is the remedy."""
    (process,) = processes(host)
    host.check_output("kill %s", process)
    assert host.service(UNIT).is_running
    assert host.check_output(STATES).splitlines() == ["Completed, Success"] * 8
    run = laboratory.playbook("metal.gpu.verify")
    assert run.returncode != 0
    assert codes(run) == {"SUBNET_MANAGER_STOPPED"}
    assert "/var/log/nvlsm.log" in run.words
    laboratory.reboot("gpu-2")
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    assert re.search(ALL_OK, run.output)


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        pytest.param(
            "modprobe -r ib_umad", 'Kernel module "ib_umad" has not been loaded', id="ib_umad"
        ),
        pytest.param(
            f"chmod -x {PROGRAM}", f'"{PROGRAM}" does not exist. Please make sure', id="nvlsm"
        ),
        pytest.param("chmod -x /usr/sbin/ibstat", '"ibstat" command not found!', id="ibstat"),
        pytest.param("modprobe -r mlx5_ib", "NV_WARN_NOTHING_TO_DO", id="mlx5_ib"),
    ],
)
def test_what_the_service_needs(laboratory, host, lost, words):
    """It does not start, and the finding has its words."""
    host.check_output("systemctl stop %s", UNIT)
    host.check_output(lost)
    try:
        assert host.run("systemctl start %s", UNIT).rc != 0
        run = laboratory.playbook("metal.gpu.verify")
    finally:
        host.check_output("chmod +x %s /usr/sbin/ibstat; modprobe -a mlx5_ib ib_umad", PROGRAM)
        host.check_output("systemctl reset-failed %s; systemctl start %s", UNIT, UNIT)
    assert "FABRIC_MANAGER_STOPPED" in codes(run)
    assert words in run.words.replace('\\"', '"')  # as Ansible writes it


def test_removed(laboratory, host):
    """An admin removed both. The driver is still the role's, so the role installs them again."""
    host.check_output("systemctl disable --now %s", UNIT)
    names = f"{PACKAGE} nvlsm"
    host.check_output(f"apt-get purge --yes --allow-change-held-packages {names}")
    host.check_output("systemctl daemon-reload")
    run = laboratory.playbook("metal.gpu.verify")
    assert codes(run) == {"FABRIC_MANAGER_MISSING", "DRIFTED"}
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    assert re.search(ALL_OK, run.output)
    assert {PACKAGE, "nvlsm"} <= set(host.check_output("apt-mark showhold").split())
    assert len(processes(host)) == 1
