# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files in /dev: loading a module creates none, so the role does, now and at each boot."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.device_files import (
    RULE_FILE,
    UVM,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.driver import (
    test_distribution,
    test_redhat,
    test_runfile,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    ROOT,
    VIRGIN,
    merge,
    names,
    plan,
    without_nulls,
)

BOTH = ["device_rule", "device_files"]
RULE = RULE_FILE["path"]
ADMINS = merge(DONE, {"ours": {"packages": {"nvidia_driver": None}, "files": []}})
RECORDED = yaml.safe_load((ROOT / "tests" / "recorded" / "device_files.yml").read_text())
UBUNTU = merge(test_distribution.UBUNTU, {"secure_boot": False})


def planned_of(planned: dict[str, Any]) -> list[str]:
    """Return which of the two steps a plan has."""
    assert planned["refusals"] == []
    return [one["slug"] for one in planned["steps"] if one["slug"] in BOTH]


def driver(node: dict[str, Any], **desired: Any) -> dict[str, Any]:
    return test_distribution.driver(node, **desired)


def lacking(node: dict[str, Any], *, rule: bool = False, file: bool = False) -> dict[str, Any]:
    """Return a node without our rule, or without the file for CUDA."""
    files = [one for one in node["device_files"] if not (file and one["path"] == UVM)]
    ours = [one for one in node["ours"]["files"] if not (rule and one == RULE)]
    return {**node, "device_files": files, "ours": {**node["ours"], "files": ours}}


def test_rule_creates_what_is_recorded() -> None:
    """Each command is a recorded one. They come after modprobe, which waits for the module."""
    block = RULE_FILE["block"].replace("\\\n", "")
    commands = re.findall(r'RUN\+="([^"]*)"', block)
    assert commands[0] == "/sbin/modprobe nvidia_uvm"
    (modprobe,) = (row for row in RECORDED["programs"] if row["program"] == "modprobe")
    assert modprobe["waits"]
    files = {
        file
        for row in RECORDED["programs"]
        if any(row["program"].replace("-c N", "-c 255") in one for one in commands)
        for file in row["files"]
    }
    assert {"/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiaN"} <= files
    # udev takes a single $ for one of its own substitutions.
    assert "$" not in block.replace("$$", "")
    assert block.count("\n") == 1


def test_virgin_node_gets_the_rule_and_the_files() -> None:
    planned = plan("nvidia_driver", VIRGIN)
    found = [step["slug"] for step in planned["steps"]]
    start = found.index("device_rule")
    assert [one for one in found[start:] if one in (*BOTH, "load")] == [BOTH[0], "load", BOTH[1]]
    assert planned["data"]["device_rule"] == RULE_FILE


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(DONE, [], id="all there"),
        pytest.param(lacking(DONE, file=True), ["device_files"], id="no file"),
        pytest.param(lacking(DONE, rule=True), ["device_rule"], id="no rule"),
        pytest.param(
            merge(DONE, {"driver": {"own_device_rule": ["of an older version"]}}),
            ["device_rule"],
            id="another text",
        ),
        pytest.param(
            {**DONE, "device_majors": {"nvidia": 195, "nvidia-uvm": 509}},
            ["device_files"],
            id="another number of uvm",
        ),
        pytest.param(
            {**DONE, "device_majors": {"nvidia": 196, "nvidia-uvm": 510}},
            ["device_files"],
            id="another number of the GPUs",
        ),
    ],
)
def test_working_driver_of_ours(node: dict[str, Any], expected: list[str]) -> None:
    planned = plan("nvidia_driver", node)
    assert [step["slug"] for step in planned["steps"]] == expected


@pytest.mark.parametrize(
    ("node", "desired"),
    [
        pytest.param(
            lacking(ADMINS, file=True),
            {},
            id="driver of the admin",
        ),
        pytest.param(lacking(DONE, file=True), {"source": "present"}, id="source present"),
        pytest.param(lacking(DONE, file=True), {"version": "570.211.01"}, id="other version"),
        pytest.param(
            lacking(test_runfile.by_runfile(ours=False), rule=True, file=True),
            {"source": "runfile", "runfile_url": test_runfile.URL},
            id="run file of the admin",
        ),
    ],
)
def test_driver_that_the_role_leaves_alone(node: dict[str, Any], desired: dict[str, Any]) -> None:
    assert planned_of(plan("nvidia_driver", without_nulls(node), **desired)) == []


def test_rule_comes_before_a_reboot_and_the_files_after_it() -> None:
    """The file is there now, but no boot creates it."""
    node = merge(lacking(DONE, rule=True), {"driver": {"parameters": {"EnableMSI": "0"}}})
    wanted = {"module_parameters": {"NVreg_EnableMSI": "1"}, "reboot_ok": True}
    found = [step["slug"] for step in plan("nvidia_driver", node, **wanted)["steps"]]
    assert found[-3:] == ["device_rule", "reboot", "device_files"]


OBSTACLE = {"path": UVM, "type": "directory"}


def blocked(node: dict[str, Any]) -> dict[str, Any]:
    return {**lacking(node, file=True), "device_obstacles": [OBSTACLE]}


def test_reasons_name_the_file_and_both_numbers() -> None:
    (step,) = plan("nvidia_driver", {**DONE, "device_majors": {"nvidia-uvm": 509}})["steps"]
    assert step["reason"] == f"{UVM} has the major number 510, and the driver has 509"
    (step,) = plan("nvidia_driver", merge(DONE, {"driver": {"own_device_rule": []}}))["steps"]
    assert step["reason"] == f"{RULE} has another text than this role writes"


CAP = {"path": "/dev/nvidia-caps/nvidia-cap1", "major": 300, "minor": 1, "mode": "0444"}
MODPROBE = ["nvidia-modprobe", "-c", "0", "-u"]


def test_each_outdated_file_is_corrected_by_its_own_command() -> None:
    node = {**DONE, "device_files": [*DONE["device_files"], {**CAP, "linked": False}]}
    planned = plan("nvidia_driver", {**node, "device_majors": {"nvidia-caps": 236}})
    (step,) = planned["steps"]
    assert step["reason"] == f"{CAP['path']} has the major number 300, and the driver has 236"
    assert planned["data"]["device_commands"] == [
        ["nvidia-modprobe", "-f", "/proc/driver/nvidia/capabilities/mig/config"]
    ]
    of_instance = {**CAP, "path": "/dev/nvidia-caps/nvidia-cap12", "linked": False}
    node = {**DONE, "device_files": [*DONE["device_files"], of_instance]}
    assert plan("nvidia_driver", {**node, "device_majors": {"nvidia-caps": 236}})["steps"] == []

    planned = plan("nvidia_driver", {**node, "device_majors": {"nvidia": 196}})
    assert planned["data"]["device_commands"] == [
        ["nvidia-modprobe", "-c", number] for number in ("0", "1", "255")
    ]
    planned = plan("nvidia_driver", lacking(node, file=True))
    assert planned["data"]["device_commands"] == [MODPROBE]


def test_boot_starts_without_outdated_files() -> None:
    node = merge(DONE, {"driver": {"parameters": {"EnableMSI": "0"}}})
    node = {**node, "device_majors": {"nvidia": 196}}
    wanted = {"module_parameters": {"NVreg_EnableMSI": "1"}, "reboot_ok": True}
    planned = plan("nvidia_driver", node, **wanted)
    assert planned["steps"][-1]["reason"] == f"{UVM} is that of the modules that are loaded now"
    assert planned["data"]["device_commands"] == [MODPROBE]


@pytest.mark.parametrize("name", ["nvidia7", "nvidia-uvm-tools"])
def test_what_no_gpu_of_the_node_needs_is_left_alone(name: str) -> None:
    stray = {"path": f"/dev/{name}", "type": "directory"}
    for node in (VIRGIN, DONE):
        assert plan("nvidia_driver", {**node, "device_obstacles": [stray]}) == plan(
            "nvidia_driver", node
        )


@pytest.mark.parametrize("node", [VIRGIN, DONE], ids=["no driver", "driver"])
def test_role_removes_nothing_from_the_place_of_a_file(node: dict[str, Any]) -> None:
    planned = plan("nvidia_driver", blocked(node))
    assert planned["steps"] == []
    (found,) = planned["refusals"]
    assert found["code"] == "DEVICE_FILE_BLOCKED"
    assert f"{UVM} is a directory" in found["message"]
    assert f"`rmdir {UVM}`" in found["remedy"]


def test_boot_removes_what_stands_in_the_place_of_a_file() -> None:
    node = merge(blocked(DONE), {"driver": {"parameters": {"EnableMSI": "0"}}})
    wanted = {"module_parameters": {"NVreg_EnableMSI": "1"}, "reboot_ok": True}
    planned = plan("nvidia_driver", node, **wanted)
    assert planned["refusals"] == []
    assert [step["slug"] for step in planned["steps"]][-2:] == ["reboot", "device_files"]


def test_driver_of_the_admin_is_left_alone_behind_an_obstacle() -> None:
    node = blocked(ADMINS)
    assert planned_of(plan("nvidia_driver", without_nulls(node))) == []


def test_ubuntus_own_driver_is_refused_behind_an_obstacle() -> None:
    planned = driver(blocked(UBUNTU), source="distribution")
    assert [one["code"] for one in planned["refusals"]] == ["DEVICE_FILE_BLOCKED"]


def test_run_file() -> None:
    assert planned_of(test_runfile.driver(VIRGIN)) == BOTH
    done = test_runfile.by_runfile()
    assert planned_of(test_runfile.driver(done)) == []
    assert planned_of(test_runfile.driver(lacking(done, file=True))) == ["device_files"]


def test_who_needs_our_rule_is_recorded() -> None:
    """Only where rules of the newest packages are known to create the file, ours is not needed."""
    newest = {(row["system"], row["driver"]): row["uvm"] for row in RECORDED["packages"]}
    assert [key for key, is_there in newest.items() if is_there] == [("ubuntu", "distribution")]
    virgin = {
        ("debian", "nvidia"): plan("nvidia_driver", VIRGIN),
        ("debian", "distribution"): driver(test_distribution.DEBIAN, source="distribution"),
        ("ubuntu", "distribution"): driver(UBUNTU, source="distribution"),
        ("ubuntu", "nvidia"): driver(UBUNTU, source="nvidia"),
        ("rhel", "nvidia"): plan("nvidia_driver", merge(VIRGIN, test_redhat.ROCKY)),
        ("any", "runfile"): test_runfile.driver(VIRGIN),
    }
    assert virgin.keys() == newest.keys()
    for key, planned in virgin.items():
        assert "Load the NVIDIA modules" in names(planned), key
        assert planned_of(planned) == ([] if newest[key] else BOTH), key


def test_ubuntus_own_driver_does_it_itself() -> None:
    node = lacking(test_distribution.works_on_ubuntu(), rule=True, file=True)
    planned = driver(node, source="distribution")
    assert planned_of(planned) == []
    debians = lacking(test_distribution.installed(), rule=True, file=True)
    assert planned_of(driver(debians)) == BOTH


def test_teardown_takes_the_rule_back() -> None:
    planned = plan("nvidia_driver", DONE, state="absent")
    assert RULE in planned["data"]["files"]
