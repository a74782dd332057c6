# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module for each kernel, its signature and its parameters, and persistence mode."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import dkms
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.other_drivers import (
    other_drivers,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    BROKEN,
    DONE,
    MICROK8S,
    ROOT,
    VIRGIN,
    codes,
    merge,
    plan,
    without_nulls,
)

RUNNING, NEWER = "6.1.0-26-amd64", "6.1.0-28-amd64"
# After both, the device files can be missing, or have a wrong number.
LOADED = ("load", "device_files")
REBOOTED = ("reboot", "device_files")
LOG = "/var/lib/dkms/nvidia/580.178.04/build/make.log"
WORDS = "cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'"
UNBUILT = {
    "driver": {"dkms": {"built": False, "kernels": []}, "module_version": None},
    "kernel": {"modules": []},
    "nvml": {"failure": BROKEN, "devices": []},
}
FAILED = {"driver": {"dkms": {"log": LOG, "failed": RUNNING, "error": WORDS}}}


def kernel(*, headers: bool = False, module: bool = False) -> dict[str, Any]:
    return {"release": NEWER, "headers": headers, "module": module}


def driver(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    merged: dict[str, Any] = merge(base, {"driver": changes})
    return merged


def slugs(planned: dict[str, Any]) -> list[str]:
    return [step["slug"] for step in planned["steps"]]


def notices(planned: dict[str, Any]) -> list[str]:
    return [notice["code"] for notice in planned["notices"]]


# --- the running kernel ---------------------------------------------------------------------------


def test_a_failed_build_is_reported_with_the_words_of_the_compiler() -> None:
    node = merge(merge(DONE, UNBUILT), FAILED)
    (refusal,) = plan("nvidia_driver", node)["refusals"]
    assert refusal["code"] == "DKMS_BUILD_FAILED"
    assert refusal["message"] == (
        f"gpu-1: DKMS could not build the module of driver 580.178.04 for kernel {RUNNING}: "
        f"{WORDS}; the log is {LOG}"
    )
    assert f"`dkms install nvidia/580.178.04 -k {RUNNING}`" in refusal["remedy"]


DEBIAN_12 = {"os": {"id": "debian", "version_id": "12", "codename": "bookworm"}}
DEBIAN_13 = {"os": {"id": "debian", "version_id": "13", "codename": "trixie"}}
UBUNTU = {"os": {"id": "ubuntu", "version_id": "24.04", "codename": "noble"}}
OF_ARCHIVE = (
    "`nvidia_driver_source: distribution` and remove nvidia_driver_version, nvidia_driver_branch "
    "and nvidia_driver_flavour, for driver of branch"
)


@pytest.mark.parametrize(
    ("system", "device", "version", "expected"),
    [
        pytest.param(
            DEBIAN_12,
            "2330",
            "580.178.04",
            "set `nvidia_driver_source: nvidia` and `nvidia_driver_version: 575.57.08` (or "
            "570.211.01), recorded for NVIDIA's repository for Debian 12; or set "
            f"{OF_ARCHIVE} 535 from the archive of Debian 12",
            id="older branches only, the newest first",
        ),
        pytest.param(
            DEBIAN_12,
            "2330",
            "580.173.02",
            "set `nvidia_driver_source: nvidia` and `nvidia_driver_version: 580.178.04` (or "
            "575.57.08, 570.211.01), recorded for NVIDIA's repository for Debian 12; or set "
            f"{OF_ARCHIVE} 535 from the archive of Debian 12",
            id="another version of the same branch",
        ),
        pytest.param(
            DEBIAN_12,
            "2330",
            "535.*",
            "set `nvidia_driver_source: nvidia` and `nvidia_driver_version: 580.178.04` (or "
            "575.57.08, 570.211.01), recorded for NVIDIA's repository for Debian 12",
            id="newer branches, the long-term one first",
        ),
        pytest.param(
            UBUNTU,
            "2330",
            "590.48.01",
            f"set {OF_ARCHIVE} 580 from the archive of Ubuntu 24.04; or set `nvidia_driver_source: "
            "nvidia` and `nvidia_driver_version: 595.71.05` (or 610.57.04, 580.178.04), recorded "
            "for NVIDIA's repository for Ubuntu 24.04",
            id="newer branches before older ones",
        ),
        pytest.param(
            DEBIAN_13,
            "2330",
            "550.*",
            "set `nvidia_driver_source: nvidia` and `nvidia_driver_version: 595.71.05` (or "
            "615.71.09, 610.57.04), recorded for NVIDIA's repository for Debian 13",
            id="Debian's own on Debian 13",
        ),
        pytest.param(
            DEBIAN_13,
            "102d",
            "470.256.02",
            "set nvidia_driver_version or nvidia_driver_branch to another driver (no other one is "
            "recorded for these GPUs and this system)",
            id="K80 on Debian 13",
        ),
        pytest.param(
            UBUNTU,
            "2901",
            "580.178.04",
            f"set {OF_ARCHIVE} 580 from the archive of Ubuntu 24.04; or set `nvidia_driver_source: "
            "nvidia` and `nvidia_driver_version: 595.71.05` (or 610.57.04, 590.48.01), recorded "
            "for NVIDIA's repository for Ubuntu 24.04",
            id="Ubuntu has built its own",
        ),
        pytest.param(
            UBUNTU,
            "15f8",
            "580.173.02",
            f"set {OF_ARCHIVE} 580 from the archive of Ubuntu 24.04; or set `nvidia_driver_source: "
            "nvidia` and `nvidia_driver_version: 580.178.04`, recorded for NVIDIA's repository for "
            "Ubuntu 24.04",
            id="no branch that the GPUs do not have",
        ),
    ],
)
def test_other_drivers_for_a_node_whose_module_cannot_be_built(
    system: dict[str, Any], device: str, version: str, expected: str
) -> None:
    node: Any = merge(VIRGIN, {**system, "kernel": {"release": "6.8.0-60-generic"}})
    node["pci"] = [{**gpu, "device": device} for gpu in node["pci"]]
    assert other_drivers(node, version) == expected


def test_no_other_driver_is_named_whose_module_would_not_load() -> None:
    """Secure Boot refuses what DKMS builds, and Ubuntu has no modules for a kernel of your own."""
    changes = {**UBUNTU, "secure_boot": True, "driver": {"signing": None}}
    node: Any = merge(VIRGIN, {**changes, "kernel": {"release": "6.8.0-60-generic"}})
    signed = f"set {OF_ARCHIVE} 580 from the archive of Ubuntu 24.04"
    assert other_drivers(node, "580.178.04") == signed
    own: Any = merge(node, {"kernel": {"release": "6.8.0-60-mine"}})
    assert "no other one is recorded" in other_drivers(own, "580.178.04")


NVIDIAS_575 = "`nvidia_driver_version: 575.57.08`"
DEBIANS_535 = f"{OF_ARCHIVE} 535"


@pytest.mark.parametrize(
    ("source", "build", "left_out"),
    [
        ("nvidia/575.57.08", {"failed": RUNNING}, [NVIDIAS_575]),
        ("nvidia/575.57.08", {"failed": None}, [NVIDIAS_575]),
        ("nvidia/575.57.08", {"failed": NEWER}, []),
        ("nvidia/575.57.08", {"failed": RUNNING, "built": True, "kernels": [RUNNING]}, []),
        ("nvidia/575.57.08", {"log": None}, []),
        ("nvidia-current/535.261.03", {"failed": RUNNING}, [DEBIANS_535]),
    ],
)
def test_a_driver_that_failed_here_before_is_not_named(
    source: str, build: dict[str, Any], left_out: list[str]
) -> None:
    """Neither if DKMS has failed already, nor for a build that this run begins."""
    found = {"nvidia/580.178.04": {**LEFT, "log": LOG, "failed": RUNNING, "error": WORDS}}
    found[source] = {**LEFT, "log": OLD_LOG, **build}
    node = driver(merge(DONE, UNBUILT), dkms=dkms.join(found))
    (refusal,) = plan("nvidia_driver", node)["refusals"]
    assert refusal["code"] == "DKMS_BUILD_FAILED"
    found["nvidia/580.178.04"] = LEFT
    planned = plan("nvidia_driver", driver(merge(DONE, UNBUILT), dkms=dkms.join(found)))
    for words in (refusal["remedy"], planned["data"]["others"]):
        missing = [one for one in (NVIDIAS_575, DEBIANS_535) if one not in words]
        assert missing == left_out


def test_the_remedy_of_a_failed_build_names_other_drivers() -> None:
    (refusal,) = plan("nvidia_driver", merge(merge(DONE, UNBUILT), FAILED))["refusals"]
    assert "`nvidia_driver_version: 575.57.08`" in refusal["remedy"]
    assert refusal["remedy"].endswith("remove this one with `nvidia_driver_state: absent`")
    planned = plan("nvidia_driver", merge(DONE, UNBUILT))
    assert "`nvidia_driver_version: 575.57.08`" in planned["data"]["others"]


@pytest.mark.parametrize("failed", [None, RUNNING])
def test_a_log_without_words_is_named(failed: str | None) -> None:
    log = {"driver": {"dkms": {"log": LOG, "failed": failed, "error": None}}}
    (refusal,) = plan("nvidia_driver", merge(merge(DONE, UNBUILT), log))["refusals"]
    assert refusal["code"] == "DKMS_BUILD_FAILED"
    assert LOG in refusal["message"]


def test_a_build_that_failed_for_another_kernel_says_nothing_about_this_one() -> None:
    log = {"driver": {"dkms": {"log": LOG, "failed": "6.1.0-25-amd64", "error": WORDS}}}
    planned = plan("nvidia_driver", merge(merge(DONE, UNBUILT), log))
    assert slugs(planned) == ["build", *LOADED]
    assert planned["data"]["kernels"] == [RUNNING]


OLD_LOG = "/var/lib/dkms/nvidia/535.309.01/build/make.log"
LEFT = {
    **{"built": False, "kernels": [], "unfinished": []},
    **{"log": None, "failed": None, "error": None},
}


def beside(node: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a node on which an older driver, which is gone, has left its source in DKMS."""
    builds = {"nvidia/535.309.01": {**LEFT, **changes}, **node["driver"]["dkms"]["builds"]}
    return driver(node, dkms=dkms.join(builds))


def test_the_source_of_an_older_driver_is_never_built() -> None:
    node = driver(VIRGIN, next_kernel=kernel(), headers_available=[RUNNING, NEWER])
    planned = plan("nvidia_driver", beside(node))
    assert (codes(planned), planned["data"]["kernels"]) == ([], [NEWER])
    data = planned["data"]
    assert data["source"] is None
    assert re.match(data["source_pattern"], "nvidia/580.178.04")
    assert not re.match(data["source_pattern"], "nvidia/535.309.01")
    assert not re.match(data["source_pattern"], "nvidia/580.178.040")


def test_the_failed_build_of_an_older_driver_says_nothing_about_the_new_one() -> None:
    words = {"log": OLD_LOG, "failed": RUNNING, "error": "of the old driver"}
    unbuilt = {"nvidia/580.178.04": LEFT}
    node = merge(merge(DONE, UNBUILT), {"driver": {"dkms": {"builds": unbuilt}}})
    planned = plan("nvidia_driver", beside(node, **words))
    assert (codes(planned), slugs(planned)) == ([], ["build", *LOADED])
    # Nor about the next kernel of a driver that works, whether it is the role's or not.
    words["failed"] = NEWER
    works = beside(driver(DONE, next_kernel=kernel(headers=True)), **words)
    assert slugs(plan("nvidia_driver", works)) == ["build"]
    (notice,) = plan("nvidia_driver", works, source="present")["notices"]
    assert "of the old driver" not in notice["message"]


def test_the_module_of_an_older_driver_is_none_of_the_new_one() -> None:
    node = driver(VIRGIN, headers_available=[])
    built = {"built": True, "kernels": [RUNNING]}
    assert codes(plan("nvidia_driver", beside(node, **built))) == ["KERNEL_HEADERS_GONE"]


@pytest.mark.parametrize(
    ("changes", "rebuild"),
    [
        pytest.param({}, [], id="only not loaded"),
        pytest.param({"module_files": []}, [RUNNING], id="not installed"),
        pytest.param({"disk_version": None}, [RUNNING], id="cut off by a full disk"),
        pytest.param({"uvm_readable": False}, [RUNNING], id="nvidia_uvm is missing or cut off"),
        pytest.param({"uvm_readable": None}, [], id="modinfo does not answer"),
    ],
)
def test_a_module_that_cannot_be_used_is_built_again(
    changes: dict[str, Any], rebuild: list[str]
) -> None:
    broken = {**UNBUILT, "driver": {"module_version": None, **changes}}
    planned = plan("nvidia_driver", merge(DONE, broken))
    assert slugs(planned) == (["build", *LOADED] if rebuild else [*LOADED])
    assert planned["data"]["rebuild"] == rebuild


LOST = {
    **{"module_files": [], "disk_version": None, "uvm_readable": False, "module_version": None},
    "dkms": dkms.join({}, ["nvidia/535.309.01", "nvidia/580.178.04"]),
}


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        pytest.param({}, ["build", *LOADED], id="the entry and the module are gone"),
        pytest.param(
            {"module_files": ["kernel/nvidia.ko"], "disk_version": "580.178.04"},
            ["build", *LOADED],
            id="nvidia_uvm is gone",
        ),
        pytest.param(
            {
                **{"module_files": ["kernel/nvidia.ko"], "disk_version": "580.178.04"},
                "uvm_readable": True,
            },
            [*LOADED],
            id="modules that DKMS has not built",
        ),
    ],
)
def test_a_run_that_ended_between_the_removal_and_the_build(
    changes: dict[str, Any], steps: list[str]
) -> None:
    """`dkms remove` for the only kernel takes the source out of DKMS."""
    node = driver(merge(DONE, UNBUILT))
    node["driver"] |= {**LOST, **changes}
    planned = plan("nvidia_driver", node)
    assert (codes(planned), slugs(planned)) == ([], steps)
    built = ([RUNNING], [], "nvidia/580.178.04") if "build" in steps else ([], [], None)
    assert tuple(planned["data"][one] for one in ("kernels", "rebuild", "source")) == built


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        pytest.param({}, ["build", *LOADED], id="it can be built again"),
        pytest.param(
            LOST | {"uvm_readable": False},
            ["build", *LOADED],
            id="its entry is gone",
        ),
        pytest.param({"uvm_readable": True}, [*LOADED], id="it is only not loaded"),
        pytest.param(
            {"dkms": {"log": LOG, "failed": RUNNING}},
            [*LOADED],
            id="the build failed",
        ),
    ],
)
def test_nvidia_uvm_that_cannot_be_loaded_beside_a_driver_that_answers(
    changes: dict[str, Any], steps: list[str]
) -> None:
    """nvidia-smi does not need it. CUDA does."""
    node = merge(DONE, {"kernel": {"modules": ["nvidia"]}, "driver": {"uvm_readable": False}})
    node = driver(node, **{name: one for name, one in changes.items() if name != "dkms"})
    node["driver"]["dkms"] = {**node["driver"]["dkms"], **changes.get("dkms", {})}
    planned = plan("nvidia_driver", node)
    assert (codes(planned), slugs(planned)) == ([], steps)
    if "build" in steps:
        assert planned["data"]["kernels"] == [RUNNING]
        assert planned["data"]["source"] == "nvidia/580.178.04"


def test_no_reboot_into_a_kernel_whose_module_is_gone() -> None:
    """The driver works as long as it is loaded."""
    gone = {"module_files": [], "disk_version": None, "parameters": {"EnableStreamMemOPs": "0"}}
    node = driver(DONE, **gone)
    node["driver"]["dkms"] = {**node["driver"]["dkms"], "sources": [], "builds": {}, "built": None}
    planned = plan("nvidia_driver", node, module_parameters=WANTED, reboot_ok=True)
    assert "reboot" not in slugs(planned)
    (notice,) = [one for one in planned["notices"] if one["code"] == "PARAMETERS_PENDING"]
    assert f"kernel {RUNNING}, which boots next, has no module" in notice["message"]


def test_nvidia_uvm_of_the_admin_is_not_built() -> None:
    """A build begins with the removal of what DKMS has."""
    changes = {"kernel": {"modules": ["nvidia"]}, "ours": {"packages": {"nvidia_driver": None}}}
    node = driver(without_nulls(merge(DONE, changes)), uvm_readable=False)
    assert "build" not in slugs(plan("nvidia_driver", node))


def test_an_interrupted_build_is_removed_first() -> None:
    unfinished = {"unfinished": [RUNNING]}
    node = merge(merge(DONE, UNBUILT), {"driver": {"dkms": unfinished}})
    planned = plan("nvidia_driver", node)
    assert (slugs(planned), planned["data"]["rebuild"]) == (
        ["build", *LOADED],
        [RUNNING],
    )


def test_the_next_kernel_gets_a_module_that_can_be_read() -> None:
    """DKMS has one, and modinfo cannot read it."""
    node = driver(
        DONE, next_kernel=kernel(headers=True), dkms={"kernels": [RUNNING, NEWER], "builds": {}}
    )
    planned = plan("nvidia_driver", node)
    assert (planned["data"]["kernels"], planned["data"]["rebuild"]) == ([NEWER], [NEWER])


# --- headers that are gone ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newer", "available", "reboot_ok", "words"),
    [
        pytest.param(None, [], True, "no newer kernel is installed", id="no other kernel"),
        pytest.param(kernel(headers=True), [], None, f"kernel {NEWER} boots next", id="permission"),
        pytest.param(kernel(), [NEWER], False, f"kernel {NEWER} boots next", id="forbidden"),
        pytest.param(
            kernel(), [], True, f"kernel {NEWER} boots next, without headers", id="neither"
        ),
    ],
)
def test_headers_that_are_gone(
    newer: dict[str, Any] | None, available: list[str], reboot_ok: bool | None, words: str
) -> None:
    node = driver(VIRGIN, next_kernel=newer, headers_available=available)
    planned = plan("nvidia_driver", node, reboot_ok=reboot_ok)
    assert (codes(planned), planned["steps"]) == (["KERNEL_HEADERS_GONE"], [])
    (refusal,) = planned["refusals"]
    assert refusal["message"].endswith(f"cannot build the driver's module for it; {words}")


@pytest.mark.parametrize("headers", [False, True])
def test_the_newer_kernel_is_booted_where_permitted(headers: bool) -> None:
    node = driver(VIRGIN, next_kernel=kernel(headers=headers), headers_available=[NEWER])
    planned = plan("nvidia_driver", node, reboot_ok=True)
    assert codes(planned) == []
    after = ["modules_load", "build", "device_rule", "reboot", "device_files", "persistence"]
    assert slugs(planned)[-6:] == after
    assert planned["data"]["kernels"] == [NEWER]
    wanted = [one for one in planned["data"]["packages"] if one.startswith("linux-headers-")]
    assert wanted == ([] if headers else [f"linux-headers-{NEWER}"])
    # The role drains only nodes whose kubelet runs as kubelet.service.
    microk8s = merge(
        node, {"kubelet": {"installed": False, "endpoint": None, "distribution": MICROK8S}}
    )
    assert codes(plan("nvidia_driver", microk8s, reboot_ok=True)) == ["DISTRIBUTION_UNSUPPORTED"]


def test_a_kernel_that_the_last_boot_skipped_is_not_booted_again() -> None:
    """The boot loader has other settings, so each run would reboot the node."""
    newer = kernel(headers=True, module=True)
    node = driver(merge(DONE, UNBUILT), next_kernel=newer, headers_available=[])
    node["kernel"]["headers"] = False
    assert "reboot" in slugs(plan("nvidia_driver", node, reboot_ok=True))
    planned = plan("nvidia_driver", driver(node, next_kernel_skipped=True), reboot_ok=True)
    assert (codes(planned), planned["steps"]) == (["KERNEL_HEADERS_GONE"], [])
    assert planned["refusals"][0]["message"].endswith(
        f"kernel {NEWER} has the module, but the last boot did not start it"
    )


@pytest.mark.parametrize("available", [None, [RUNNING]], ids=["no index", "there"])
def test_headers_that_may_be_there_are_installed(available: list[str] | None) -> None:
    planned = plan("nvidia_driver", driver(VIRGIN, headers_available=available))
    assert codes(planned) == []
    assert f"linux-headers-{RUNNING}" in planned["data"]["packages"]


# --- the kernel that boots next -------------------------------------------------------------------


def test_a_new_driver_gets_a_module_for_the_next_kernel() -> None:
    available = [RUNNING, NEWER]
    node = driver(VIRGIN, next_kernel=kernel(), headers_available=available)
    planned = plan("nvidia_driver", node)
    assert {f"linux-headers-{one}" for one in available} <= {*planned["data"]["packages"]}
    assert "build" in slugs(planned)
    # The name of the source is known after the installation.
    assert (planned["data"]["kernels"], planned["data"]["source"]) == ([NEWER], None)


def test_signed_modules_are_not_built() -> None:
    ubuntu = {"id": "ubuntu", "version_id": "24.04", "codename": "noble"}
    changes = {"os": ubuntu, "secure_boot": True, "kernel": {"release": "6.8.0-60-generic"}}
    node = driver(merge(VIRGIN, changes), next_kernel=kernel(headers=True))
    planned = plan("nvidia_driver", node, version="", repository_url="")
    packages = planned["data"]["packages"]
    assert any(one.startswith("linux-modules-nvidia-580-server-6.8.0-60") for one in packages)
    assert "build" not in slugs(planned)


def test_a_build_for_the_next_kernel_that_failed_is_not_repeated() -> None:
    node = driver(merge(DONE, UNBUILT), next_kernel=kernel(headers=True))
    planned = plan("nvidia_driver", driver(node, dkms={"log": LOG, "failed": NEWER}))
    assert (codes(planned), planned["data"]["kernels"]) == ([], [RUNNING])


@pytest.mark.parametrize(
    ("changes", "steps", "why"),
    [
        pytest.param({"next_kernel": kernel(module=True)}, [], None, id="has a module"),
        pytest.param({"next_kernel": kernel(headers=True)}, ["build"], None, id="is built"),
        pytest.param({"next_kernel": kernel()}, [], "it has no headers", id="no headers"),
        pytest.param(
            {
                "next_kernel": kernel(headers=True),
                "dkms": {"log": LOG, "failed": NEWER, "error": WORDS},
            },
            [],
            f"DKMS could not build it: {WORDS}",
            id="failed",
        ),
        pytest.param(
            {"next_kernel": kernel(headers=True), "dkms": {"built": None, "sources": []}},
            [],
            "nothing on the node builds one",
            id="no DKMS",
        ),
    ],
)
def test_a_working_driver_and_the_next_kernel(
    changes: dict[str, Any], steps: list[str], why: str | None
) -> None:
    planned = plan("nvidia_driver", driver(DONE, **changes))
    assert (codes(planned), slugs(planned)) == ([], steps)
    if steps:
        wanted = {"kernels": [NEWER], "source": "nvidia/580.178.04", "version": "580.178.04"}
        assert wanted.items() <= planned["data"].items()
    assert notices(planned) == (["KERNEL_PENDING"] if why else [])
    assert all(f"({why})" in notice["message"] for notice in planned["notices"])


BY_DKMS = f"run `dkms install nvidia/580.178.04 -k {NEWER}` on the node, and run again; or boot"


@pytest.mark.parametrize("desired", [{"source": "present"}, {"version": "570.211.01"}])
def test_a_driver_that_is_left_alone_is_not_built(desired: dict[str, Any]) -> None:
    node = driver(DONE, next_kernel=kernel(headers=True))
    planned = plan("nvidia_driver", node, **desired)
    assert (planned["steps"], notices(planned)[0]) == ([], "KERNEL_PENDING")
    assert "(the role leaves this driver alone)" in planned["notices"][0]["message"]
    assert planned["notices"][0]["remedy"].startswith(BY_DKMS)


@pytest.mark.parametrize(
    ("headers", "way"),
    [(True, f"remove the cause, {BY_DKMS}"), (False, "install the headers of this kernel or")],
)
def test_what_an_admin_does_after_a_failed_build_for_the_next_kernel(
    headers: bool, way: str
) -> None:
    log = {"log": LOG, "failed": NEWER, "error": WORDS}
    node = driver(DONE, next_kernel=kernel(headers=headers), dkms=log)
    (notice,) = plan("nvidia_driver", node)["notices"]
    assert (notice["code"], notice["remedy"].startswith(way)) == ("KERNEL_PENDING", True)


# --- persistence mode -----------------------------------------------------------------------------

UNIT = "/usr/lib/systemd/system/nvidia-persistenced.service"
OF_ADMIN = "/etc/systemd/system/nvidia-persistenced.service.d/mine.conf"
DEVICE_RULE = "/etc/udev/rules.d/70-metal-gpu-device-files.rules"
DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/metal-gpu.conf"


def with_modes(*modes: bool | None, **changes: Any) -> dict[str, Any]:
    devices = [
        {**gpu, "persistence_mode": mode}
        for gpu, mode in zip(DONE["nvml"]["devices"], modes, strict=True)
    ]
    return driver({**DONE, "nvml": {**DONE["nvml"], "devices": devices}}, **changes)


@pytest.mark.parametrize(
    ("modes", "file", "reason", "has_drop_in"),
    [
        pytest.param((True, True), None, None, False, id="on"),
        pytest.param((True, None), None, None, False, id="a GPU without the mode"),
        pytest.param((True, False), None, "persistence mode is off on GPU 1", False, id="one"),
        pytest.param((False, False), None, "persistence mode is off on all GPUs", False, id="all"),
        pytest.param(
            (False, False),
            UNIT,
            f"{UNIT} has --no-persistence-mode; persistence mode is off on all GPUs",
            True,
            id="Ubuntu's unit",
        ),
        pytest.param(
            (True, True), UNIT, f"{UNIT} has --no-persistence-mode", True, id="on, until a boot"
        ),
    ],
)
def test_the_mode_is_planned(
    modes: tuple[bool | None, ...], file: str | None, reason: str | None, has_drop_in: bool
) -> None:
    planned = plan("nvidia_driver", with_modes(*modes, persistence_off=file))
    assert "; ".join(step["reason"] for step in planned["steps"]) == (reason or "")
    # A daemon that runs is not restarted: GPUs with the mode on would lose their settings.
    gpus = {"GPU-aaaa": modes[0], "GPU-bbbb": modes[1]}
    off = [name for name, mode in gpus.items() if mode is False]
    assert planned["data"]["persistence_gpus"] == off
    drop_in = planned["data"]["persistence_drop_in"]
    assert (drop_in["path"] if drop_in else None) == (DROP_IN if has_drop_in else None)


def test_our_drop_in_is_enough() -> None:
    node = with_modes(True, True, persistence_off=UNIT)
    node["ours"] = {**node["ours"], "files": [*node["ours"]["files"], DROP_IN]}
    assert plan("nvidia_driver", node)["steps"] == []


def test_what_the_admin_turned_off_stays_off() -> None:
    planned = plan("nvidia_driver", with_modes(False, False, persistence_off=OF_ADMIN))
    assert (planned["steps"], notices(planned)) == ([], ["PERSISTENCE_OFF"])
    assert OF_ADMIN in planned["notices"][0]["message"]


def test_the_mode_of_a_driver_that_is_left_alone_is_reported() -> None:
    planned = plan("nvidia_driver", with_modes(False, False), source="present")
    assert (planned["steps"], notices(planned)) == ([], ["PERSISTENCE_OFF"])


def test_without_a_daemon_the_mode_lasts_until_the_next_boot() -> None:
    daemon = {"installed": False, "enabled": False, "active": False}
    planned = plan("nvidia_driver", with_modes(False, False, persistenced=daemon))
    assert (slugs(planned), notices(planned)) == (["persistence_mode"], ["PERSISTENCE_MISSING"])
    assert planned["data"]["persistence_gpus"] == ["GPU-aaaa", "GPU-bbbb"]


def test_without_a_daemon_a_reboot_turns_the_mode_off() -> None:
    daemon = {"installed": False, "enabled": False, "active": False}
    node = driver(
        with_modes(True, None, persistenced=daemon), parameters={"EnableStreamMemOPs": "0"}
    )
    planned = plan("nvidia_driver", node, module_parameters=WANTED, reboot_ok=True)
    assert slugs(planned)[-2:] == ["device_files", "persistence_mode"]
    assert planned["data"]["persistence_gpus"] == ["GPU-aaaa"]
    waits = plan("nvidia_driver", node, module_parameters=WANTED)
    assert "persistence_mode" not in slugs(waits)
    with_daemon = driver(DONE, parameters={"EnableStreamMemOPs": "0"})
    planned = plan("nvidia_driver", with_daemon, module_parameters=WANTED, reboot_ok=True)
    assert "persistence_mode" not in slugs(planned)


def test_ubuntus_new_daemon_gets_the_drop_in_at_once() -> None:
    ubuntu = {"id": "ubuntu", "version_id": "24.04", "codename": "noble"}
    for system, path in ((ubuntu, DROP_IN), ({}, None)):
        drop_in = plan("nvidia_driver", merge(VIRGIN, {"os": system}))["data"][
            "persistence_drop_in"
        ]
        assert (drop_in["path"] if drop_in else None) == path


def test_teardown_removes_our_files_only() -> None:
    files = [*DONE["ours"]["files"], DROP_IN, "/etc/modprobe.d/metal-gpu-parameters.conf"]
    node = merge(DONE, {"ours": {"files": files}})
    removed = plan("nvidia_driver", node, state="absent")["data"]["files"]
    assert {*removed} == {one for one in files if "/mod" in one or one in (DROP_IN, DEVICE_RULE)}


# --- parameters and nvidia_peermem ----------------------------------------------------------------

RECORDED = yaml.safe_load((ROOT / "tests" / "recorded" / "parameters.yml").read_text())
WANTED = {"NVreg_EnableStreamMemOPs": 1}
LINES = [
    f"options {module} NVreg_EnableStreamMemOPs=1"
    for module in ("nvidia", "nvidia-current", "nvidia-current-open", "nvidia-tesla-470")
]


@pytest.mark.parametrize(
    ("own", "loaded", "is_new", "reboot_ok", "steps", "notice"),
    [
        pytest.param(LINES, {"EnableStreamMemOPs": "1"}, False, None, [], None, id="in force"),
        pytest.param(
            [],
            {"EnableStreamMemOPs": "0"},
            False,
            True,
            ["parameters", "initramfs", *REBOOTED],
            None,
            id="new",
        ),
        pytest.param(
            [],
            {"EnableStreamMemOPs": "0"},
            False,
            None,
            ["parameters", "initramfs"],
            "NVreg_EnableStreamMemOPs=0; they need a reboot",
            id="no permission",
        ),
        pytest.param(
            LINES,
            {"EnableStreamMemOPs": "0"},
            True,
            True,
            [*REBOOTED],
            None,
            id="cut off before",
        ),
        pytest.param(
            LINES,
            {"EnableStreamMemOPs": "0"},
            False,
            True,
            [],
            "NVreg_EnableStreamMemOPs=0; the node has rebooted since",
            id="a reboot has not helped",
        ),
        pytest.param(LINES, {}, False, True, [], None, id="not readable"),
    ],
)
def test_parameters(
    own: list[str],
    loaded: dict[str, str],
    is_new: bool,
    reboot_ok: bool | None,
    steps: list[str],
    notice: str | None,
) -> None:
    node = driver(DONE, own_parameters=own, parameters=loaded, parameters_are_new=is_new)
    planned = plan("nvidia_driver", node, module_parameters=WANTED, reboot_ok=reboot_ok)
    assert slugs(planned) == steps
    assert notices(planned) == (["PARAMETERS_PENDING"] if notice else [])
    assert all(one["message"].endswith(notice) for one in planned["notices"])


@pytest.mark.parametrize(
    ("name", "loaded", "own", "is_new", "steps", "words"),
    [
        pytest.param(
            "NVreg_Typo", {}, True, False, [], "values; the node has rebooted since", id="unknown"
        ),
        pytest.param(
            "NVreg_Typo",
            {},
            False,
            False,
            ["parameters", "initramfs"],
            "reboot applies them",
            id="new",
        ),
        pytest.param(
            "NVreg_Typo", {}, True, True, [], "the next reboot applies them", id="not rebooted yet"
        ),
        *(
            pytest.param(row["parameter"], {}, True, False, [], None, id="never shown")
            for row in RECORDED["never_shown"]
        ),
        *(
            pytest.param(row["parameter"], {}, True, True, [], "next reboot applies", id="new, too")
            for row in RECORDED["never_shown"]
        ),
        *(
            pytest.param(row["parameter"], {row["name"]: "0"}, True, True, [], None, id="renamed")
            for row in RECORDED["shown_as"]
        ),
        pytest.param(
            "NVreg_RestrictProfilingToAdminUsers",
            {"RestrictProfilingToAdminUsers": "0"},
            True,
            True,
            [],
            None,
            id="its own name",
        ),
    ],
)
def test_parameters_that_are_not_listed(
    name: str, loaded: dict[str, str], own: bool, is_new: bool, steps: list[str], words: str | None
) -> None:
    """They are no reason for a reboot."""
    lines = [line.replace("NVreg_EnableStreamMemOPs=1", f"{name}=0") for line in LINES]
    node = driver(
        DONE,
        own_parameters=lines if own else [],
        parameters={"EnableMSI": "1", **loaded},
        parameters_are_new=is_new,
    )
    planned = plan("nvidia_driver", node, module_parameters={name: 0}, reboot_ok=True)
    assert slugs(planned) == steps
    assert notices(planned) == (["PARAMETERS_UNKNOWN"] if words else [])
    assert all(words in one["message"] for one in planned["notices"] if words)


def test_another_name_is_compared() -> None:
    wanted = {"NVreg_RestrictProfilingToAdminUsers": 0}
    node = driver(DONE, parameters={"RmProfilingAdminOnly": "1"})
    planned = plan("nvidia_driver", node, module_parameters=wanted, reboot_ok=True)
    assert slugs(planned) == ["parameters", "initramfs", *REBOOTED]


SIGNED = f"linux-modules-nvidia-580-server-{NEWER}"


@pytest.mark.parametrize(
    ("newer", "signed", "desired", "notice", "steps"),
    [
        pytest.param(kernel(), None, {}, "KERNEL_PENDING", [], id="nothing to build with"),
        pytest.param(
            kernel(headers=True), None, {"version": "570.211.01"}, "KERNEL_PENDING", [], id="kept"
        ),
        pytest.param(
            kernel(),
            {"package": SIGNED, "error": "needs 580.179"},
            {},
            "KERNEL_WITHOUT_MODULES",
            [],
            id="signed modules, missing",
        ),
        pytest.param(kernel(headers=True), None, {}, None, ["build", *REBOOTED], id="is built"),
        pytest.param(kernel(module=True), None, {}, None, [*REBOOTED], id="is there"),
        pytest.param(
            kernel(),
            {"package": SIGNED, "error": None},
            {},
            None,
            ["follow", *REBOOTED],
            id="signed modules",
        ),
    ],
)
def test_parameters_do_not_cost_the_gpus(
    newer: dict[str, Any],
    signed: dict[str, Any] | None,
    desired: dict[str, Any],
    notice: str | None,
    steps: list[str],
) -> None:
    """A reboot starts the newest kernel, and that one needs the module."""
    base = {**DONE, "signed_modules": signed}
    node = driver(base, next_kernel=newer, parameters={"EnableStreamMemOPs": "0"})
    wanted = {"module_parameters": WANTED, "reboot_ok": True, **desired}
    planned = plan("nvidia_driver", node, **wanted)
    assert {*slugs(planned)} == {"parameters", "initramfs", *steps}
    found = [one for one in planned["notices"] if one["code"] != "DRIVER_KEPT"]
    assert {one["code"] for one in found} == ({"PARAMETERS_PENDING", notice} if notice else set())
    for one in found:
        if one["code"] == "PARAMETERS_PENDING":
            assert one["message"].endswith(
                f"they need a reboot, and kernel {NEWER}, which boots next, has no module of the "
                "driver"
            )


def test_parameters_that_are_equal_in_another_form() -> None:
    wanted = {
        "NVreg_A": -1,
        "NVreg_B": "0x10",
        "NVreg_C": True,
        "NVreg_D": "A=1;B=2",
        "NVreg_E": "0660",
    }
    loaded = {"A": "4294967295", "B": "16", "C": "1", "D": "A=1;B=2", "E": "432"}
    planned = plan("nvidia_driver", driver(DONE, parameters=loaded), module_parameters=wanted)
    assert notices(planned) == []


def test_parameters_that_nobody_wants_any_more() -> None:
    planned = plan("nvidia_driver", driver(DONE, own_parameters=LINES))
    assert slugs(planned) == ["parameters", "initramfs"]
    assert planned["data"]["parameters"]["block"] == ""


def test_dracut_is_called_as_recorded() -> None:
    record = yaml.safe_load((ROOT / "tests" / "recorded" / "ramdisk.yml").read_text())
    options = [row["options"] for row in record["calls"] if row["program"] == "dracut"]
    node = driver(DONE, initramfs_outdated=True, initramfs_program="/usr/bin/dracut")
    planned = plan("nvidia_driver", node)
    assert all(planned["data"]["initramfs"] == ["/usr/bin/dracut", *one] for one in options)


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("/usr/sbin/update-initramfs", ["-u", "-k", "all"]),
        ("/usr/bin/dracut", ["--regenerate-all", "--force"]),
        (None, None),
    ],
    ids=["initramfs-tools", "dracut", "neither"],
)
def test_what_rebuilds_the_initial_ramdisk(
    state: str, path: str | None, arguments: list[str] | None
) -> None:
    """A Debian with dracut has no update-initramfs. Nothing is skipped without a word."""
    node = driver(DONE, initramfs_outdated=True, initramfs_program=path)
    planned = plan("nvidia_driver", node, state=state)
    if path and arguments:
        assert (codes(planned), planned["data"]["initramfs"]) == ([], [path, *arguments])
        assert "initramfs" in slugs(planned)
    else:
        assert codes(planned) == ["INITRAMFS_PROGRAM_MISSING"]
    without = driver(DONE, initramfs_outdated=None, initramfs_program=None)
    planned = plan("nvidia_driver", without, state=state)
    assert (codes(planned), "initramfs" in slugs(planned)) == ([], False)


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize(("free", "refused"), [(40, ["BOOT_FULL"]), (41, []), (None, [])])
def test_no_ramdisk_is_rebuilt_in_a_full_boot(free: Any, refused: list[str], state: str) -> None:
    space = None if free is None else {"free": free * 2**20, "needed": 41 * 2**20}
    node = driver(DONE, initramfs_outdated=True)
    node["driver"]["ramdisk_space"] = space
    planned = plan("nvidia_driver", node, state=state)
    assert codes(planned) == refused
    assert all("40 MiB free, less than the 41 MiB" in one["message"] for one in planned["refusals"])
    current = {**node["driver"], "initramfs_outdated": False}
    assert codes(plan("nvidia_driver", {**node, "driver": current})) == []


def test_parameters_without_an_initramfs_or_with_one_to_rebuild() -> None:
    without = driver(DONE, initramfs_outdated=None)
    assert slugs(plan("nvidia_driver", without, module_parameters=WANTED)) == ["parameters"]
    # Once, also if the blacklist needs it, or if a run was cut off after the file.
    found = slugs(plan("nvidia_driver", VIRGIN, module_parameters=WANTED))
    assert found.count("initramfs") == 1
    cut_off = driver(DONE, own_parameters=LINES, initramfs_outdated=True)
    assert slugs(plan("nvidia_driver", cut_off, module_parameters=WANTED)) == ["initramfs"]


@pytest.mark.parametrize("wanted", [{"modeset": 1}, {"NVreg_A": "1 install x"}, {"NVreg_A": ""}])
def test_parameters_that_are_none(wanted: dict[str, Any]) -> None:
    for node in (VIRGIN, DONE):
        assert codes(plan("nvidia_driver", node, module_parameters=wanted)) == ["VARIABLE_INVALID"]


def test_peermem() -> None:
    modules = ["nvidia", "nvidia_uvm", "nvidia_peermem"]
    for node in (VIRGIN, DONE):
        planned = plan("nvidia_driver", node, peermem=True)
        assert slugs(planned)[-1] == "peermem"
        assert planned["data"]["load"] == ["nvidia", "nvidia_uvm"]
        assert "nvidia_peermem" not in planned["data"]["modules_load"]["block"]
        assert "nvidia_peermem\n" in planned["data"]["peermem"]["block"]
    loaded = merge(DONE, {"kernel": {"modules": modules}})
    named = driver(loaded, own_modules=modules, modules_load=modules)
    assert plan("nvidia_driver", named, peermem=True)["steps"] == []
    assert slugs(plan("nvidia_driver", loaded, peermem=True)) == ["peermem"]
    # Our file lost a module: nvidia_peermem stays in it.
    partly = driver(loaded, own_modules=modules[1:], modules_load=modules[1:])
    planned = plan("nvidia_driver", partly, peermem=True)
    assert slugs(planned) == ["modules_load"]
    assert "nvidia_peermem\n" in planned["data"]["modules_load"]["block"]
    planned = plan("nvidia_driver", driver(DONE, peermem=False), peermem=True)
    assert (planned["steps"], notices(planned)) == ([], ["PEERMEM_MISSING"])
    # And back: only our file names it.
    planned = plan("nvidia_driver", driver(DONE, own_modules=modules, modules_load=modules))
    assert slugs(planned) == ["modules_load"]
    assert "nvidia_peermem" not in planned["data"]["modules_load"]["block"]
