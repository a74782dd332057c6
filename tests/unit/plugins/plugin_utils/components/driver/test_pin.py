# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of preferences with which apt takes one version of everything that the driver needs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import parse_lines
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.driver import (
    test_distribution,
    test_runfile,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    BROKEN,
    DONE,
    GPU,
    OF_DRIVER,
    VIRGIN,
    codes,
    merge,
    names,
    plan,
    without_nulls,
)
from ansible_collections.metal.gpu.tests.unit.support import records

driver = test_distribution.driver
PIN, NO_PIN = "Pin the driver version", "Remove the pin of the driver version"
FILE = own_files.DRIVER_PIN
OLD = "nvidia-driver-pinning-580.178.04"
OF_BRANCH = {"driver": {"packages": {"nvidia-driver-pinning-580": "580-5"}}}
LEFT = {
    "ours": {"files": [FILE]},
    "driver": {
        "own_pin": [
            "Package: *nvidia* libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1",
            "Pin: version 570.1-*",
        ]
    },
}
SILENT = {"failure": BROKEN, "devices": []}
TURING = {"pci": [{**GPU, "device": "1eb8"}]}


@pytest.mark.parametrize(
    ("node", "wish", "expected"),
    [
        (VIRGIN, {}, "version 580.178.04-*"),
        (VIRGIN, {"version": "550.90.07"}, "version 550.90.07-*"),
        (VIRGIN, {"branch": 570}, "version 570.211.01-*"),
        (test_distribution.DEBIAN, {}, "release o=Debian,n=trixie*"),
        (merge(test_distribution.UBUNTU, {"secure_boot": False}), {}, "version 580.178.04-*"),
        (test_distribution.UBUNTU, {}, None),
        (merge(VIRGIN, {"os": {"id": "rhel", "version_id": "9.6", "family": "redhat"}}), {}, None),
    ],
    ids=["Debian", "a version", "a branch", "Debian's own", "Ubuntu", "Ubuntu's own", "RHEL"],
)
def test_each_source_has_its_pin(
    node: dict[str, Any], wish: dict[str, Any], expected: str | None
) -> None:
    planned = driver(node, **wish)
    assert (PIN in names(planned)) is (expected is not None)
    if expected:
        lines = parse_lines(planned["data"]["pin"]["block"])
        assert lines[1:] == [f"Pin: {expected}", "Pin-Priority: 999"]
        assert planned["data"]["pin"]["path"] == FILE
    assert not any("pinning" in name for name in planned["data"].get("packages", []))


@pytest.mark.parametrize("system", ["debian12", "debian13", "ubuntu2204", "ubuntu2404"])
def test_pattern_has_what_a_driver_brings(system: str) -> None:
    """NVIDIA's packages whose versions are those of the driver."""
    patterns = plan("nvidia_driver", VIRGIN)["data"]["pin"]["block"].split("\n")[0].split()[1:]
    found = {str(one) for row in records.about(system, "package") for one in row.values}
    brought = {one for one in found if "nvidia" in one or one.startswith("libcuda")}
    assert len(brought) > 5
    assert [one for one in brought if not any(fnmatchcase(one, two) for two in patterns)] == []


def test_pins_are_those_that_apt_was_asked_about() -> None:
    recorded = yaml.safe_load((ROOT / "tests" / "recorded" / "apt_pins.yml").read_text())
    planned = [driver(VIRGIN), driver(test_distribution.DEBIAN)]
    found = [parse_lines(one["data"]["pin"]["block"]) for one in planned]
    assert found == [one["lines"] for one in recorded["pins"]]


def test_repeated_run_does_not_write_it_again() -> None:
    lines = parse_lines(plan("nvidia_driver", VIRGIN)["data"]["pin"]["block"])
    node = merge(VIRGIN, {"ours": {"files": [FILE]}, "driver": {"own_pin": lines}})
    assert PIN not in names(plan("nvidia_driver", node))
    assert PIN in names(plan("nvidia_driver", merge(VIRGIN, LEFT)))


@pytest.mark.parametrize("pins", [False, True], ids=["the record says that", "a pin of NVIDIA's"])
@pytest.mark.parametrize("version", ["580.178.04", "590.48.01"], ids=["wanted", "kept"])
def test_file_that_somebody_deleted_comes_back(pins: bool, version: str) -> None:
    """That of the installed driver: an upgrade could take apart what the holds keep."""
    files = [one for one in DONE["ours"]["files"] if one != FILE]
    gone = merge(DONE, {"ours": {"files": files}, "driver": {"own_pin": []}})
    planned = plan("nvidia_driver", merge(gone, OF_BRANCH if pins else {}), version=version)
    assert names(planned) == ([] if pins else [PIN])
    assert pins or "Pin: version 580.178.04-*" in planned["data"]["pin"]["block"]
    assert PIN not in names(plan("nvidia_driver", gone, source="present"))


def test_package_that_an_earlier_version_of_the_role_installed() -> None:
    """It pins the driver as well. The teardown removes it."""
    package = {OLD: {"version": "580.178.04-1", "held": False}}
    entry = {OLD: {"version": "580.178.04-1", "before": None}}
    files = [one for one in DONE["ours"]["files"] if one != FILE]
    changes = {
        "packages": package,
        "driver": {"packages": {OLD: "580.178.04-1"}, "own_pin": []},
        "ours": {"files": files, "packages": {"nvidia_driver": {"packages": entry}}},
    }
    node = merge(DONE, changes)
    planned = plan("nvidia_driver", node)
    assert (planned["steps"], planned["refusals"], planned["notices"]) == ([], [], [])
    planned = plan("nvidia_driver", node, state="absent")
    assert OLD in planned["data"]["packages"]
    assert NO_PIN not in names(planned)
    # Its driver was removed by hand since: both name the same version.
    gone = merge(node, {"packages": {"nvidia-driver-cuda": None}, "nvml": SILENT})
    assert codes(plan("nvidia_driver", without_nulls(gone))) == []


@pytest.mark.parametrize(
    ("node", "wish", "expected"),
    [
        (merge(VIRGIN, OF_BRANCH), {}, ["DRIVER_PIN_TAKEN"]),
        (merge(test_distribution.DEBIAN, OF_BRANCH), {}, ["DRIVER_PIN_TAKEN"]),
        (merge(test_distribution.UBUNTU, OF_BRANCH), {}, []),
        (merge(VIRGIN, {"driver": {"packages": {OLD: "580.178.04-1"}}}), {}, []),
        (
            merge(VIRGIN, {"driver": {"packages": {OLD: "580.178.04-1"}}}),
            {"version": "570.211.01"},
            ["DRIVER_PIN_TAKEN"],
        ),
    ],
)
def test_pin_of_the_admin(node: dict[str, Any], wish: dict[str, Any], expected: list[str]) -> None:
    """It is stronger."""
    assert codes(driver(node, **wish)) == expected


@pytest.mark.parametrize(
    ("left", "wish", "is_refused"),
    [
        pytest.param({"firmware-nvidia-gsp": "610.57.04-1"}, {}, True, id="newer"),
        pytest.param({"firmware-nvidia-gsp": "570.211.01-1"}, {}, False, id="older"),
        pytest.param({"nvidia-kernel-common": "20240109+1"}, {}, False, id="no driver's version"),
        pytest.param({"nvidia-fabricmanager": "610.57.04-1"}, {}, False, id="beside the driver"),
    ],
)
def test_newer_parts_of_a_former_driver(
    left: dict[str, str], wish: dict[str, Any], *, is_refused: bool
) -> None:
    """apt would keep them."""
    planned = driver(merge(VIRGIN, {"driver": {"packages": left}}), **wish)
    assert ("DRIVER_PARTS_MIXED" in codes(planned)) is is_refused


def test_file_of_another_choice_goes() -> None:
    planned = driver(merge(test_distribution.UBUNTU, LEFT))
    assert NO_PIN in names(planned)
    assert names(planned).index(NO_PIN) < names(planned).index("Install the driver")
    planned = test_runfile.driver(merge(test_runfile.VIRGIN, LEFT))
    assert NO_PIN in names(planned)
    assert planned["data"]["pin"] == {"path": FILE, "block": ""}


def test_driver_of_the_admin_gets_none() -> None:
    """The admin may have taken ours over, or installed one after a run that failed."""
    gone = {"nvml": SILENT, "packages": {"nvidia-persistenced": None}}
    none = {"files": [], "packages": {"nvidia_driver": None}}
    node = without_nulls(merge(merge(DONE, gone), {"ours": none, "driver": {"own_pin": []}}))
    planned = plan("nvidia_driver", node)
    assert "Install the driver" in names(planned)
    assert PIN not in names(planned)
    newer = {"version": "580.200.01-1", "held": False}
    taken = merge(DONE, {"packages": dict.fromkeys(OF_DRIVER, newer)})
    assert names(plan("nvidia_driver", taken)) == [NO_PIN]
    assert names(plan("nvidia_driver", taken, source="present")) == [NO_PIN]


def test_headers_alone_need_none() -> None:
    bare = {"nvml": SILENT, "kernel": {"headers": False}, "driver": {"own_pin": []}}
    planned = plan("nvidia_driver", merge(DONE, bare))
    assert "Install the driver" in names(planned)
    assert PIN not in names(planned)


def test_record_is_about_packages_only() -> None:
    planned = plan("nvidia_driver", merge(VIRGIN, TURING))
    assert {*planned["data"]["packages_record"]["packages"]} == {
        "nvidia-driver-cuda",
        "nvidia-kernel-open-dkms",
        "nvidia-persistenced",
    }
