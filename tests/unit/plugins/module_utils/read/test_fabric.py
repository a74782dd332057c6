# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import fabric, nvidia_smi_xml
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import (
    MANAGEMENT_PORT,
    is_infiniband,
    is_nvswitch,
)
from ansible_collections.metal.gpu.tests.unit.support import smi_xml

RECORD = yaml.safe_load((Path(__file__).parents[4] / "recorded/fabric.yml").read_text())
ADDRESS = "0000:53:00.0"


def parse(state: str | None, status: str | None) -> list[fabric.FabricState]:
    words = {"fabric/state": state, "fabric/status": status}
    gpu = {"address": ADDRESS, "uuid": "GPU-0", "name": "NVIDIA H100"}
    text = smi_xml.report([gpu], "hopper", changes={"*": words})
    return fabric.states(nvidia_smi_xml.parse_report(Output(0, text, "")))


@pytest.mark.parametrize(
    ("words", "is_good"),
    [
        ("Completed, Success", True),
        ("N/A, N/A", True),
        ("[N/A], [N/A]", True),
        ("Not Supported, Not Supported", True),
        ("Not Started, N/A", False),
        ("In Progress, N/A", False),
        ("Completed, Insufficient Resources", False),
        ("Unknown Error, Unknown Error", False),
    ],
)
def test_states(words: str, is_good: bool) -> None:
    state, status = words.split(", ")
    (found,) = parse(state, status)
    assert (found["pci_address"], found["good"]) == (ADDRESS, is_good)


@pytest.mark.parametrize(
    ("state", "status", "is_unknown"),
    [
        ("Completed", "Success", False),
        ("Completed", "Insufficient Resources", False),
        ("Completed", "Unknown Error", False),  # what the training of the fabric ended with
        ("In Progress", "N/A", False),
        ("In Progress", "ERR!", False),
        ("N/A", "N/A", False),
        ("Not Supported", "ERR!", False),
        ("ERR!", "Success", True),
        ("", "", True),
        ("\x1b[2J", "Success", True),
        ("Unknown Error", "Unknown Error", True),
        ("[Unknown Error]", "Success", True),
        ("Timeout", "Success", True),
        ("Completed", "ERR!", True),
        ("Completed", "", True),
        ("Completed", None, True),
    ],
)
def test_unknown_states(state: str, status: str | None, *, is_unknown: bool) -> None:
    (one,) = parse(state, status)
    assert fabric.is_unknown(one["state"], one["status"]) is is_unknown


def test_a_driver_that_is_too_old_has_no_states() -> None:
    assert parse(None, None) == []


@pytest.mark.parametrize(
    ("device", "has_state", "behind_adapters"),
    [
        ("15f8", False, False),  # P100
        ("1eb8", False, False),  # T4
        ("20b2", False, False),  # A100
        ("26b9", False, False),  # L40S
        ("2330", True, False),  # H100
        ("2901", True, True),  # B200
        ("3182", True, True),  # B300
    ],
)
def test_which_gpus_are_asked(device: str, has_state: bool, behind_adapters: bool) -> None:
    gpu = {"device": device}
    assert fabric.has_state(gpu) is has_state
    assert fabric.may_be_behind_adapters(gpu) is behind_adapters


@pytest.mark.parametrize(
    ("name", "is_manager"),
    [
        ("nvidia-fabricmanager", True),
        ("nvidia-fabricmanager-575", True),
        ("nvidia-fabric-manager", True),
        ("nvidia-fabricmanager-dev-575", False),
        ("cuda-drivers-fabricmanager-575", False),
        ("nvidia-imex", False),
        ("nvlsm", False),
    ],
)
def test_packages(name: str, is_manager: bool) -> None:
    assert fabric.is_manager_package(name) is is_manager
    assert fabric.is_fabric_package(name) is (is_manager or name in ("nvidia-imex", "nvlsm"))


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("LOG_LEVEL=4\nFABRIC_MODE=1\nFABRIC_MODE_RESTART=0\n", 1),
        ("# FABRIC_MODE=1\n FABRIC_MODE = 0\n", 0),
        ("LOG_LEVEL=4\r\nFABRIC_MODE=1\r\nFABRIC_MODE_RESTART=0\r\n", 1),
        ('FABRIC_MODE="1"\n', 1),
        ("FABRIC_MODE='1'", 1),
        ("FABRIC_MODE=1 # shared\nFABRIC_MODE_RESTART=0\n", 1),
        ("FABRIC_MODE=\"1'\n", None),
        ("FABRIC_MODE=1 2\n", None),
        ("FABRIC_MODE=²\n", None),
        ("", None),
    ],
)
def test_mode(text: str, mode: int | None) -> None:
    assert fabric.parse_mode(text) == mode


def test_log() -> None:
    assert fabric.parse_log("\n", "1\n\n2\n3\n4\x07\n") == ["2", "3", "4?"]
    assert fabric.parse_log("", "") == []
    assert len(fabric.parse_log("x" * 5000)[0]) == 301


@pytest.mark.parametrize("function", RECORD["functions"], ids=lambda one: str(one["device"]))
def test_recorded_functions(function: dict[str, Any]) -> None:
    assert is_nvswitch(function) is function["nvswitch"]


def test_recorded_management_port() -> None:
    port = RECORD["management port"]
    assert is_infiniband({"vendor": port["vendor"], "class": port["class"]})
    assert port["vpd"].encode() == MANAGEMENT_PORT


@pytest.mark.parametrize("row", RECORD["states"], ids=lambda one: str(one["cells"]))
def test_recorded_states(row: dict[str, Any]) -> None:
    (found,) = parse(*row["cells"].split(", "))
    assert found["good"] is row["good"]


@pytest.mark.parametrize(
    "row", RECORD["subnet manager"]["command_lines"], ids=lambda one: str(one["argv"][0])
)
def test_recorded_subnet_manager(row: dict[str, Any]) -> None:
    command_line = "".join(f"{word}\0" for word in row["argv"]).encode()
    assert fabric.is_subnet_manager(command_line) is row["nvlsm"]


def test_recorded_modules() -> None:
    needed = [one["module"] for one in RECORD["subnet manager"]["needs"] if "module" in one]
    assert needed == [fabric.ADAPTER_MODULE, fabric.MAD_MODULE]
