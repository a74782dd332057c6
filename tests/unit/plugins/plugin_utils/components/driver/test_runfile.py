# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's `.run` file: its options by version, what prevents it, and the plans with it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import runfile
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.runfile import (
    Place,
    RunFile,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import OBSERVED
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    BROKEN,
    DONE,
    GPU,
    ROOT,
    VIRGIN,
    codes,
    merge,
    names,
    plan,
    without_nulls,
)

URL = "https://download.example/580.178.04/NVIDIA-Linux-x86_64-580.178.04.run"
SUM = "0123456789abcdef" * 4
COMMON = ["--silent", "--accept-license", "--no-opengl-files", "--no-install-compat32-libs"]
ROOM = Place(51200, True, [])
RECORD = "/var/lib/metal-gpu/packages/nvidia_driver.json"

RECORDED = yaml.safe_load((ROOT / "tests" / "recorded" / "runfile.yml").read_text())
NEEDED = [row["package"] for row in RECORDED["needs"]]
# The version that brought an option.
SINCE = {f"--{row['name']}": row["since"] for row in RECORDED["options"]}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (URL, RunFile("x86_64", "580.178.04")),
        ("/srv/NVIDIA-Linux-x86_64-390.25.run", RunFile("x86_64", "390.25")),
        ("file:///srv/NVIDIA-Linux-aarch64-580.95.05.run?a=b", RunFile("aarch64", "580.95.05")),
        ("http://x/NVIDIA-Linux-x86_64-610.43.02-no-compat32.run", RunFile("x86_64", "610.43.02")),
        ("http://x/NVIDIA-Linux-x86-390.25.run", RunFile("x86", "390.25")),
        ("http://x/driver.run", RunFile(None, None)),
        ("", RunFile(None, None)),
    ],
)
def test_name(url: str, expected: RunFile) -> None:
    assert runfile.parse_name(url) == expected


@pytest.mark.parametrize(
    ("version", "flavour", "expected"),
    [
        ("390.25", "proprietary", []),
        ("418.226.00", "proprietary", []),
        ("470.256.02", "proprietary", []),
        ("535.309.01", "proprietary", []),
        ("535.309.01", "open", ["--kernel-module-build-directory=kernel-open"]),
        ("550.163.01", "open", ["--kernel-module-build-directory=kernel-open"]),
        ("555.42.02", "open", ["--kernel-module-type=open"]),
        ("580.178.04", "open", ["--kernel-module-type=open"]),
        ("580.178.04", "proprietary", ["--kernel-module-type=proprietary"]),
        ("620.10", "open", []),
    ],
)
def test_options(version: str, flavour: str, expected: list[str]) -> None:
    found = runfile.options(version, flavour)
    assert found == [*COMMON, "--dkms", *expected]
    assert runfile.options(version, flavour, has_dkms=False) == [*COMMON, *expected]
    for option in found:
        assert numbers(SINCE[option.partition("=")[0]]) <= numbers(version)


def numbers(version: str) -> list[int]:
    return [int(one) for one in version.split(".")]


def test_space_is_enough_for_the_recorded_size() -> None:
    (row,) = RECORDED["sizes"]
    assert 4 * row["bytes"] < runfile.NEEDED_MIB * 2**20


@pytest.mark.parametrize(
    ("url", "version", "place", "expected"),
    [
        (URL, "580.178.04", ROOM, []),
        (URL, "580.178.04", Place(None, None, []), []),
        (
            URL.replace("x86_64", "aarch64"),
            "580.95.05",
            Place(900, False, [":0", ":1"]),
            [
                "it is for aarch64, and the node is x86_64",
                "it has driver 580.178.04, and nvidia_driver_version is 580.95.05",
                "/var/lib has 900 MiB free, and it needs 3072",
                "/var/lib is mounted with noexec",
                "an X server runs (display :0, :1)",
            ],
        ),
        (
            "/x/NVIDIA-Linux-x86_64-340.108.run",
            "340.108",
            ROOM,
            ["the options of installers before branch 390 are not recorded"],
        ),
    ],
)
def test_problems(url: str, version: str, place: Place, expected: list[str]) -> None:
    assert runfile.problems(url, version, place) == expected


# --- plans ----------------------------------------------------------------------------------------


def driver(node: dict[str, Any], **desired: Any) -> dict[str, Any]:
    wish = {"source": "runfile", "version": "", "runfile_url": URL, "runfile_sha256": SUM}
    return plan("nvidia_driver", node, **{**wish, **desired})


def installer(version: str | None = "580.178.04", **more: Any) -> dict[str, Any]:
    return {"installer": {"version": version, "uninstaller": version is not None, **more}}


def by_runfile(*, ours: bool = True, **changes: Any) -> dict[str, Any]:
    """Return a node with a working driver of a `.run` file."""
    node = without_nulls(
        merge(DONE, {"packages": dict.fromkeys(DONE["packages"]), "driver": installer()})
    )
    node["packages"] = {}
    node["driver"] |= {"packages": {}, "own_pin": []}
    node["ours"]["files"] = [one for one in node["ours"]["files"] if "preferences" not in one]
    node["driver"]["persistenced"] = {"installed": False, "enabled": False, "active": False}
    node["package_manager"] |= {"automatic": [], "dependants": {}}
    entry = {".run": {"version": "580.178.04", "before": None}}
    found = {"path": RECORD, "packages": entry, "error": None}
    theirs: dict[str, Any] = {"packages": {}, "files": []}
    node["ours"] |= {"packages": {"nvidia_driver": found}} if ours else theirs
    return merge(node, changes)


INSTALLED = [
    "Install the headers of the kernel",
    "Block the nouveau module",
    "Rebuild the initramfs",
    "Create the device files for CUDA at boot",
    "Install the driver from the .run file",
    "Load the NVIDIA modules at boot",
    "Load the NVIDIA modules",
    "Create the device files for CUDA now",
    "Turn on persistence mode",
]


def test_virgin_node() -> None:
    planned = driver(VIRGIN)
    assert codes(planned) == []
    assert names(planned) == INSTALLED
    data = planned["data"]
    assert data["arguments"] == [*COMMON, "--dkms", "--kernel-module-type=proprietary"]
    assert data["headers"] == ["dkms", "gcc", "libc6-dev", "linux-headers-6.1.0-26-amd64"]
    assert {"dkms", "gcc", "libc6-dev"} <= {*OBSERVED["packages"]}
    assert data["runfile_record"] == {
        "path": RECORD,
        "packages": {".run": {"version": "580.178.04", "before": None}},
    }
    # The address can have a password.
    assert "download.example" not in str(planned)


def test_renamed_file_of_2018() -> None:
    node = merge(VIRGIN, {"packages": {"dkms": {"version": "3", "held": False}}})
    planned = driver(node, runfile_url="/srv/driver.run", version="390.25")
    assert planned["data"]["arguments"] == [*COMMON, "--dkms"]
    assert planned["data"]["headers"] == [*NEEDED, "linux-headers-6.1.0-26-amd64"]
    has_compiler = {name: {"version": "12", "held": False} for name in NEEDED}
    again = driver(merge(node, {"packages": has_compiler}), version="390.25")
    assert again["data"]["headers"] == ["linux-headers-6.1.0-26-amd64"]


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        pytest.param({"runfile_url": "", "runfile_sha256": ""}, ["url", "sha256"], id="nothing"),
        pytest.param({"runfile_sha256": SUM[:40]}, ["sha256"], id="a SHA-1"),
        pytest.param({"runfile_sha256": f"sha256:{SUM}"}, ["sha256"], id="with a prefix"),
        pytest.param({"runfile_sha256": "x" * 64}, ["sha256"], id="no number"),
        pytest.param({"runfile_url": "https://u:p4ss@h/d.run"}, ["version"], id="no version"),
    ],
)
def test_variables_that_cannot_be_used(desired: dict[str, Any], expected: list[str]) -> None:
    refusals = driver(VIRGIN, **desired)["refusals"]
    assert [one["code"] for one in refusals] == ["VARIABLE_INVALID"] * len(expected)
    for one, name in zip(refusals, expected, strict=True):
        assert f"{name} is " in one["message"]
    assert "p4ss" not in str(refusals)


@pytest.mark.parametrize(
    ("changes", "desired", "expected"),
    [
        pytest.param({"secure_boot": True}, {}, ["SECURE_BOOT_ON"], id="Secure Boot"),
        pytest.param(
            {"pci": [{**GPU, "device": "2901"}]},
            {"runfile_url": URL.replace("580.178.04", "550.163.01")},
            ["GPU_UNSUPPORTED_BY_DRIVER"],
            id="Blackwell",
        ),
        pytest.param({}, {"flavour": "open"}, ["FLAVOUR_UNSUPPORTED"], id="flavour"),
        pytest.param(
            {"kernel": {"modules": ["nouveau"]}, "driver": installer(None, free_mib=10)},
            {"version": "580.95.05"},
            ["RUNFILE_UNSUITABLE", "NOUVEAU_LOADED"],
            id="every reason at once",
        ),
        pytest.param(
            {"driver": installer(None, stops=True)},
            {},
            ["RUNFILE_UNSUITABLE"],
            id="what packages of a driver have left",
        ),
        pytest.param(
            {"driver": installer("550.1"), "nvml": {"failure": BROKEN}},
            {},
            ["DRIVER_FROM_ELSEWHERE"],
            id="another .run file, broken",
        ),
        pytest.param(
            {"driver": {"packages": {"libcuda1": "550.1-1"}}, "nvml": {"failure": BROKEN}},
            {},
            ["DRIVER_BROKEN"],
            id="packages, broken",
        ),
        pytest.param(
            {},
            {"runfile_url": "https://u:p/a#b@h/x.run", "version": "580.1"},
            ["URL_INVALID"],
            id="password with a #",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], desired: dict[str, Any], expected: list[str]) -> None:
    assert codes(driver(merge(VIRGIN, changes), **desired)) == expected


def test_reboot_comes_before_the_installer() -> None:
    node = merge(VIRGIN, {"kernel": {"modules": ["nouveau"]}})
    found = names(driver(node, reboot_ok=True))
    reboot = found.index("Reboot into the NVIDIA driver")
    assert reboot < found.index("Install the driver from the .run file")
    assert "Load the NVIDIA modules" in found


def test_second_run_is_empty() -> None:
    planned = driver(by_runfile())
    assert (planned["steps"], planned["refusals"]) == ([], [])
    assert [one["code"] for one in planned["notices"]] == ["PERSISTENCE_MISSING"]
    notices = driver(by_runfile(ours=False))["notices"]
    assert [one["code"] for one in notices] == ["DRIVER_WITHOUT_PACKAGE", "PERSISTENCE_MISSING"]


def test_interrupted_after_the_installer() -> None:
    missing = {"code": "not_loaded", "exit_code": 9, "message": "x"}
    changes = {
        "nvml": {"failure": missing, "devices": [], "driver_version": None},
        "kernel": {"modules": []},
        "driver": {"modules_load": [], "module_version": None},
    }
    assert names(driver(by_runfile(**changes))) == [
        "Load the NVIDIA modules at boot",
        "Load the NVIDIA modules",
        "Create the device files for CUDA now",
        "Turn on persistence mode",
    ]
    unbuilt = {"dkms": {"built": False, "log": None, "sources": ["nvidia/580.178.04"]}}
    again = by_runfile(**merge(changes, {"driver": unbuilt}))
    assert names(driver(again))[:2] == [
        "Install the headers of the kernel",
        "Build the kernel module",
    ]


def test_another_source_stays_without_permission() -> None:
    planned = driver(DONE)
    assert (planned["steps"], planned["refusals"]) == ([], [])
    (notice,) = [one for one in planned["notices"] if one["code"] == "DRIVER_KEPT"]
    assert "580.178.04 of the source runfile" in notice["message"]
    planned = driver(by_runfile(), source="nvidia")
    assert planned["steps"] == []
    # `auto` takes what is there, and never switches.
    assert driver(by_runfile(), source="auto", switch_ok=True)["steps"] == []


def test_packages_go_before_the_run_file() -> None:
    planned = driver(DONE, switch_ok=True)
    assert codes(planned) == []
    assert names(planned) == [
        "Stop the persistence daemon",
        "Unload the NVIDIA modules",
        "Remove the driver",
        "Remove the pin of the driver version",
        "Delete the record of the driver packages",
        "Install the headers of the kernel",
        "Install the driver from the .run file",
        "Load the NVIDIA modules",
        "Create the device files for CUDA now",
        "Turn on persistence mode",
    ]
    assert planned["data"]["former"] == [
        "libcuda1",
        "nvidia-driver-cuda",
        "nvidia-kernel-dkms",
        "nvidia-persistenced",
    ]
    assert planned["data"]["former_purged"] is True


def test_what_dnf_removes_with_the_driver_is_installed_again() -> None:
    """Source: clean_requirements_on_remove in dnf.conf(5)."""
    release = "5.14.0-570.el9.x86_64"
    node = of_admin(
        os={"id": "rocky", "version_id": "9.6", "family": "redhat"},
        kernel={"release": release, "headers": True},
        packages={
            name: {"version": "1", "held": False} for name in ("dkms", "kernel-devel-matched")
        },
        repositories={
            "epel": {"path": "/etc/yum.repos.d/epel.repo", "entries": [{"enabled": "1"}]}
        },
    )
    planned = driver(node, switch_ok=True)
    assert codes(planned) == []
    assert planned["data"]["headers"] == ["dkms", f"kernel-devel-matched-{release}"]


BESIDE = {
    "nvidia-fs-dkms": "2.26.6-1",
    "nvidia-imex": "570.211.01-1",
    "nvidia-mig-manager": "0.12.3-1",
    "libnvidia-nscq": "570.211.01-1",
}


def of_admin(**more: Any) -> dict[str, Any]:
    """Return a node with packages of an admin's driver, and with others of NVIDIA's."""
    names = ("libcuda1", "nvidia-kernel-open-dkms", "libnvidia-cfg1", "nvidia-driver-cuda")
    found = {**dict.fromkeys(names, "570.211.01-1"), "nvidia-kernel-common": "20240109+1", **BESIDE}
    node = without_nulls(merge(DONE, {"packages": dict.fromkeys(DONE["packages"])}))
    node["packages"] = {name: {"version": one, "held": False} for name, one in found.items()}
    node["driver"]["packages"] = found
    node["ours"] |= {"packages": {}, "files": []}
    node["package_manager"] |= {"automatic": ["nvidia-kernel-common"], "dependants": {}}
    return merge(node, more)


def test_packages_take_their_veto_along() -> None:
    assert codes(driver(merge(DONE, {"driver": installer(None, stops=True)}), switch_ok=True)) == []


def test_what_is_no_driver_stays_with_a_switch() -> None:
    planned = driver(of_admin(), switch_ok=True)
    assert codes(planned) == []
    assert planned["data"]["former"] == [
        "libcuda1",
        "libnvidia-cfg1",
        "nvidia-driver-cuda",
        "nvidia-kernel-common",
        "nvidia-kernel-open-dkms",
    ]
    assert planned["data"]["former_purged"] is False
    (notice,) = [one for one in planned["notices"] if one["code"] == "DRIVER_PACKAGES_KEPT"]
    assert all(name in notice["message"] for name in BESIDE)


def test_what_needs_the_admins_driver_is_never_removed_with_it() -> None:
    needs = {"nvidia-imex": [["libcuda1"]]}
    node = of_admin(package_manager={"dependants": needs})
    assert codes(driver(node, switch_ok=True)) == ["PACKAGES_NEEDED"]


def test_run_file_goes_before_packages() -> None:
    planned = driver(by_runfile(), source="nvidia", switch_ok=True)
    assert codes(planned) == []
    found = names(planned)
    assert found[:4] == [
        "Turn off persistence mode",
        "Unload the NVIDIA modules",
        "Uninstall the driver of the .run file",
        "Delete the record of the driver packages",
    ]
    assert "Install the driver" in found
    assert found[-3:] == [
        "Load the NVIDIA modules",
        "Create the device files for CUDA now",
        "Start the persistence daemon",
    ]


def test_admins_driver_goes_only_with_permission() -> None:
    admins = by_runfile(ours=False)
    assert driver(admins, source="nvidia")["steps"] == []
    assert "Uninstall the driver of the .run file" in names(
        driver(admins, source="nvidia", switch_ok=True)
    )


def test_teardown_uninstalls_only_our_own() -> None:
    planned = driver(by_runfile(), state="absent")
    assert names(planned) == [
        "Turn off persistence mode",
        "Unload the NVIDIA modules",
        "Uninstall the driver of the .run file",
        "Remove the module configuration of the driver",
        "Rebuild the initramfs",
        "Delete the record of the driver packages",
    ]
    planned = driver(by_runfile(ours=False), state="absent")
    assert "Uninstall the driver of the .run file" not in names(planned)
    assert "DRIVER_OF_ADMIN" in [one["code"] for one in planned["notices"]]
    # An admin has installed another version since.
    changed = merge(by_runfile(), {"driver": installer("595.71.05")})
    assert "Uninstall the driver of the .run file" not in names(driver(changed, state="absent"))
