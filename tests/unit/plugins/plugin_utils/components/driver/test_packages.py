# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What no golden text shows: other branches, and what is in the way on Red Hat's distributions."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import (
    PACKAGE_PATTERNS,
    is_driver_package,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    packages as driver_packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    plan as plan_nvidia_driver,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import steps
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import is_version
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    ObservedRepository,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import find
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    CHOICES,
    VIRGIN,
    codes,
    merge,
    names,
)

ROCKY = {
    "os": {"id": "rocky", "version_id": "9.4", "family": "redhat", "codename": None},
    "packages": {"dkms": {"version": "3.1.0-1.el9", "held": False}},
}
EPEL_FILE = "/etc/yum.repos.d/epel.repo"
EPEL = ObservedRepository.parse(EPEL_FILE, "[epel]\nmetalink=x\n", None)._asdict()
EPEL_OFF = ObservedRepository.parse(EPEL_FILE, "[epel]\nenabled=0\n", None)._asdict()


def plan(changes: dict[str, Any], **desired: Any) -> dict[str, Any]:
    desired = {**CHOICES["nvidia_driver"], **desired}
    return plan_nvidia_driver.plan(merge(merge(VIRGIN, ROCKY), changes), desired)


@pytest.mark.parametrize(
    ("id_", "version_id", "version", "flavour", "expected"),
    [
        pytest.param("debian", "12", "595.71.05", "open", "nvidia-kernel-open-dkms", id="debian"),
        pytest.param("ubuntu", "22.04", "570.211.01", "open", "nvidia-dkms-570-open", id="570"),
        pytest.param("ubuntu", "24.04", "590.48.01", "open", "nvidia-dkms-open", id="renamed"),
        pytest.param("ubuntu", "26.04", "595.71.05", "proprietary", "nvidia-dkms", id="closed"),
        pytest.param("ubuntu", "26.04", "580.178.04", "open", None, id="ubuntu, not there"),
        pytest.param("rhel", "9.6", "595.71.05", "open", "kmod-nvidia-open-dkms", id="rhel"),
        pytest.param(
            "rhel", "9.6", "580.178.04", "proprietary", "kmod-nvidia-latest-dkms", id="proprietary"
        ),
    ],
)
def test_kernel_package(
    id_: str, version_id: str, version: str, flavour: str, expected: str | None
) -> None:
    system = find({"id": id_, "version_id": version_id})
    assert system
    chosen = driver_packages.choose(system, version, flavour)
    assert (chosen is None) is (expected is None)
    assert chosen is None or expected in chosen.packages


@pytest.mark.parametrize(
    ("version", "found"),
    [
        pytest.param("580.105.08", "580.105.08-0ubuntu1", id="0ubuntu1"),
        pytest.param("580.178.04", "580.178.04-1ubuntu1", id="1ubuntu1"),
    ],
)
def test_revision_on_ubuntu_is_open(version: str, found: str) -> None:
    """A version of the user may have another revision than the default's."""
    system = find({"id": "ubuntu", "version_id": "22.04"})
    assert system
    chosen = driver_packages.choose(system, version, "open")
    assert chosen
    assert all(is_version(found, desired) for desired in chosen.packages.values())
    assert not any(is_version("580.65.06-0ubuntu1", one) for one in chosen.packages.values())


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("580.178.04", True, id="a package of its own"),
        pytest.param("570.211.01", False, id="not recorded"),
    ],
)
def test_persistence_daemon_on_ubuntu_is_named(version: str, expected: bool) -> None:
    """Without its name, nobody would hold or remove it; the others accept a newer one."""
    system = find({"id": "ubuntu", "version_id": "24.04"})
    assert system
    chosen = driver_packages.choose(system, version, "proprietary")
    assert chosen
    assert ("nvidia-persistenced" in chosen.packages) is expected


UBUNTU = {
    "os": {"id": "ubuntu", "version_id": "22.04", "family": "debian", "codename": "jammy"},
    "kernel": {"release": "6.8.0-60-generic", "compiler": "gcc-12", "headers": True},
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="kernel 6.8"),
        pytest.param({"kernel": {"compiler": "gcc-11"}}, False, id="kernel 5.15"),
        pytest.param({"kernel": {"compiler": None}}, False, id="unknown"),
        pytest.param(
            {"packages": {"gcc-12": {"version": "12.3.0-1ubuntu1~22.04", "held": False}}},
            False,
            id="installed",
        ),
        pytest.param({"os": {"version_id": "24.04"}}, False, id="another release"),
    ],
)
def test_compiler_of_the_kernel(changes: dict[str, Any], expected: bool) -> None:
    node = merge(merge(VIRGIN, UBUNTU), changes)
    planned = plan_nvidia_driver.plan(node, CHOICES["nvidia_driver"])
    (reason,) = (one["reason"] for one in planned["steps"] if one["slug"] == "install")
    assert ("gcc-12" in planned["data"]["packages"]) is expected
    assert ("not installed: gcc-12" in reason) is expected
    assert "gcc-12" not in planned["data"]["hold"]
    assert "gcc-12" not in planned["data"]["packages_record"]["packages"]


def test_signed_modules_need_no_compiler() -> None:
    desired = {**CHOICES["nvidia_driver"], "source": "distribution"}
    planned = plan_nvidia_driver.plan(merge(VIRGIN, UBUNTU), desired)
    assert "linux-modules-nvidia-580-server-6.8.0-60-generic" in planned["data"]["packages"]
    assert "gcc-12" not in planned["data"]["packages"]


CARRIERS = [
    # real/debian13, debian12, ubuntu2204, ubuntu2404 and rhel9: what apt and dnf listed
    *("libcuda1", "libnvidia-ml1", "nvidia-smi", "nvidia-driver-cuda", "nvidia-kernel-dkms"),
    *("nvidia-kernel-open-dkms", "libnvidia-compute-580", "libnvidia-compute", "nvidia-utils-580"),
    *("nvidia-dkms-580", "nvidia-dkms-580-open", "nvidia-dkms", "nvidia-dkms-open"),
    *("libnvidia-ml", "nvidia-driver-cuda-libs", "kmod-nvidia-open-dkms"),
    *("kmod-nvidia-latest-dkms", "linux-modules-nvidia-580-server-generic"),
    # of the distributions' archives
    *("nvidia-open-kernel-dkms", "nvidia-utils-535-server", "nvidia-tesla-535-kernel-dkms"),
    *("libnvidia-tesla-535-ml1", "libnvidia-legacy-390xx-cuda1"),
    # conflicts of NVIDIA/yum-packaging-nvidia-driver; dkms-nvidia is from negativo17
    *("kmod-nvidia", "kmod-nvidia-470xx", "nvidia-x11-drv", "nvidia-x11-drv-470xx-libs"),
    *("akmod-nvidia", "xorg-x11-drv-nvidia-cuda", "xorg-x11-drv-nvidia-470xx-cuda-libs"),
    "dkms-nvidia",
]
HELPERS = [
    *("nvidia-kernel-common", "nvidia-kernel-common-580", "nvidia-kernel-support"),
    *("nvidia-modprobe", "nvidia-persistenced", "nvidia-settings", "nvidia-alternative"),
    *("nvidia-support", "nvidia-installer-cleanup", "nvidia-legacy-check", "firmware-nvidia-gsp"),
    *("nvidia-firmware-580", "nvidia-driver-pinning-580.178.04", "nvidia-kmod-common"),
    *("libnvidia-cfg1", "libnvidia-egl-gbm1", "dnf-plugin-nvidia", "nvidia-fabricmanager"),
    *("xorg-x11-drv-nvidia", "nvidia-fs-dkms"),
]


def test_node_info_observes_every_driver_package() -> None:
    for name in CARRIERS:
        assert is_driver_package(name), name
        assert any(fnmatchcase(name, pattern) for pattern in PACKAGE_PATTERNS), name


def test_headers_are_installed_before_the_driver() -> None:
    """NVIDIA's rpm package ignores a failed build."""
    planned = plan({})
    titles = names(planned)
    assert titles.index(steps.HEADERS.title) < titles.index(steps.OURS.install.title)
    assert planned["data"]["headers"] == ["kernel-devel-matched-6.1.0-26-amd64"]
    assert not any("devel" in name for name in planned["data"]["packages"])


def test_what_dkms_needs_stays_in_its_version() -> None:
    found = {"kernel-devel-matched": {"version": "5.14.0-611.5.1.el9_7", "held": False}}
    planned = plan({"packages": found})
    assert planned["data"]["headers"] == ["kernel-devel-6.1.0-26-amd64"]


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        # dkms would take it from the newest kernel, and a part of that kernel with it.
        pytest.param([], ["kernel-devel-matched-6.1.0-26-amd64"], id="headers alone"),
        pytest.param(["kernel-devel-matched"], [], id="what dkms needs"),
        pytest.param(["dkms"], [], id="dkms"),
    ],
)
def test_what_dkms_needs_is_of_the_running_kernel(packages: list[str], expected: list[str]) -> None:
    found = {name: {"version": "1", "held": False} for name in packages}
    node = merge(merge(VIRGIN, ROCKY), {"kernel": {"headers": True}})
    planned = plan_nvidia_driver.plan(
        {**node, "packages": found, "repositories": {"epel": EPEL}}, CHOICES["nvidia_driver"]
    )
    assert planned["data"]["headers"] == expected
    assert (steps.HEADERS.title in names(planned)) is bool(expected)


def test_what_makes_a_driver() -> None:
    packages = dict.fromkeys([*CARRIERS, *HELPERS], "1")
    assert list(driver_packages.carriers(packages)) == CARRIERS


@pytest.mark.parametrize(
    ("version_id", "flavour", "stream"),
    [
        ("9.6", "open", "580-open"),
        ("9.6", "proprietary", "580-dkms"),
        ("10.1", "open", None),
    ],
)
def test_stream_of_the_branch(version_id: str, flavour: str, stream: str | None) -> None:
    system = find({"id": "almalinux", "version_id": version_id})
    assert system
    chosen = driver_packages.choose(system, "580.178.04", flavour)
    assert chosen
    assert chosen.stream == stream


@pytest.mark.parametrize(
    ("changes", "desired", "expected"),
    [
        pytest.param({}, {}, [], id="dkms is there"),
        pytest.param({"packages": {"dkms": None}}, {}, ["EPEL_MISSING"], id="no dkms, no EPEL"),
        pytest.param(
            {"packages": {"dkms": None}, "repositories": {"epel": EPEL}}, {}, [], id="EPEL"
        ),
        pytest.param(
            {
                "packages": {"dkms": None},
                "repositories": {"epel": EPEL_OFF},
            },
            {},
            ["EPEL_MISSING"],
            id="EPEL, off",
        ),
        pytest.param({"module_streams": {"nvidia-driver": "580-dkms"}}, {}, [], id="stream"),
        pytest.param(
            {"module_streams": {"nvidia-driver": "latest-dkms"}},
            {},
            ["MODULE_STREAM_TAKEN"],
            id="another stream",
        ),
        pytest.param(
            {"os": {"version_id": "10.1"}},
            {"repository_fingerprint": ""},
            ["KEY_UNKNOWN"],
            id="nobody knows the key",
        ),
        pytest.param({"os": {"version_id": "10.1"}}, {}, [], id="somebody knows the key"),
        pytest.param(
            {"os": {"id": "ubuntu", "version_id": "26.04", "family": "debian"}},
            {},
            ["DRIVER_PACKAGES_UNKNOWN"],
            id="Ubuntu 26.04, a branch that it never had",
        ),
        pytest.param({"os": {"version_id": "8.10"}}, {}, ["OS_UNSUPPORTED"], id="EL 8"),
    ],
)
def test_refusals(changes: dict[str, Any], desired: dict[str, Any], expected: list[str]) -> None:
    node = merge(merge(VIRGIN, ROCKY), changes)
    node["packages"] = {name: found for name, found in node["packages"].items() if found}
    desired = {**CHOICES["nvidia_driver"], **desired}
    assert codes(plan_nvidia_driver.plan(node, desired)) == expected


def test_stream_that_is_enabled_is_no_step() -> None:
    streams = {"module_streams": {"nvidia-driver": "580-dkms"}}
    assert steps.STREAM.title in names(plan({}))
    assert steps.STREAM.title not in names(plan(streams))


def test_ubuntus_own_driver_is_kept() -> None:
    """It works: then it does not matter that nobody knows NVIDIA's packages for this system."""
    changes = {
        "os": {"id": "ubuntu", "version_id": "26.04", "family": "debian"},
        "driver": {"packages": {"nvidia-utils-595": "595.84-0ubuntu0.26.04.1"}},
        "packages": {"nvidia-utils-595": {"version": "595.84-0ubuntu0.26.04.1", "held": False}},
        "nvml": {"failure": None, "driver_version": "595.84"},
    }
    planned = plan(changes)
    assert (planned["steps"], planned["refusals"]) == ([], [])
    assert [notice["code"] for notice in planned["notices"]] == ["PACKAGES_UNHELD", "DRIVER_KEPT"]
