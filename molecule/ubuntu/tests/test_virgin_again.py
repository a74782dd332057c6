# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ubuntu's driver on gpu-2, whose P100 need the proprietary module, while kernels come and go.

Its archive first has no modules of the running kernel for its driver. Then it is that of an earlier
day, and then the newest one. The tests need their order. The file name makes pytest run them after
the teardown.
"""

from __future__ import annotations

import re
from pathlib import Path

import footprint
import pytest

SCENARIO = Path(__file__).parent.parent
DRIVER = str(SCENARIO / "driver.yml")
OLDER, NEWER = "6.8.0-138-generic", "6.8.0-151-generic"
SOURCES = "/etc/apt/sources.list.d/ubuntu.sources"
ALL = "/run/all.sources"
OURS = "/etc/apt/sources.list.d/metal-gpu-nvidia-driver.sources"


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-2")


def boot(laboratory, release):
    laboratory.lab("fault", "gpu-2", "boot-kernel", release)
    laboratory.reboot("gpu-2")
    assert laboratory.host("gpu-2").check_output("uname -r") == release


def gpus(host):
    return len(host.check_output("nvidia-smi -L").splitlines())


@pytest.fixture(scope="module")
def former(laboratory):
    """What gpu-2 has with the older kernel, before any run here."""
    host = laboratory.host("gpu-2")
    host.check_output("apt-get update -q && apt-get install -q -y linux-image-6.8.0-138-generic")
    boot(laboratory, OLDER)
    return footprint.take(laboratory.name)["nodes"]["gpu-2"]


def test_modules_of_another_driver_are_not_installed(laboratory, gpu, former):
    """apt would install them, because only the open modules' package has an upper limit."""
    apt = f"apt-get -q -o Dir::Etc::sourceparts=- -o Dir::Etc::sourcelist={ALL}"
    gpu.check_output("sed 's/main universe/main restricted universe/' %s > %s", SOURCES, ALL)
    gpu.check_output(f"{apt} update")
    names = f"nvidia-headless-no-dkms-580-server linux-modules-nvidia-580-server-{OLDER}"
    simulated = gpu.check_output(f"{apt} --simulate install {names}")
    assert f"Inst linux-modules-nvidia-580-server-{OLDER} (6.8.0-138.138" in simulated
    assert "Inst nvidia-kernel-common-580-server (580.178.04-" in simulated
    gpu.check_output("rm %s; apt-get -q update", ALL)

    words = "was built for driver 580.173.02, and the driver is 580.178.04"
    for options in (("--check",), ()):
        run = laboratory.playbook(DRIVER, *options)
        assert run.returncode != 0
        assert "KERNEL_OUTDATED gpu-2: " in run.words
        assert words in run.words
    assert "nvidia" not in gpu.check_output("dpkg --get-selections; lsmod")


def test_archive_that_has_the_modules(laboratory, gpu):
    """The admin's sources lack the component, so the role adds it in a file of its own."""
    gpu.check_output("sed -i 's|/ubuntu/|/ubuntu-earlier/|' %s", SOURCES)
    gpu.check_output("rm -rf /var/lib/apt/lists/*")
    run = laboratory.playbook(DRIVER)
    assert run.returncode == 0
    assert gpus(gpu) == 4
    assert gpu.check_output("cat /sys/module/nvidia/version") == "580.173.02"
    assert gpu.file("/etc/default/linux-modules-nvidia").contains("latelink=true")
    assert "Components: restricted" in gpu.check_output("cat %s", OURS)
    assert gpu.file(SOURCES).contains("Components: main universe")
    assert "gpu-2" in laboratory.playbook(DRIVER).unchanged


# An older version of a package of the archive, and a setting of many admins.
OUTDATED = """
mkdir -p /tmp/old/DEBIAN
printf '%s\\n' 'Package: binutils' 'Version: 2.40-1' 'Architecture: amd64' \\
  'Maintainer: x <x@y.invalid>' 'Description: x' > /tmp/old/DEBIAN/control
dpkg-deb --build /tmp/old /tmp/old.deb && dpkg --install /tmp/old.deb
rm -r /tmp/old /tmp/old.deb
echo 'Unattended-Upgrade::Allowed-Origins:: "${distro_id}:${distro_codename}-updates";' \\
  > /etc/apt/apt.conf.d/60-updates
"""


def test_unattended_upgrades_leave_the_held_driver_alone(laboratory, gpu):
    """The archive moves on to a newer driver, and has a newer version of something else."""
    gpu.check_output("sed -i 's|/ubuntu-earlier/|/ubuntu/|' %s %s", SOURCES, OURS)
    gpu.check_output(OUTDATED)
    gpu.check_output("apt-get -q update")
    offered = gpu.check_output("apt-cache policy nvidia-utils-580-server")
    assert re.search(r"Candidate: 580[.]178[.]04-.*noble-updates/restricted", offered, re.S)
    said = gpu.check_output("unattended-upgrade --verbose 2>&1")
    gpu.check_output("rm /etc/apt/apt.conf.d/60-updates")
    assert "Package nvidia-utils-580-server is marked to be held back" in said
    assert gpu.package("binutils").version.startswith("2.42-")
    assert gpu.package("nvidia-utils-580-server").version.startswith("580.173.02-")
    assert gpus(gpu) == 4


def test_newer_kernel_without_modules_for_the_held_driver(laboratory, gpu):
    """The hold resists, and the next kernel has no modules."""
    gpu.check_output("apt-get -q -y dist-upgrade")
    assert gpu.package("nvidia-utils-580-server").version.startswith("580.173.02-")
    assert gpus(gpu) == 4
    run = laboratory.playbook(DRIVER)
    assert "gpu-2" in run.unchanged
    assert re.search(rf"KERNEL_WITHOUT_MODULES gpu-2: .*{NEWER}", run.words)


@pytest.fixture
def slow_daemon(gpu):
    """The persistence daemon takes seconds to start, as on a machine with many GPUs.

    A rule of udev starts it when the module is loaded, so the role finds it starting.
    """
    folder = "/run/systemd/system/nvidia-persistenced.service.d"
    words = "[Service]\\nExecStartPre=/usr/bin/sleep 5\\n"
    gpu.check_output(f"mkdir -p {folder} && printf '{words}' > {folder}/slow.conf")
    gpu.check_output("systemctl daemon-reload")
    yield
    gpu.check_output(f"rm -r {folder} && systemctl daemon-reload")


def test_driver_is_updated_for_the_kernel_that_runs(laboratory, gpu, request):
    boot(laboratory, NEWER)
    request.getfixturevalue("slow_daemon")  # a boot empties /run
    assert gpu.run("nvidia-smi").rc != 0
    run = laboratory.playbook(DRIVER)
    assert run.returncode == 0
    assert gpus(gpu) == 4
    assert gpu.check_output("cat /sys/module/nvidia/version") == "580.178.04"
    assert gpu.package("nvidia-utils-580-server").version.startswith("580.178.04-")
    assert "nvidia-utils-580-server" in gpu.check_output("apt-mark showhold").split()
    assert "gpu-2" in laboratory.playbook(DRIVER).unchanged


def test_teardown_leaves_no_trace(laboratory, gpu, former):
    assert laboratory.playbook(DRIVER, "-e", "nvidia_driver_state=absent").returncode == 0
    after = footprint.take(laboratory.name)["nodes"]["gpu-2"]
    found = footprint.differences(former, after)
    assert [one for one in found if "nvidia" in one or "metal-gpu" in one] == []
