# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import xids

RECORD = yaml.safe_load((Path(__file__).parents[4] / "recorded/xids.yml").read_text())


def test_every_recorded_number_is_known_and_no_other() -> None:
    assert list(xids.XIDS) != []
    assert sorted(xids.XIDS) == [row["xid"] for row in RECORD["xids"]]


@pytest.mark.parametrize("row", RECORD["xids"], ids=lambda row: str(row["xid"]))
def test_numbers_are_as_recorded(row: dict[str, object]) -> None:
    known = xids.look_up(int(str(row["xid"])))
    assert (known.tier, known.action) == (row["tier"], row["action"])
    assert known.meaning


def test_a_number_has_one_meaning() -> None:
    numbers = [row["xid"] for row in RECORD["xids"]]
    assert len(numbers) == len(set(numbers))


def test_what_is_known_of_nvswitches() -> None:
    *single, last = RECORD["sxids"]["fatal"]["value"]
    first, end = map(int, last.split("-"))
    assert {*single, *range(first, end + 1)} == xids.FATAL_SXIDS
    assert RECORD["sxids"]["follows Xid 79"]["value"] == [xids.LINKS_DOWN]


def test_recovery_actions_are_as_recorded() -> None:
    recorded = {row["code"]: row["action"] for row in RECORD["recovery"]}
    assert {code: action for code, action in recorded.items() if action} == xids.RECOVERY
    assert recorded[xids.REBOOT_REQUIRED] == "RESTART_BM"
    assert set(RECORD["recovery that heals"]["value"]) == xids.HEALING
    assert {*xids.RECOVERY} < xids.HEALING


def test_what_the_device_plugin_ignores_is_as_recorded() -> None:
    assert set(RECORD["ignored by the device plugin"]["value"]) == xids.IGNORED_BY_PLUGIN


def test_sources_have_a_date() -> None:
    named = [
        row["source"] for part in ("xids", "recovery", "lines", "prefixes") for row in RECORD[part]
    ]
    names = {name for one in named for name in (one if isinstance(one, list) else [one])}
    places = RECORD["sources"]
    assert names <= {*places, "journalctl --output=short-monotonic", "dmesg -T"}
    assert all(place["where"] and place["date"] for place in places.values())


@pytest.mark.parametrize("number", [1, 51, 177, 999])
def test_other_numbers_are_unknown(number: int) -> None:
    assert xids.look_up(number).tier == xids.UNKNOWN
