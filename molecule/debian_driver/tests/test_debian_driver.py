# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Debian's own driver, in folders and under names of its own: kept, and installed by the role."""

from __future__ import annotations

import re

ALL_OK = (
    r"gpu-1 .*?(\s+4){5}\s+4/4\s+ok\b",
    r"gpu-2 .*?(\s+1){5}\s+1/1\s+ok\b",
    r"gpu-3 .*?(\s+4){5}\s+4/4\s+ok\b",
)
SOURCES = "/etc/apt/sources.list.d/metal-gpu-nvidia-driver"


def specification(host):
    """Return the CDI devices that the toolkit lists."""
    return host.check_output("nvidia-ctk --quiet cdi list").split()


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert check.announced == converge.announced
    tasks = {task for host, task in check.announced if host == "gpu-3"}
    for step in ("Add the repository of the driver", "Add the security updates of the driver"):
        assert any(task.endswith(step) for task in tasks)


def test_driver_is_kept_and_pods_see_every_gpu(laboratory):
    """The proof runs nvidia-smi in pods. On gpu-1, nvidia-smi is a link to a link."""
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0
    for row in ALL_OK:
        assert re.search(row, run.output)
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        assert node in run.unchanged
    assert re.search(r"DRIVER_KEPT gpu-1: .*550\.163\.01", run.words)
    host = laboratory.host("gpu-1")
    assert host.package("nvidia-smi").version == "550.163.01-2"
    assert "nvidia" not in host.check_output("apt-mark showhold").replace("nvidia-container", "")


def test_debians_driver_is_installed_where_nvidia_has_none(laboratory):
    """With the proprietary module. The components are those that the admin's sources lack."""
    host = laboratory.host("gpu-3")
    assert host.package("nvidia-kernel-dkms").version == "550.163.01-2"
    assert host.check_output("cat /sys/module/nvidia/version") == "550.163.01"
    held = host.check_output("apt-mark showhold").split()
    assert {"nvidia-kernel-dkms", "nvidia-smi", "libcuda1"} <= {*held}
    admin = host.file("/etc/apt/sources.list.d/debian.sources").content_string
    assert admin.count("Components: main non-free-firmware\n") == 2
    for name, suites in ((SOURCES, "trixie"), (f"{SOURCES}-security", "trixie-security")):
        text = host.file(f"{name}.sources").content_string
        assert "Components: contrib non-free\n" in text
        assert f"Suites: {suites}\n" in text


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
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        assert node in run.unchanged
