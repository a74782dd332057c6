# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose driver is installed? A driver of one source gets nothing of another one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import dkms
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import fabric, origin
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.driver import (
    test_distribution,
    test_fabric,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    BROKEN,
    DONE,
    VIRGIN,
    codes,
    merge,
    names,
    record,
    repository,
    without_nulls,
)

driver = test_distribution.driver
RELEASE = "6.8.0-151-generic"
KERNEL = "6.8.0-151.151"
OF_ARCHIVE, OF_NVIDIA = "580.178.04-0ubuntu0.24.04.1", "580.178.04-1ubuntu1"
HELD = ("nvidia-headless-no-dkms-580-server-open", "nvidia-compute-utils-580-server")
MODULES = (f"linux-modules-nvidia-580-server-open-{RELEASE}",)
META = ("linux-modules-nvidia-580-server-open-generic",)
NVIDIAS = (
    *("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580"),
    *("nvidia-compute-utils-580", "nvidia-kernel-source-580-open", "nvidia-kernel-common-580"),
    *("nvidia-firmware-580", "nvidia-modprobe", "nvidia-persistenced"),
)
ENROLLED = {
    "certificate": "/var/lib/dkms/mok.pub",
    "state": "enrolled",
    "error": None,
    "private_key": "/var/lib/dkms/mok.key",
    "missing_key": None,
    "missing_certificate": None,
}
WITH_KEY = {"secure_boot": True, "driver": {"signing": ENROLLED}}
SIGNED = {"secure_boot": True, "driver": {"signing": {**ENROLLED, "state": "missing"}}}


DEBIAN_13 = {"id": "debian", "version_id": "13", "codename": "trixie"}


def ubuntu(packages: dict[str, str], kernel: dict[str, str]) -> dict[str, Any]:
    """Return a node with a driver for Ubuntu 24.04 that this role installed, less its details."""
    found = {name: {"version": one, "held": True} for name, one in packages.items()}
    meta = {name: {"version": one, "held": False} for name, one in kernel.items()}
    node = without_nulls(merge(DONE, {"packages": dict.fromkeys(DONE["packages"])}))
    node = merge(node, {"os": test_distribution.UBUNTU["os"], "secure_boot": False})
    node = merge(node, {"kernel": {"release": RELEASE}, "packages": found | meta})
    node["package_sources"] = [
        {
            **test_distribution.UBUNTU["package_sources"][0],
            "components": "main restricted multiverse",
        }
    ]
    node["pci"] = [{**gpu, "device": "2330"} for gpu in DONE["pci"]]
    node["driver"]["packages"] = {**packages, **{one: kernel[one] for one in META if one in kernel}}
    node["driver"]["flavour"] = "open"
    drop_in = "/etc/systemd/system/nvidia-persistenced.service.d/metal-gpu.conf"
    node["ours"]["files"] = [*node["ours"]["files"], drop_in]
    return node


def of_archive(*changes: dict[str, Any]) -> dict[str, Any]:
    versions = {**dict.fromkeys((*HELD, "nvidia-utils-580-server"), OF_ARCHIVE)}
    node = ubuntu(
        {**versions, **dict.fromkeys(MODULES, KERNEL)},
        dict.fromkeys((*META, "linux-image-generic"), KERNEL),
    )
    for name in MODULES:
        node["packages"][name]["held"] = False
    node["driver"]["dkms"] = VIRGIN["driver"]["dkms"]
    node["driver"]["module_files"] = ["kernel/nvidia-580srv-open/nvidia.ko"]
    noted = {**dict.fromkeys(versions, "580.*"), **dict.fromkeys((*MODULES, *META), "*")}
    node["ours"]["packages"] = record("nvidia_driver", noted)["packages"]
    return with_changes(node, changes)


def of_nvidia(*changes: dict[str, Any]) -> dict[str, Any]:
    node = ubuntu(
        dict.fromkeys(NVIDIAS, OF_NVIDIA),
        dict.fromkeys(("linux-image-generic", "linux-headers-generic"), KERNEL),
    )
    kernels = {"kernels": [RELEASE]}
    node["driver"]["dkms"] = merge(
        DONE["driver"]["dkms"], {**kernels, "builds": {"nvidia/580.178.04": kernels}}
    )
    noted = dict.fromkeys(NVIDIAS, "580.178.04-*")
    node["ours"]["packages"] = record("nvidia_driver", noted)["packages"]
    node["repositories"] = repository("nvidia-driver")
    return with_changes(node, changes)


def with_changes(node: dict[str, Any], changes: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    for one in changes:
        node = merge(node, one)
    return node


def with_manager(node: dict[str, Any], name: str, version: str) -> dict[str, Any]:
    """Return the node with NVSwitches, and with Fabric Manager that the role installed."""
    package = {name: {"version": version, "held": True}}
    found = {"packages": {name: version}, "manager": test_fabric.RUNNING, "process": True}
    node = merge(node, test_fabric.SWITCHES)
    node = merge(node, {"fabric": found, "driver": {"packages": {name: version}}})
    node = merge(node, {"packages": package})
    entry = {"version": f"{version[:10]}*", "before": None}
    node["ours"]["packages"]["nvidia_driver"]["packages"][name] = entry
    node["ours"]["files"] = [*node["ours"]["files"], fabric.DROP_IN["path"]]
    return node


@pytest.mark.parametrize(
    ("os", "packages", "expected"),
    [
        pytest.param({}, {"nvidia-driver-cuda": "580.178.04-1"}, "nvidia", id="Debian: NVIDIA's"),
        pytest.param(
            {}, {"libcuda1": "535.309.01-1~deb12u1"}, "distribution", id="Debian: its branch"
        ),
        pytest.param({}, {"libcuda1": "580.178.04-1"}, "nvidia", id="Debian: another branch"),
        pytest.param(
            DEBIAN_13, {"libcuda1": "550.163.01-2"}, "distribution", id="Debian 13: its branch"
        ),
        pytest.param(
            DEBIAN_13,
            {"libcuda1": "535.309.01-1~deb12u1"},
            "distribution",
            id="Debian 13: that of Debian 12, from before the upgrade",
        ),
        pytest.param(
            {}, {"libcuda1": "550.163.01-1"}, "nvidia", id="Debian 12: the branch of Debian 13"
        ),
        pytest.param(
            DEBIAN_13,
            {"nvidia-driver-cuda": "570.211.01-1", "libcuda1": "570.211.01-1"},
            "nvidia",
            id="Debian 13: NVIDIA's for Debian 12, from before the upgrade",
        ),
        pytest.param(
            {},
            {"nvidia-driver-cuda": "535.104.05-1", "libcuda1": "535.104.05-1"},
            "nvidia",
            id="Debian: NVIDIA's of the same branch",
        ),
        pytest.param(
            {}, {"nvidia-tesla-470-smi": "470.256.02-1"}, "distribution", id="Debian: Kepler"
        ),
        pytest.param(
            test_distribution.UBUNTU["os"],
            {"libnvidia-compute-580": "580.178.04-1ubuntu1"},
            "nvidia",
            id="Ubuntu: NVIDIA's",
        ),
        pytest.param(
            test_distribution.UBUNTU["os"],
            {"libnvidia-compute-580": "580.178.04-0ubuntu0.24.04.1"},
            "distribution",
            id="Ubuntu: its desktop driver",
        ),
        pytest.param(
            test_distribution.UBUNTU["os"],
            {"nvidia-utils-580-server": "580.178.04-1"},
            "distribution",
            id="Ubuntu: its driver for servers",
        ),
        pytest.param(
            {"family": "redhat", "id": "rocky", "version_id": "9.6"},
            {"kmod-nvidia-open-dkms": "3:580.178.04-1.el9"},
            "nvidia",
            id="Rocky Linux: NVIDIA's",
        ),
        pytest.param(
            {"family": "redhat", "id": "rocky", "version_id": "9.6"},
            {"akmod-nvidia": "3:580.178.04-1.el9"},
            "other",
            id="Rocky Linux: RPM Fusion's",
        ),
        pytest.param({}, {"nvidia-modprobe": "580.178.04-1"}, None, id="no driver"),
    ],
)
def test_packages_tell_the_source(
    os: dict[str, str], packages: dict[str, str], expected: str | None
) -> None:
    found: Any = merge(VIRGIN, {"os": os, "driver": {"packages": packages}})
    assert origin.maker(found) == expected


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(of_archive(), id="Secure Boot is off since"),
        pytest.param(of_archive(WITH_KEY), id="the key of DKMS is enrolled since"),
        pytest.param(
            with_manager(of_archive(), "nvidia-fabricmanager-580", OF_ARCHIVE), id="NVSwitches"
        ),
        pytest.param(of_nvidia(), id="NVIDIA's"),
        pytest.param(
            with_manager(of_nvidia(), "nvidia-fabricmanager", "580.178.04-1"),
            id="NVIDIA's, NVSwitches",
        ),
    ],
)
def test_auto_keeps_the_source_of_our_driver(node: dict[str, Any]) -> None:
    planned = driver(node)
    assert (planned["steps"], planned["refusals"], planned["notices"]) == ([], [], [])


@pytest.mark.parametrize(
    ("node", "wish", "expected"),
    [
        pytest.param(of_archive(), {"source": "nvidia"}, "580.178.04 of the source nvidia"),
        pytest.param(
            with_manager(of_archive(), "nvidia-fabricmanager-580", OF_ARCHIVE),
            {"source": "nvidia"},
            "580.178.04 of the source nvidia",
        ),
        pytest.param(
            of_nvidia(), {"source": "distribution"}, "of branch 580 of the source distribution"
        ),
        pytest.param(
            with_manager(of_nvidia(), "nvidia-fabricmanager", "580.178.04-1"),
            {"source": "distribution"},
            "of branch 580 of the source distribution",
        ),
        pytest.param(
            of_nvidia(), {"source": "distribution", "switch_ok": True}, "of the source distribution"
        ),
    ],
)
def test_another_source_is_a_notice_and_nothing_else(
    node: dict[str, Any], wish: dict[str, Any], expected: str
) -> None:
    planned = driver(node, **wish)
    assert (planned["steps"], planned["refusals"]) == ([], [])
    (notice,) = planned["notices"]
    assert notice["code"] == "DRIVER_KEPT"
    assert notice["message"].split(" (the role would")[0].endswith("does not update it")
    assert f"{expected})" in notice["message"]
    assert "nvidia_driver_state: absent" in notice["remedy"]


def test_a_driver_whose_key_is_not_enrolled_stays_and_both_is_reported() -> None:
    planned = driver(of_nvidia(SIGNED))
    assert (planned["steps"], planned["refusals"]) == ([], [])
    found = {one["code"]: one["message"] for one in planned["notices"]}
    assert [*found] == ["SIGNING_KEY_UNTRUSTED", "DRIVER_KEPT"]
    assert "of branch 580 of the source distribution)" in found["DRIVER_KEPT"]


def test_driver_of_the_archive_still_follows_its_kernel() -> None:
    package = "linux-modules-nvidia-580-server-open-6.8.0-160-generic"
    planned = driver(of_archive({"signed_modules": {"package": package, "error": None}}))
    assert [one["slug"] for one in planned["steps"]] == ["follow"]
    assert planned["data"]["following"] == [package]


def test_driver_of_debian_stays_debians_after_an_upgrade_of_the_system() -> None:
    """It is held, so the upgrade from 12 to 13 keeps it."""
    node = test_distribution.installed()
    for name in node["driver"]["packages"]:
        node["driver"]["packages"][name] = "535.309.01-1~deb12u1"
        node["packages"][name]["version"] = "535.309.01-1~deb12u1"
    versions = {"module_version": "535.309.01", "disk_version": "535.309.01"}
    node = merge(node, {"driver": versions, "nvml": {"driver_version": "535.309.01"}})
    (notice,) = driver(node)["notices"]
    assert notice["code"] == "DRIVER_KEPT"
    assert "(the role would install driver of branch 550)" in notice["message"]


def test_broken_driver_gets_no_packages_of_another_source() -> None:
    broken = {"nvml": {"failure": BROKEN, "devices": [], "driver_version": None}}
    node = of_archive(broken, {"driver": {"module_version": None}})
    for name in MODULES:  # as after the boot of another kernel
        del node["packages"][name], node["driver"]["packages"][name]
    planned = driver(node)
    assert codes(planned) == []
    assert MODULES[0] in planned["data"]["packages"]
    assert codes(driver(node, source="nvidia")) == ["DRIVER_BROKEN"]


def test_source_of_the_archive_is_never_built() -> None:
    """It is in /usr/src, because other packages need it. The node need not have dkms."""
    broken = {"nvml": {"failure": BROKEN, "devices": [], "driver_version": None}}
    unread = {"disk_version": None, "uvm_readable": False, "module_version": None}
    node = of_archive(broken, {"driver": unread})
    node["driver"]["dkms"] = dkms.join({}, ["nvidia-srv/580.178.04"])
    assert "build" not in [one["slug"] for one in driver(node)["steps"]]


def test_a_part_that_the_role_adds_to_the_driver_of_an_admin_is_not_held() -> None:
    """Held, it would stay behind when the admin updates the driver."""
    admins = dict.fromkeys(
        ("nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "libnvidia-cfg1"), "550.163.01-2"
    )
    libraries = {"libnvidia-ml1": "550.163.01-2"}
    node = test_distribution.installed(ours={"files": []})
    for name in {*node["packages"]}.intersection({*admins}):
        node["packages"][name]["held"] = False
    node["packages"]["libnvidia-ml1"] = {"version": "550.163.01-2", "held": False}
    node["package_manager"] |= {"automatic": [*libraries], "dependants": {}}
    node["driver"]["packages"] = {**admins, **libraries, "nvidia-persistenced": "550.163.01-1"}
    node["ours"]["packages"] = record("nvidia_driver", {"nvidia-persistenced": "550.*"})["packages"]
    planned = driver(node)
    assert names(planned) == []
    (notice,) = planned["notices"]
    assert notice["code"] == "PACKAGES_UNHELD"
    assert "libnvidia-ml1" in notice["message"]
    # Before that, while the driver was not loaded.
    del node["packages"]["nvidia-persistenced"], node["driver"]["packages"]["nvidia-persistenced"]
    node["ours"]["packages"] = {}
    node |= {"kernel": {**node["kernel"], "modules": []}}
    node["nvml"] |= {"failure": BROKEN, "devices": [], "driver_version": None}
    planned = driver(node)
    assert planned["data"]["hold"] == []
    assert [*planned["data"]["packages_record"]["packages"]] == ["nvidia-persistenced"]
