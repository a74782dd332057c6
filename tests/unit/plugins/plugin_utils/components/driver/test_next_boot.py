# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A new driver whose reboot starts another kernel than the running one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.dkms import join
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    BROKEN,
    DONE,
    VIRGIN,
    codes,
    merge,
    plan,
)

RUNNING, NEWER = "6.1.0-26-amd64", "6.1.0-28-amd64"
EL_RUNNING, EL_NEWER = "5.14.0-503.el9.x86_64", "5.14.0-570.el9.x86_64"
URL = "https://download.example/580.178.04/NVIDIA-Linux-x86_64-580.178.04.run"
RUNFILE = {"source": "runfile", "runfile_url": URL, "runfile_sha256": "0" * 64, "version": ""}
LOG = {"log": "/var/lib/dkms/nvidia/580.178.04/build/make.log", "failed": NEWER, "error": "x"}
# The packages are there, with the module of another driver in the kernel.
REPLACED = {
    "driver": {"module_version": "570.211.01", "dkms": {"built": True, "kernels": [RUNNING]}},
    "nvml": {"failure": BROKEN, "devices": [], "driver_version": None},
}


def kernel(release: str = NEWER, *, headers: bool = False, module: bool = False) -> dict[str, Any]:
    return {"release": release, "headers": headers, "module": module}


def with_nouveau(
    newer: dict[str, Any], available: list[str] | None, *, headers: bool = True
) -> dict[str, Any]:
    changes = {
        "kernel": {"modules": ["nouveau"], "headers": headers},
        "driver": {"next_kernel": newer, "headers_available": available},
    }
    merged: dict[str, Any] = merge(VIRGIN, changes)
    return merged


def enterprise_linux(newer: dict[str, Any] | None = None) -> dict[str, Any]:
    node = with_nouveau(newer or kernel(EL_NEWER), None, headers=False)
    changes = {
        "os": {"id": "rocky", "version_id": "9.6", "codename": None, "family": "redhat"},
        "kernel": {"release": EL_RUNNING},
        "repositories": {"epel": {"path": "/x.repo", "entries": [{"enabled": "1"}]}},
    }
    merged: dict[str, Any] = merge(node, changes)
    return merged


def slugs(planned: dict[str, Any]) -> list[str]:
    return [step["slug"] for step in planned["steps"]]


def test_enterprise_linux_gets_the_headers_and_the_module_of_the_kernel_that_boots() -> None:
    planned = plan("nvidia_driver", enterprise_linux(), reboot_ok=True)
    assert codes(planned) == []
    assert planned["data"]["headers"] == [
        f"kernel-devel-matched-{EL_RUNNING}",
        f"kernel-devel-{EL_NEWER}",
    ]
    assert planned["data"]["kernels"] == [EL_RUNNING, EL_NEWER]
    found = slugs(planned)
    assert found.index("headers") < found.index("build") < found.index("reboot")
    # Without a reboot, nothing depends on the next kernel. The rpm builds the module of the running
    # one, and nobody knows whether that succeeds.
    quiet = merge(enterprise_linux(), {"kernel": {"modules": []}})
    planned = plan("nvidia_driver", quiet)
    assert (planned["data"]["kernels"], "build" in slugs(planned)) == ([EL_RUNNING], False)
    assert planned["data"]["headers"] == [f"kernel-devel-matched-{EL_RUNNING}"]


@pytest.mark.parametrize(
    ("newer", "available", "expected"),
    [
        pytest.param(kernel(), [RUNNING, NEWER], [f"linux-headers-{NEWER}"], id="in the index"),
        pytest.param(kernel(), None, [f"linux-headers-{NEWER}"], id="no index"),
        pytest.param(kernel(headers=True), [], [], id="installed"),
    ],
)
def test_debian_gets_the_headers_and_the_module_of_the_kernel_that_boots(
    newer: dict[str, Any], available: list[str] | None, expected: list[str]
) -> None:
    planned = plan("nvidia_driver", with_nouveau(newer, available), reboot_ok=True)
    assert codes(planned) == []
    wanted = [one for one in planned["data"]["packages"] if one.startswith("linux-headers-")]
    assert [one for one in wanted if NEWER in one] == expected
    assert planned["data"]["kernels"] == [NEWER]
    found = slugs(planned)
    assert found.index("install") < found.index("build") < found.index("reboot")


@pytest.mark.parametrize("desired", [{}, RUNFILE], ids=["packages", ".run file"])
def test_a_kernel_for_which_nothing_can_be_built_is_not_booted(desired: dict[str, Any]) -> None:
    node = with_nouveau(kernel(), [RUNNING])
    planned = plan("nvidia_driver", node, reboot_ok=True, **desired)
    assert (codes(planned), planned["steps"]) == (["KERNEL_HEADERS_GONE"], [])
    (refusal,) = planned["refusals"]
    assert f"the headers of kernel {NEWER}" in refusal["message"]
    assert refusal["message"].endswith(
        "this kernel boots next, and the driver needs a reboot: nouveau is loaded"
    )
    # Without a reboot, the running kernel gets the driver.
    quiet = merge(node, {"kernel": {"modules": []}})
    assert codes(plan("nvidia_driver", quiet, reboot_ok=True, **desired)) == []


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(
            enterprise_linux(),
            ["dkms", f"kernel-devel-matched-{EL_RUNNING}", f"kernel-devel-{EL_NEWER}"],
            id="Enterprise Linux",
        ),
        pytest.param(
            with_nouveau(kernel(), [RUNNING, NEWER]),
            ["dkms", "gcc", "libc6-dev", f"linux-headers-{NEWER}"],
            id="Debian",
        ),
        pytest.param(
            with_nouveau(kernel(), [NEWER], headers=False),
            ["dkms", "gcc", "libc6-dev", f"linux-headers-{NEWER}"],
            id="Debian, headers of the running kernel are gone",
        ),
        pytest.param(
            merge(with_nouveau(kernel(), [RUNNING, NEWER]), {"kernel": {"modules": []}}),
            ["dkms", "gcc", "libc6-dev", f"linux-headers-{NEWER}"],
            id="Debian, no reboot",
        ),
        pytest.param(
            with_nouveau(kernel(headers=True), []), ["dkms", "gcc", "libc6-dev"], id="installed"
        ),
    ],
)
def test_the_installer_gets_the_headers_of_the_kernel_that_boots(
    node: dict[str, Any], expected: list[str]
) -> None:
    planned = plan("nvidia_driver", node, reboot_ok=True, **RUNFILE)
    assert codes(planned) == []
    assert planned["data"]["headers"] == expected
    assert "headers" in slugs(planned)


def test_ubuntu_gets_the_signed_modules_of_the_kernel_that_boots() -> None:
    older, newer = "6.8.0-60-generic", "6.8.0-71-generic"
    changes = {
        "os": {"id": "ubuntu", "version_id": "24.04", "codename": "noble"},
        "kernel": {"release": older},
    }
    for module, expected in ((False, newer), (True, older)):
        node = merge(with_nouveau(kernel(newer, module=module), None), changes)
        planned = plan("nvidia_driver", node, source="distribution", version="", reboot_ok=True)
        found = [one for one in planned["data"]["packages"] if one.startswith("linux-modules-")]
        assert found == [f"linux-modules-nvidia-580-server-{expected}"]
    quiet = merge(node, {"kernel": {"modules": []}, "driver": {"next_kernel": kernel(newer)}})
    planned = plan("nvidia_driver", quiet, source="distribution", version="")
    assert f"linux-modules-nvidia-580-server-{older}" in planned["data"]["packages"]


@pytest.mark.parametrize(
    ("newer", "dkms", "expected"),
    [
        pytest.param(kernel(headers=True), {}, [], id="is built"),
        pytest.param(kernel(headers=True, module=True), LOG, [], id="has a module"),
        pytest.param(kernel(headers=True), LOG, ["DKMS_BUILD_FAILED"], id="build failed"),
        pytest.param(kernel(headers=True), {"sources": []}, ["DRIVER_BROKEN"], id="no source"),
        pytest.param(kernel(), {}, ["KERNEL_HEADERS_GONE"], id="no headers"),
    ],
)
def test_an_installed_driver_is_not_lost_by_its_reboot(
    newer: dict[str, Any], dkms: dict[str, Any], expected: list[str]
) -> None:
    changes = {"driver": {"next_kernel": newer, "headers_available": [], "dkms": dkms}}
    planned = plan("nvidia_driver", merge(merge(DONE, REPLACED), changes), reboot_ok=True)
    assert codes(planned) == expected
    if not expected:
        assert slugs(planned)[-2:] == ["reboot", "device_files"]
    if "DKMS_BUILD_FAILED" in expected:
        assert f"for kernel {NEWER}" in planned["refusals"][0]["message"]


@pytest.mark.parametrize(
    ("failed", "kernels", "left_out"),
    [
        pytest.param(NEWER, [RUNNING], True, id="for the next kernel, too"),
        pytest.param(NEWER, [RUNNING, NEWER], False, id="before it was built"),
        pytest.param(RUNNING, [], False, id="for the running kernel"),
    ],
)
def test_a_driver_that_failed_for_the_next_kernel_is_not_named(
    failed: str, kernels: list[str], left_out: bool
) -> None:
    """What DKMS could build for the running kernel says nothing about the next one."""
    build = {"built": True, "kernels": [RUNNING], "unfinished": []}
    former = "/var/lib/dkms/nvidia/575.57.08/build/make.log"
    builds = {
        "nvidia/580.178.04": {**build, **LOG},
        "nvidia/575.57.08": {**build, **LOG, "log": former, "failed": failed, "kernels": kernels},
    }
    changes = {"next_kernel": kernel(headers=True), "dkms": join(builds)}
    node = merge(merge(DONE, REPLACED), {"driver": changes})
    (refusal,) = plan("nvidia_driver", node, reboot_ok=True)["refusals"]
    assert refusal["code"] == "DKMS_BUILD_FAILED"
    assert ("575.57.08" not in refusal["remedy"]) == left_out
    # The same if a build for that kernel is planned and fails.
    builds["nvidia/580.178.04"] = {**builds["nvidia/580.178.04"], **dict.fromkeys(LOG)}
    planned = plan("nvidia_driver", merge(node, {"driver": {"dkms": join(builds)}}), reboot_ok=True)
    assert planned["data"]["kernels"] == [NEWER]
    assert ("575.57.08" not in planned["data"]["others"]) == left_out
