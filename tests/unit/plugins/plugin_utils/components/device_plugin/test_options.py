# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the plugin would ignore without a word, or crash with, is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import options

RECORD = yaml.safe_load(
    (Path(__file__).parents[6] / "tests/recorded/device_plugin.yml").read_text()
)
ROWS = {row["what"]: row["value"] for row in RECORD["configuration"]["rows"]}
NOTHING: dict[str, Any] = {"config": {}, "env": {}, "affinity": {}, "args": []}
GPU = {"name": "nvidia.com/gpu", "replicas": 4}


def problems(**desired: Any) -> list[str]:
    wanted: Any = NOTHING | desired
    return [f"{one.name} {one.error}" for one in options.problems(wanted)]


def slicing(**more: Any) -> dict[str, Any]:
    return {"sharing": {"timeSlicing": {"resources": [GPU], **more}}}


def sliced(*resources: Any) -> dict[str, Any]:
    return slicing(resources=[*resources])


@pytest.mark.parametrize(
    "desired",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"config": slicing()}, id="time-slicing"),
        pytest.param(
            {"config": slicing(renameByDefault=True, failRequestsGreaterThanOne=False)}, id="all"
        ),
        pytest.param({"config": {"version": "v1", "flags": {"migStrategy": "mixed"}}}, id="MIG"),
        pytest.param({"config": {"flags": {"plugin": {"passDeviceSpecs": True}}}}, id="flags"),
        pytest.param({"config": {"imex": {"required": True}}}, id="IMEX"),
        pytest.param({"args": ["--config-file=/x"]}, id="a file of the admin"),
        pytest.param({"env": {"PASS_DEVICE_SPECS": True, "A": "b", "C": 1.5}}, id="environment"),
        pytest.param({"affinity": {"nodeAffinity": {}, "podAntiAffinity": {}}}, id="affinity"),
    ],
)
def test_usable(desired: dict[str, Any]) -> None:
    assert problems(**desired) == []


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"version": "v2"}, ["has the version v2, expected v1"]),
        (
            {"sharin": {}, "resources": {}},
            [
                "has the key sharin, which the device plugin does not know",
                "has the key resources, which the device plugin ignores",
            ],
        ),
        ({"flags": []}, ["has no dictionary in flags"]),
        (
            {"flags": {"plugin": {"deviceListStrategy": ["envvar"]}}},
            [
                "has flags.plugin.deviceListStrategy, which device_plugin_device_list_strategy "
                "overrides"
            ],
        ),
        (
            {"flags": {"migStrategy": "all"}},
            ["has all in flags.migStrategy, expected none, single or mixed"],
        ),
        (
            {"sharing": {"mps": {"resources": [GPU]}}},
            ["has sharing.mps, whose control daemon this role does not run"],
        ),
        (
            {"sharing": {"timeslicing": {}}},
            ["has the key sharing.timeslicing, which the device plugin does not know"],
        ),
        (
            {"sharing": {"timeSlicing": {}}},
            ["has no list of resources in sharing.timeSlicing.resources"],
        ),
        (
            {"sharing": {"timeSlicing": None}},
            ["has no list of resources in sharing.timeSlicing.resources"],
        ),
        (
            slicing(renameByDefault="yes", strategy="packed"),
            [
                "has the key sharing.timeSlicing.strategy, which the device plugin does not know",
                "has 'yes' in sharing.timeSlicing.renameByDefault, expected true or false",
            ],
        ),
        (
            sliced(GPU | {"devices": [0]}),
            [
                "has the key sharing.timeSlicing.resources[0].devices, which the device plugin "
                "ignores"
            ],
        ),
        (
            sliced(GPU, {"replicas": 0}),
            [
                "has no name in sharing.timeSlicing.resources[1], expected one such as "
                "nvidia.com/gpu",
                "has 0 in sharing.timeSlicing.resources[1].replicas, expected a whole number from "
                "1 on",
            ],
        ),
        (
            sliced(GPU | {"replicas": True}),
            [
                "has True in sharing.timeSlicing.resources[0].replicas, expected a whole number "
                "from 1 on"
            ],
        ),
    ],
)
def test_configuration_that_is_not_usable(config: Any, expected: list[str]) -> None:
    assert problems(config=config) == [f"device_plugin_config {one}" for one in expected]


def test_known_keys_are_those_of_the_record() -> None:
    """A key that the program learns belongs into the record first."""
    for path, keys in (
        ((), ROWS["keys"]),
        (("sharing",), ROWS["keys of sharing"]),
        (("sharing", "timeSlicing"), ROWS["keys of sharing.timeSlicing"]),
    ):
        for name in keys:
            config: Any = {name: {}}
            for outer in reversed(path):
                config = {outer: config}
            assert not [one for one in problems(config=config) if "does not know" in one]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (
            {"DEVICE_LIST_STRATEGY": "envvar"},
            "has DEVICE_LIST_STRATEGY, which device_plugin_device_list_strategy sets",
        ),
        ({"A B": "c"}, "has 'A B', which is no name of a variable"),
        ({"A": None}, "has None in A, expected a text"),
        ({"A": ["b"]}, "has ['b'] in A, expected a text"),
    ],
)
def test_environment_that_is_not_usable(env: Any, expected: str) -> None:
    assert problems(env=env) == [f"device_plugin_env {expected}"]


def test_one_configuration_file() -> None:
    assert problems(config=slicing(), args=["--config-file", "/x"]) == [
        "device_plugin_args has --config-file, which device_plugin_config sets"
    ]


class Marked(int):
    """A number of an inventory, as ansible-core has marked it since 2.19."""


def test_numbers_with_a_mark_are_written_as_numbers() -> None:
    config = sliced({"name": "nvidia.com/gpu", "replicas": Marked(5)})
    assert problems(config=config) == []
    assert yaml.safe_load(options.text_of(config)) == {"version": "v1", **config}
