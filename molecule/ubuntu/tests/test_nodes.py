# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real Ubuntu: signed modules with Secure Boot on gpu-1, NVIDIA's repository on gpu-2 and gpu-3.

gpu-3 has Ubuntu 22.04 and a kernel that gcc-12 built. The other two have Ubuntu 24.04.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SCENARIO = Path(__file__).parent.parent
DOCKER = str(SCENARIO.parent / "redhat" / "docker.yml")
CUDA = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RELEASE = "6.8.0-151-generic"
ARCHIVE = "580.178.04-0ubuntu0.24.04.1"
DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/metal-gpu.conf"
OF_ROLES = re.compile(r"^(?:Inst|Remv) ((?:lib)?nvidia\S*|linux-\S*nvidia\S*|docker-ce\S*)", re.M)


def modes(laboratory, node):
    query = "nvidia-smi --query-gpu=persistence_mode --format=csv,noheader"
    return laboratory.host(node).check_output(query).split()


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert {host for host, _step in check.announced} == {"gpu-1", "gpu-2", "gpu-3"}
    assert check.announced == converge.announced
    assert check.announced <= converge.ran


def test_driver_sees_every_gpu(laboratory, node):
    uuids = UUID.findall(laboratory.host(node).check_output("nvidia-smi -L"))
    assert len(set(uuids)) == laboratory.gpu_count[node]


def test_modules_that_ubuntu_signed_load_with_secure_boot(laboratory):
    """The kernel's meta package has its counterpart, so an upgrade brings the next modules."""
    host = laboratory.host("gpu-1")
    assert host.package("nvidia-headless-no-dkms-580-server-open").version == ARCHIVE
    assert host.package(f"linux-modules-nvidia-580-server-open-{RELEASE}").is_installed
    assert host.package("linux-modules-nvidia-580-server-open-generic").is_installed
    assert not host.package("dkms").is_installed
    held = host.check_output("apt-mark showhold").split()
    assert {"nvidia-utils-580-server", "nvidia-compute-utils-580-server"} <= {*held}
    assert not [name for name in held if name.startswith("linux-")]


def test_driver_of_nvidia_is_pinned_and_built(laboratory):
    """Ubuntu's component restricted is not needed for it, so nothing adds it."""
    host = laboratory.host("gpu-2")
    assert host.package("nvidia-dkms-580").version == "580.178.04-1ubuntu1"
    pin = host.file("/etc/apt/preferences.d/metal-gpu-nvidia-driver.pref")
    assert "Pin: version 580.178.04-*" in pin.content_string
    assert "restricted" not in host.check_output("cat /etc/apt/sources.list.d/*")


def test_compiler_of_the_kernel_is_installed_before_the_driver(laboratory):
    host = laboratory.host("gpu-3")
    assert host.package("gcc-12").is_installed
    log = host.check_output("grep ' installed ' /var/log/dpkg.log")
    compiler = re.search(r"^(\S+ \S+) status installed gcc-12:", log, re.M)
    built = re.search(r"^(\S+ \S+) status installed nvidia-dkms-580", log, re.M)
    assert compiler[1] <= built[1]
    assert host.package("linux-headers-generic-hwe-22.04").is_installed


def test_default_compiler_could_not_have_built_the_module(laboratory):
    host = laboratory.host("gpu-3")
    compiler = "/usr/bin/x86_64-linux-gnu-gcc-12"
    host.check_output(f"mv {compiler} /run/compiler")
    build = host.run("/var/lib/dpkg/info/nvidia-dkms-580-open.postinst configure")
    host.check_output(f"mv /run/compiler {compiler}")
    assert build.rc == 10
    log = host.check_output(
        "cat /var/lib/dkms/nvidia/*/build/make.log && rm -r /var/lib/dkms/nvidia"
        " && rmdir /var/lib/dkms"  # the node did not have it
    )
    assert "-ftrivial-auto-var-init=zero" in log


def test_persistence_mode_is_on(laboratory, node):
    assert modes(laboratory, node) == ["Enabled"] * laboratory.gpu_count[node]


def test_unit_of_ubuntu_would_leave_persistence_mode_off(laboratory):
    host = laboratory.host("gpu-1")
    assert host.run("systemctl is-enabled nvidia-persistenced").stdout.strip() == "static"
    unit = host.check_output("systemctl cat nvidia-persistenced")
    assert "--no-persistence-mode" in unit
    assert "StopWhenUnneeded=true" in unit
    assert DROP_IN in unit


def test_persistence_mode_and_gpus_come_back_after_a_boot(laboratory):
    laboratory.reboot("gpu-1")
    now = laboratory.host("gpu-1").check_output("cat /proc/sys/kernel/random/boot_id")
    known = f"--for=jsonpath={{.status.nodeInfo.bootID}}={now}"
    laboratory.kubectl("wait", "node/gpu-1", known, "--timeout=60s")
    run = laboratory.playbook("metal.gpu.verify", "-e", "metal_gpu_hosts=gpu-1")
    assert re.search(r"gpu-1 .*?(\s+4){5}\s+4/4\s+ok\b", run.output)
    assert modes(laboratory, "gpu-1") == ["Enabled"] * 4


def test_api_server_counts_every_gpu(laboratory):
    status = laboratory.objects("node", "gpu-1")["status"]
    assert status["allocatable"]["nvidia.com/gpu"] == str(laboratory.gpu_count["gpu-1"])
    assert laboratory.pulled("gpu-1", "k8s-device-plugin")


@pytest.mark.parametrize(
    ("name", "release"), [("gpu-2", "ubuntu.24.04~noble"), ("gpu-3", "ubuntu.22.04~jammy")]
)
def test_docker_run_has_gpus(laboratory, name, release):
    host = laboratory.host(name)
    assert host.package("docker-ce").version == f"5:29.8.1-1~{release}"
    run = "docker run --rm --pull always --gpus all --entrypoint nvidia-smi"
    seen = host.check_output(f"{run} %s -L", CUDA)
    assert len(set(UUID.findall(seen))) == laboratory.gpu_count[name]
    assert laboratory.pulled(name, "nvidia/cuda")


def test_update_of_the_system_leaves_what_the_roles_installed(laboratory, node):
    """The repositories have newer versions. Unattended upgrades stay on for the rest."""
    host = laboratory.host(node)
    offered = host.check_output("apt-cache policy nvidia-container-toolkit libnvidia-compute-580")
    assert "1.99.0" in offered
    assert OF_ROLES.findall(host.check_output("apt-get --simulate dist-upgrade")) == []
    planned = host.check_output("unattended-upgrade --dry-run --verbose 2>&1")
    codename = host.check_output(". /etc/os-release && echo $VERSION_CODENAME")
    assert f"Allowed origins are: o=Ubuntu,a={codename}" in planned
    assert not re.search(r"Packages that will be upgraded:.*nvidia", planned)


@pytest.mark.parametrize(
    ("name", "options", "hosts"),
    [
        pytest.param("metal.gpu.site", ("-e", "metal_gpu_hosts=gpu-1"), ["gpu-1"], id="site"),
        pytest.param(DOCKER, (), ["gpu-2", "gpu-3"], id="roles"),
    ],
)
def test_second_run_changes_nothing_and_is_cheap(laboratory, name, options, hosts):
    run = laboratory.playbook(name, "-vvv", *options)
    assert run.returncode == 0
    for host in hosts:
        assert host in run.unchanged
        assert run.operations()[laboratory.addresses[host]] == 1
