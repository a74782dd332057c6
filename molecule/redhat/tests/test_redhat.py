# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes with the real dnf and rpm: the cluster's GPU node, and Docker without Kubernetes.

gpu-1 has Rocky Linux 9, gpu-2 has Rocky Linux 10.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SCENARIO = Path(__file__).parent.parent
DOCKER = str(SCENARIO / "docker.yml")
CUDA = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

HOLD_LOCK = """
import os, time
with open("/var/cache/dnf/metadata_lock.pid", "w") as file:
    file.write(str(os.getpid()))
time.sleep(600)
"""

VERSION, UPDATE = "580.178.04", "580.999.01"
TOOLKIT = dict.fromkeys(
    (
        *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
        *("libnvidia-container-tools", "libnvidia-container1"),
    ),
    "0:1.20.1-1",
)


def driver(kernel: str, dist: str) -> dict[str, str]:
    """Return every package of a driver, with those that dnf brings."""
    asked = ("nvidia-driver-cuda", kernel, "nvidia-persistenced")
    brought = ("nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-modprobe")
    libraries = ("libnvidia-ml", "libnvidia-cfg")
    return dict.fromkeys((*asked, *brought, *libraries), f"3:{VERSION}-1.{dist}")


# Pascal has the proprietary module, Turing the open one.
HELD = {
    "gpu-1": {**driver("kmod-nvidia-latest-dkms", "el9"), **TOOLKIT},
    "gpu-2": {
        **driver("kmod-nvidia-open-dkms", "el10"),
        "docker-ce": "3:29.8.1-1.el10",
        "docker-ce-cli": "1:29.8.1-1.el10",
        "containerd.io": "0:2.4.2-1.el10",
        **TOOLKIT,
    },
}
# What the scene `dracut` brings.
OTHER_KERNEL = "5.14.0-503.40.1.el9_5.x86_64"
REBUILD = "--regenerate-all --force"
HOTFIXES = "--setopt=metal-gpu-nvidia-driver.module_hotfixes=1"


def installed_packages(host):
    form = r"%{NAME}\t%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}\n"
    lines = host.check_output("rpm -qa --queryformat %s", form).splitlines()
    return dict(line.split("\t") for line in lines)


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert {host for host, _step in check.announced} == {"gpu-1", "gpu-2"}
    assert check.announced == converge.announced
    assert check.announced <= converge.ran
    rehearsed = {task for _host, task in check.changed}
    assert {task for _host, task in converge.unannounced} <= rehearsed


def test_driver_sees_every_gpu(laboratory, node):
    uuids = UUID.findall(laboratory.host(node).check_output("nvidia-smi -L"))
    assert len(set(uuids)) == laboratory.gpu_count[node]


def test_persistence_mode_is_on(laboratory, node):
    modes = laboratory.host(node).check_output(
        "nvidia-smi --query-gpu=persistence_mode --format=csv,noheader"
    )
    assert modes.split() == ["Enabled"] * laboratory.gpu_count[node]


def ramdisks(host):
    """Return the content of the initial ramdisk of every kernel."""
    kernels = host.check_output("ls /lib/modules").split()
    return {one: host.file(f"/boot/initramfs-{one}.img").content_string for one in kernels}


def test_initial_ramdisk_of_every_kernel_has_the_blacklist(laboratory, node):
    """Built once: the runs of the tests before this one had no reason to."""
    host = laboratory.host(node)
    found = ramdisks(host)
    assert {OTHER_KERNEL, host.check_output("uname -r")} == found.keys()
    calls = host.check_output("cat /run/dracut.log").splitlines()
    assert calls == [REBUILD, *(f"--kver={kernel} --force" for kernel in sorted(found))]
    for text in found.values():
        assert "blacklist nouveau" in text.splitlines()


def test_only_an_older_initial_ramdisk_is_a_reason_to_rebuild(laboratory):
    """As a backup of an admin brings it back: of the kernel that does not run."""
    host, image = laboratory.host("gpu-2"), f"/boot/initramfs-{OTHER_KERNEL}.img"
    host.check_output(
        "echo nouveau > %s; touch -d '1 hour ago' %s; rm /run/dracut.log", image, image
    )
    check = laboratory.playbook(DOCKER, "--check")
    assert "a file in modprobe.d is newer than the initramfs" in check.words
    assert not host.file("/run/dracut.log").exists
    assert laboratory.playbook(DOCKER).returncode == 0
    assert host.check_output("cat /run/dracut.log").splitlines()[0] == REBUILD
    assert "blacklist nouveau" in ramdisks(host)[OTHER_KERNEL]


def test_api_server_counts_every_gpu(laboratory):
    status = laboratory.objects("node", "gpu-1")["status"]
    assert status["allocatable"]["nvidia.com/gpu"] == str(laboratory.gpu_count["gpu-1"])
    assert laboratory.pulled("gpu-1", "k8s-device-plugin")


def test_docker_run_has_gpus(laboratory):
    host = laboratory.host("gpu-2")
    run = "docker run --rm --pull always --gpus all --entrypoint nvidia-smi"
    seen = host.check_output(f"{run} %s -L", CUDA)
    assert len(set(UUID.findall(seen))) == laboratory.gpu_count["gpu-2"]
    assert laboratory.pulled("gpu-2", "nvidia/cuda")


def test_engines_start_at_boot(laboratory):
    """No package of Red Hat's family enables its units."""
    laboratory.host("gpu-1").check_output("systemctl is-enabled nvidia-persistenced")
    laboratory.host("gpu-2").check_output("systemctl is-enabled docker nvidia-persistenced")


def test_every_package_of_the_driver_is_held(laboratory, node):
    host = laboratory.host(node)
    locks = host.check_output("dnf --quiet --disablerepo='*' versionlock list").split()
    assert {f"{name}-{version}.*" for name, version in HELD[node].items()} == set(locks)
    packages = installed_packages(host)
    assert HELD[node].items() <= packages.items()
    others = {name for name in packages if "nvidia" in name} - HELD[node].keys()
    assert others == set()


@pytest.mark.parametrize("options", ["", "--best", "--nobest", f"--best {HOTFIXES}"])
def test_upgrade_leaves_what_is_held(laboratory, node, options):
    """The repository has a newer driver of the branch, and one of another branch."""
    host = laboratory.host(node)
    before = installed_packages(host)
    host.check_output(f"dnf --assumeyes {options} upgrade")
    assert installed_packages(host) == before


def test_nothing_but_the_holds_keeps_the_driver(laboratory, node):
    """Without the plugin, dnf would upgrade: within the stream, or to the newest branch."""
    result = laboratory.host(node).run("dnf --assumeno --disableplugin=versionlock upgrade")
    expected = {"gpu-1": UPDATE, "gpu-2": "595.71.05"}[node]
    packages = [name for name in HELD[node] if "nvidia" in name and name not in TOOLKIT]
    for name in packages:
        assert re.search(rf"^ {name}\s+\w+\s+3:{expected}-1\.el", result.stdout, re.M), name


def test_only_enterprise_linux_9_has_streams(laboratory):
    """What dnf says without streams is what the role looks for in the sources of an admin."""
    streams = {
        node: laboratory.host(node).run("dnf --quiet module list nvidia-driver:580-open")
        for node in ("gpu-1", "gpu-2")
    }
    assert "580-open [e]" not in streams["gpu-1"].stdout
    assert "580-open" in streams["gpu-1"].stdout
    assert streams["gpu-2"].rc != 0
    assert "No matching Modules to list" in streams["gpu-2"].stderr


def test_dnf_reports_nothing_about_our_files(laboratory, node):
    """A repository's file that dnf cannot use shows here."""
    result = laboratory.host(node).run("dnf --quiet check-update")
    assert (result.rc, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "options", "host", "allowed"),
    [
        pytest.param("metal.gpu.site", ("-e", "metal_gpu_hosts=gpu-1"), "gpu-1", 1, id="site"),
        # Roles that follow each other observe the node once.
        pytest.param(DOCKER, (), "gpu-2", 1, id="roles"),
    ],
)
def test_second_run_changes_nothing_and_is_cheap(laboratory, name, options, host, allowed):
    run = laboratory.playbook(name, "-vvv", *options)
    assert run.returncode == 0
    assert host in run.unchanged
    assert run.operations()[laboratory.addresses[host]] == allowed


def test_lock_of_dnf_is_reported(laboratory):
    """dnf itself would wait for the other process without a limit."""
    host = laboratory.host("gpu-2")
    host.check_output("dnf --assumeyes --disablerepo='*' versionlock delete docker-ce")
    host.check_output("systemd-run --collect --unit=metal-lab-lock python3 -c %s", HOLD_LOCK)
    try:
        run = laboratory.playbook(DOCKER, "-e", "metal_gpu_lock_timeout=5")
    finally:
        host.check_output("systemctl stop metal-lab-lock; rm -f /var/cache/dnf/metadata_lock.pid")
    assert run.returncode != 0
    assert re.search(r"PACKAGE_MANAGER_LOCKED gpu-2: .*python3 .*sleep\(600\)", run.words)

    assert laboratory.playbook(DOCKER).returncode == 0
    assert "docker-ce-3:29.8.1-1.el10.*" in host.check_output(
        "cat /etc/dnf/plugins/versionlock.list"
    )
