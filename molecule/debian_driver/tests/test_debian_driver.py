# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's own driver, in its own folders and under its own names, stays. Pods get GPUs."""

from __future__ import annotations

import re

ALL_OK = (r"gpu-1 .*?(\s+4){5}\s+4/4\s+ok\b", r"gpu-2 .*?(\s+1){5}\s+1/1\s+ok\b")


def specification(host):
    """Return the CDI devices that the toolkit lists."""
    return host.check_output("nvidia-ctk --quiet cdi list").split()


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert check.announced == converge.announced


def test_driver_is_kept_and_pods_see_every_gpu(laboratory):
    """The proof runs nvidia-smi in pods. On gpu-1, nvidia-smi is a link to a link."""
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    for row in ALL_OK:
        assert re.search(row, run.output)
    assert re.search(r"DRIVER_KEPT gpu-1: .*550\.163\.01", run.words)
    assert re.search(r"^gpu-1\s+: ok=\d+\s+changed=0\s", run.output, re.M)
    host = laboratory.host("gpu-1")
    assert host.package("nvidia-smi").version == "550.163.01-2"
    assert "nvidia" not in host.check_output("apt-mark showhold").replace("nvidia-container", "")


def test_other_node_does_not_have_debians_folder(laboratory):
    """Both nodes share one DaemonSet. It must not create gpu-1's folder on gpu-2."""
    assert not laboratory.host("gpu-2").file("/usr/lib/nvidia").exists


def reboot(laboratory, node):
    """Reboot a node. Return when its kubelet has reported the new boot to the cluster."""
    laboratory.reboot(node)
    now = laboratory.host(node).check_output("cat /proc/sys/kernel/random/boot_id")
    known = f"--for=jsonpath={{.status.nodeInfo.bootID}}={now}"
    laboratory.kubectl("wait", f"node/{node}", known, "--timeout=60s")


def test_specification_exists_after_a_boot(laboratory):
    before = specification(laboratory.host("gpu-1"))
    assert {f"nvidia.com/gpu={name}" for name in ("0", "1", "2", "3", "all")} <= set(before)
    reboot(laboratory, "gpu-1")
    run = laboratory.playbook("metal.gpu.verify")
    assert run.returncode == 0
    for row in ALL_OK:
        assert re.search(row, run.output)
    host = laboratory.host("gpu-1")
    assert specification(host) == before
    assert host.check_output("systemctl show --value -p Result nvidia-cdi-refresh") == "success"


def test_files_for_cuda_exist_before_anything_asks_for_them(laboratory):
    """Without the service that writes the specification, which would create them, too."""
    host = laboratory.host("gpu-2")
    host.check_output("systemctl mask nvidia-cdi-refresh.service")
    reboot(laboratory, "gpu-2")
    files = set(host.check_output("ls /dev | grep nvidia").split())
    host.check_output("systemctl unmask nvidia-cdi-refresh.service")
    host.check_output("systemctl start nvidia-cdi-refresh.service")
    assert files >= {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
    # gpu-1 has a driver of the admin, which the role leaves alone.
    rules = "/etc/udev/rules.d/70-metal-gpu-device-files.rules"
    assert [laboratory.host(node).file(rules).exists for node in ("gpu-1", "gpu-2")] == [
        False,
        True,
    ]
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    for node in ("gpu-1", "gpu-2"):
        assert re.search(rf"^{node}\s+: ok=\d+\s+changed=0\s", run.output, re.M)
