# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kubelet's checkpoint of devices, as tests/recorded/kubelet_checkpoint.yml describes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet_devices import (
    CHECKPOINT,
    gpu_uuid,
    parse_checkpoint,
)

RECORD = yaml.safe_load(
    (Path(__file__).parents[4] / "recorded/kubelet_checkpoint.yml").read_text("utf-8")
)
GPU = "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01"


def entry(ids: Any, **more: Any) -> dict[str, Any]:
    named = {"PodUID": "u1", "ContainerName": "c", "ResourceName": "nvidia.com/gpu"}
    return {**named, "DeviceIDs": ids, "AllocResp": "aGVsbG8=", **more}


def written(entries: Any, registered: Any) -> str:
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    return json.dumps({"Data": data, "Checksum": 1})


def test_the_path_is_the_recorded_one() -> None:
    assert RECORD["path"]["value"] == CHECKPOINT


@pytest.mark.parametrize("row", RECORD["examples"], ids=lambda row: row["what"])
def test_recorded_forms(row: dict[str, Any]) -> None:
    assert parse_checkpoint(json.dumps(row["content"])) == row["means"]


@pytest.mark.parametrize("row", RECORD["ids"], ids=lambda row: row["value"])
def test_ids(row: dict[str, Any]) -> None:
    assert gpu_uuid(row["value"]) == row["gpu"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param('{"Data": {"Pod', id="cut"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="nothing"),
        pytest.param('{"Data": {"RegisteredDevices": []}}', id="another form"),
        pytest.param('{"Data": null}', id="no data"),
        pytest.param("[" * 100_000, id="very deep"),
    ],
)
def test_unknown_forms_are_unknown(content: str) -> None:
    assert parse_checkpoint(content) is None


def test_parts_of_another_form_are_left_out() -> None:
    entries = [
        *(None, 7, {"PodUID": 7}, entry([GPU], ResourceName="example.com/nic")),
        entry({"0": [GPU, 7], "-1": "x"}),
    ]
    found = parse_checkpoint(written(entries, {"nvidia.com/gpu": [GPU, None], "a.b/c": ["d"]}))
    assert found is not None
    assert found["registered"] == {"nvidia.com/gpu": [GPU]}
    assert [one["devices"] for one in found["holdings"]] == [[GPU]]
    found = parse_checkpoint(written(None, {}))
    assert found == {"registered": {}, "holdings": []}
