# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines are those of tests/recorded/driver_words.yml; the times are made up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import driver_words, kernel_log
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

RECORD = yaml.safe_load((Path(__file__).parents[4] / "recorded/driver_words.yml").read_text())
ROWS = RECORD["words"]
LOAD = "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"
LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.105.08"
UNLOAD = "nvidia-nvlink: Unregistered Nvlink Core, major device number 236"
GPU, OTHER = "0000:a1:00.0", "0000:b1:00.0"
WPR2 = "NVRM: GPU6 _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP"


def failed(address: str) -> str:
    return f"NVRM: GPU {address}: RmInitAdapter failed! (0x62:0x40:2168)"


def at(*messages: str, sign: str = "") -> list[str]:
    """Return each message as dmesg and the journal do: its further lines have no time."""
    padding = " " * 15
    return [
        f"[{10 + number:5}.000000] {sign}" + message.replace(" / ", f"\n{padding}")
        for number, message in enumerate(messages)
    ]


def kinds(*messages: str) -> dict[str, list[str]]:
    ring = Output(0, "\n".join(at("Linux version 6.8.0", *messages)), "")
    words = kernel_log.parse(ring, None)["words"]
    return {address: [one["kind"] for one in said] for address, said in words.items()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["lines"][0][:60])
@pytest.mark.parametrize("source", ["dmesg", "journal"])
def test_recorded_lines(row: dict[str, Any], source: str) -> None:
    if source == "dmesg":
        log = kernel_log.parse(Output(0, "\n".join(at(*row["lines"])), ""), None)
    else:
        entries = at(*row["lines"], sign="gpu-1 kernel: ")
        log = kernel_log.parse(None, Output(0, "\n".join(reversed(entries)), ""))
    assert [one["kind"] for one in log["words"][row["address"]]][:1] == [row["kind"]]
    line = log["words"][row["address"]][0]["line"]
    assert line.startswith(row["lines"][0].partition(" / ")[0].replace("NVRM: ", "")[:36])
    assert "NVRM" not in line


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["lines"][0][:60])
def test_the_journal_is_asked_for_these_lines(row: dict[str, Any]) -> None:
    pattern = kernel_log.JOURNAL[-1].partition("=")[2]
    assert all(re.search(pattern, one) for one in row["lines"])


def test_every_kind_is_recorded_and_sources_have_a_date() -> None:
    assert {row["kind"] for row in ROWS} == {row.kind for row in driver_words.ROWS}
    assert all(place["where"] and place["date"] for place in RECORD["sources"].values())
    assert all(row["source"] and row["confidence"] for row in ROWS)


def test_a_whole_message_is_quoted_up_to_its_end() -> None:
    (row,) = (row for row in ROWS if row["kind"] == driver_words.OPEN)
    log = kernel_log.parse(Output(0, "\n".join(at(*row["lines"])), ""), None)
    assert log["words"] == {
        "0000:02:00.0": [
            {
                "kind": "open",
                "line": "The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:1bb1) installed in this system"
                " is not supported by open nvidia.ko because it does not include the required GPU"
                " System Processor (GSP).",
            }
        ]
    }


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        pytest.param([LOAD, WPR2, failed(GPU), LOAD, LOADED], {}, id="over after the next load"),
        pytest.param([LOAD, WPR2, failed(GPU), UNLOAD], {GPU: ["GSP", "init"]}, id="failed load"),
        pytest.param(
            [LOAD, WPR2, failed(GPU), failed(OTHER)],
            {GPU: ["GSP", "init"], OTHER: ["init"]},
            id="a cause belongs to the next address only",
        ),
        pytest.param([LOAD, WPR2], {"": ["GSP"]}, id="no address follows"),
        pytest.param([LOAD, *[failed(GPU)] * 3], {GPU: ["init"]}, id="each kind once"),
        pytest.param([LOAD, "nvidia 0000:a1:00.0: enabling device", LOADED], {}, id="nothing"),
    ],
)
def test_words_are_kept_by_gpu(messages: list[str], found: dict[str, list[str]]) -> None:
    assert kinds(*messages) == found


def test_a_flood_is_not_kept() -> None:
    many = [failed(f"{number:04x}:01:00.0") for number in range(1000)]
    ring = Output(0, "\n".join(at(LOAD, *many, WPR2 + "x" * 5000, failed("0000:01:00.0"))), "")
    words = kernel_log.parse(ring, None)["words"]
    assert len(words) == 64
    assert max(len(one["line"]) for said in words.values() for one in said) <= 201
