# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine descriptions become the hardware of nodes."""

import pytest
import yaml

from metal_lab.cache import FILES
from metal_lab.silicon.machine import machine_json

MACHINES = FILES / "machines"


def load(name, node="gpu-1"):
    return machine_json(yaml.safe_load((MACHINES / f"{name}.yml").read_text()), node)


def gpus(machine):
    return [function for function in machine["functions"] if "gpu" in function]


@pytest.mark.parametrize(
    ("name", "models", "addresses"),
    [
        pytest.param(
            "p100x4",
            ["Tesla P100-PCIE-16GB"] * 4,
            ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"],
            id="p100x4",
        ),
        pytest.param(
            "a100x8",
            ["NVIDIA A100-SXM4-80GB"] * 8,
            [f"0000:{bus}:00.0" for bus in ["03", "04", "05", "06", "83", "84", "85", "86"]],
            id="a100x8",
        ),
        pytest.param(
            "h100x8",
            ["NVIDIA H100 80GB HBM3"] * 8,
            [f"0000:{bus}:00.0" for bus in ["03", "04", "05", "06", "83", "84", "85", "86"]],
            id="h100x8",
        ),
        pytest.param(
            "b200x8",
            ["NVIDIA B200"] * 8,
            [f"0000:{bus}:00.0" for bus in ["03", "04", "05", "06", "83", "84", "85", "86"]],
            id="b200x8",
        ),
        pytest.param("t4x1", ["Tesla T4"], ["0000:03:00.0"], id="t4x1"),
        pytest.param(
            "mixed",
            ["Tesla T4", "Tesla T4", "NVIDIA A100-PCIE-40GB"],
            ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0"],
            id="mixed",
        ),
    ],
)
def test_gpus_of_a_machine(name, models, addresses):
    found = gpus(load(name))
    assert [gpu["gpu"]["name"] for gpu in found] == models
    assert [gpu["address"] for gpu in found] == addresses


def test_same_node_same_hardware():
    assert load("p100x4") == load("p100x4")


def test_no_two_gpus_of_a_cluster_are_the_same():
    found = [gpu["gpu"] for node in ("gpu-1", "gpu-2") for gpu in gpus(load("h100x8", node))]
    for identity in ("uuid", "serial"):
        assert len({gpu[identity] for gpu in found}) == 16
    assert all(len(gpu["serial"]) == 13 for gpu in found)


@pytest.mark.parametrize("file", sorted(MACHINES.glob("*.yml")), ids=lambda file: file.stem)
def test_functions_are_complete_and_have_a_place_each(file):
    functions = load(file.stem)["functions"]
    addresses = [function["address"] for function in functions]
    assert addresses == sorted(set(addresses))
    for function in functions:
        assert {len(function[key]) for key in ("vendor", "device", "class")} == {4}
        assert len(function["subsystem"]) == len("10de:118f")
