# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.tests.unit.support.observing import (
    PACKAGES,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    recording,
)

STATUS = """\
Package: nvidia-driver-cuda
Status: install ok installed
Depends: libcuda1 (>= 580), nvidia-persistenced

Package: libcuda1
Status: install ok installed
Provides: libcuda.so.1 (= 580), libcuda-13.0-1
Depends: libc6
Pre-Depends: libc6 (>= 2.36)
Description: library
 Depends: this is no field

Package: nvidia-persistenced
Status: install ok installed
Depends: libc6:any

Package: pycuda
Status: hold ok installed
Depends: libcuda-13.0-1 | libcuda.so.1

Package: gpu-app
Status: install ok installed
Pre-Depends: pycuda
Depends: libc6

Package: removed-app
Status: deinstall ok config-files
Depends: libcuda1

Package: libc6
Status: install ok installed
"""


STATES = """\
Package: libcuda1
Architecture: amd64
Auto-Installed: 1

Package: nvidia-persistenced
Architecture: amd64
Auto-Installed: 0

Package: pycuda
Architecture: i386
Auto-Installed: 1

Package: libc6
Architecture: amd64
Auto-Installed: 1
"""


RECORD = '{"version": 1, "nvidia-driver-cuda": {"version": "580.178.04-1", "before": null}}'


@pytest.mark.parametrize("record", [RECORD, None], ids=["ours", "the first run: an admin's"])
def test_packages_that_apt_would_also_remove(observe, tmp_path, record):
    """A switch removes the driver of an admin, too. The texts themselves stay on the node."""
    programs = Programs({"dpkg-query": (0, PACKAGES, "")})
    plant(tmp_path, {"/var/lib/apt/extended_states": STATES, "/var/lib/dpkg/status": STATUS})
    if record:
        plant(tmp_path, {"/var/lib/metal-gpu/packages/nvidia_driver.json": record})
    found = observe(programs)["package_manager"]
    assert found["automatic"] == ["libcuda1"]
    assert found["dependants"] == {
        "gpu-app": [["pycuda"]],
        "nvidia-driver-cuda": [["libcuda1"], ["nvidia-persistenced"]],
        "pycuda": [["libcuda1"]],
    }
    assert found["error"] is None


def test_relations_that_cannot_be_read(observe, tmp_path):
    """They are in question only if there is something to remove."""
    programs = Programs({"dpkg-query": (0, PACKAGES, "")})
    plant(tmp_path, {"/var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\n"})
    found = observe(programs)["package_manager"]
    assert (found["automatic"], found["dependants"]) == ([], {})
    plant(tmp_path, {"/var/lib/metal-gpu/packages/nvidia_driver.json": RECORD})
    status = tmp_path / "var/lib/dpkg/status"
    status.unlink()
    status.symlink_to("status")
    assert "/var/lib/dpkg/status: " in observe(programs)["package_manager"]["error"]
    plant(tmp_path, {"/var/lib/metal-gpu/packages/nvidia_driver.json": "damaged"})
    assert observe(programs)["package_manager"]["dependants"] == {}


def test_rpm_is_asked_where_there_is_no_dpkg(observe, tmp_path):
    plant(tmp_path, parse_scene(recording("nodes/rocky-9.txt")))
    programs = Programs({"rpm -qa": (0, recording("packages/rpm.txt"), "")})
    found = observe(programs, ["kmod", "nvidia-*"], ["metal-gpu-*", "docker*"])
    assert (found["os"]["id"], found["os"]["family"]) == ("rocky", "redhat")
    assert found["packages"] == {
        "kmod": {"version": "28-10.el9", "held": False},
        "nvidia-driver-cuda": {"version": "3:580.178.04-1.el9", "held": True},
    }
    assert found["driver"]["packages"] == {
        "nvidia-driver-cuda": "3:580.178.04-1.el9",
        "libnvidia-ml": "3:580.178.04-1.el9",
    }
    assert {name: source["key"] for name, source in found["repositories"].items()} == {
        "metal-gpu-nvidia-driver": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n",
        "docker-ce": None,
    }
    assert {source["path"]: source["url"] for source in found["package_sources"]} == {
        "/etc/yum.repos.d/metal-gpu-nvidia-driver.repo": "https://mirror.example/rhel9/x86_64/",
        "/etc/yum.repos.d/docker-ce.repo": (
            "https://download.docker.com/linux/centos/$releasever/$basearch/stable"
        ),
    }
    assert found["module_streams"] == {"nvidia-driver": "580-open"}
