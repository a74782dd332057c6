# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines are those of tests/recorded/xids.yml; the times are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import kernel_events, kernel_log, xids
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

RECORD = yaml.safe_load((Path(__file__).parents[4] / "recorded/xids.yml").read_text())
LINES = RECORD["lines"]
GPU, OTHER = "0000:41:00.0", "0000:42:00.0"
LOAD = "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"
LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.105.08"
LOST = "NVRM: GPU 0000:41:00.0: GPU has fallen off the bus."
PROBED = "nvidia-nvswitch: Probing device 0000:05:00.0, Vendor Id = 0x10de"
UNLOAD = "nvidia-nvlink: Unregistered Nvlink Core, major device number 236"
NONE = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
DRAIN = "GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"
DRAINED = "GPU recovery action changed from 0x3 (Drain P2P) to 0x0 (None)"
REBOOT = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"


def xid(number: int, words: str = "Ch 00000008", address: str = "0000:41:00") -> str:
    return f"NVRM: Xid (PCI:{address}): {number}, {words}"


def at(*lines: str, start: int = 0) -> str:
    """Return the lines with times, 10 seconds from one to the next."""
    return "".join(f"[{start + 10 * i:5}.000000] {line}\n" for i, line in enumerate(lines))


def ring(text: str) -> Output:
    return Output(0, text, "")


def journal(*texts: str) -> Output:
    """Return entries as journalctl --reverse does."""
    entries = [
        line.replace("] ", "] gpu-1 kernel: ", 1) for text in texts for line in text.splitlines()
    ]
    return Output(0, "".join(f"{line}\n" for line in reversed(entries)), "")


def parse(*lines: str) -> kernel_log.Log:
    return kernel_log.parse(ring(at("Linux version 6.1.0", *lines)), None)


def numbers(log: kernel_log.Log) -> list[tuple[int | None, int]]:
    return [(event["number"], event["count"]) for event in log["events"]]


@pytest.mark.parametrize("prefix", [row["prefix"] for row in RECORD["prefixes"]])
@pytest.mark.parametrize("row", LINES, ids=lambda row: row["line"])
def test_recorded_lines(row: dict[str, Any], prefix: str) -> None:
    lines = [prefix + row["after"]] if "after" in row else []
    log = kernel_log.parse(ring("\n".join([*lines, prefix + row["line"]])), None)
    found = [(event["source"], event["address"], event["number"]) for event in log["events"]]
    if row["of"] in ("xid", "sxid", "lost"):
        assert found == [(row["of"], row["address"], row.get("number"))]
    else:
        assert found == []
    assert list(log["uuids"]) == ([row["address"]] if row["of"] == "uuid" else [])
    assert (log["loaded"] is not None) is (row["of"] in ("load", "loaded", "removed"))


def test_an_event_has_its_count_times_and_last_words() -> None:
    log = parse(xid(13, "first"), xid(31), xid(13, "last"))
    assert log["sources"] == ["dmesg"]
    assert log["error"] is None
    assert log["events"][0] == {
        "source": "xid",
        "address": GPU,
        "number": 13,
        "count": 2,
        "first": 10,
        "last": 30,
        "line": "last",
    }
    assert numbers(log) == [(13, 2), (31, 1)]


def test_gpus_are_told_apart() -> None:
    log = parse(xid(31), xid(31, address="0000:42:00"))
    assert [event["address"] for event in log["events"]] == [GPU, OTHER]


def test_fatal_words_stay() -> None:
    fatal = "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x0 0x0)"
    log = parse(xid(149, fatal), xid(149, "NETIR_LINK_EVT  Nonfatal XC0 i0 Link 01 (0x0 0x0)"))
    assert [event["line"] for event in log["events"]] == [fatal]
    assert kernel_events.is_fatal(log["events"][0])


def test_a_flood_is_counted_and_not_kept() -> None:
    flood = (xid(95, f"Uncontained: {number}") for number in range(100_000))
    log = parse(*flood, *(xid(number) for number in range(1000, 1300)))
    assert (95, 100_000) in numbers(log)
    assert len(log["events"]) == 200
    assert log["unlisted"] == 101


HARMLESS = [
    f"nvidia-nvswitch{switch}: SXid (PCI:0000:{switch + 5:02x}:00.0): {number}, Non-fatal, Link 32"
    for switch in range(6)
    for number in range(12000, 12034)
]
DEAD = [xid(79, "GPU has fallen off the bus.")]


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(HARMLESS, id="corrected errors of NVSwitches"),
        pytest.param(
            [xid(13, address=f"0000:{bus:02x}:00") for bus in range(0x50, 0xF0)]
            + [xid(149, "Nonfatal", address=f"0000:{bus:02x}:00") for bus in range(0x50, 0xF0)],
            id="programs",
        ),
        pytest.param([xid(number) for number in range(1000, 1300)], id="unknown errors"),
    ],
)
def test_a_full_table_has_room_for_an_error_that_matters(flood: list[str]) -> None:
    log = parse(*flood, *DEAD)
    assert numbers(log)[-1] == (79, 1)
    assert len(log["events"]) == 200
    assert sum(count for _number, count in numbers(log)) + log["unlisted"] == len(flood) + 1


def test_an_error_that_matters_stays_in_a_full_table() -> None:
    fatal = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 23001, Non-fatal, whatever it says"
    log = parse(fatal, LOST, *DEAD, xid(95), *HARMLESS, *(xid(n) for n in range(1000, 1300)))
    assert [event["number"] for event in log["events"][:4]] == [23001, None, 79, 95]


def test_long_and_unprintable_words_are_cut() -> None:
    (event,) = parse(xid(13, "\x1b[31m" + "x" * 5000))["events"]
    assert event["line"].startswith("?[31m")
    assert len(event["line"]) == 201


def test_a_message_of_several_lines_has_one_time() -> None:
    text = at(LOAD, "NVRM: The NVIDIA GPU 0000:41:00.0")
    text += "               NVRM: (PCI ID: 10de:2901) installed in this system has\n"
    text += "               NVRM: fallen off the bus and is not responding to commands.\n"
    log = kernel_log.parse(ring(text + at(LOADED, start=60)), None)
    assert [(event["source"], event["last"]) for event in log["events"]] == [("lost", 10)]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        pytest.param([xid(79), LOAD, LOADED], [], id="before the load"),
        pytest.param([xid(79), UNLOAD], [], id="before the driver was removed"),
        pytest.param([xid(79), LOADED], [], id="the first line of the load is missing"),
        pytest.param([LOAD, LOADED, xid(79)], [(79, 1)], id="after the load"),
        pytest.param(
            ["NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.", LOADED],
            [(None, 1)],
            id="while the load probes",
        ),
        pytest.param([xid(95), xid(154, REBOOT), xid(154, NONE)], [], id="recovered"),
        pytest.param(
            [xid(95), xid(154, NONE, "0000:42:00")], [(95, 1)], id="another GPU recovered"
        ),
        pytest.param([xid(154, NONE), xid(95)], [(95, 1)], id="after the recovery"),
        pytest.param([xid(79), xid(154, REBOOT)], [(79, 1), (154, 1)], id="not recovered"),
        pytest.param(
            [
                xid(95),
                "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
                PROBED,
            ],
            [],
            id="an NVSwitch is probed again",
        ),
        pytest.param([LOAD, xid(143), LOADED], [(143, 1)], id="an Xid while the load probes"),
        pytest.param(
            [LOAD, xid(143), UNLOAD, xid(79), LOADED], [], id="the next load lacks its first line"
        ),
        pytest.param(
            [xid(54), xid(154, DRAIN), xid(154, DRAINED)],
            [(54, 1), (154, 2)],
            id="an action without a reset is over",
        ),
        pytest.param([LOAD, LOST, UNLOAD], [(None, 1)], id="the load failed"),
        pytest.param([LOAD, LOST, UNLOAD, LOAD, LOADED], [], id="and the next one did not"),
        pytest.param([LOAD, LOADED, LOST, UNLOAD], [], id="removed after a load"),
    ],
)
def test_what_is_over_does_not_count(lines: list[str], found: list[tuple[int, int]]) -> None:
    assert numbers(parse(*lines)) == found


def test_a_gpu_that_is_dead_at_the_load_leaves_its_trace() -> None:
    log = kernel_log.parse(ring(recording("kernel_log/dead_at_load.txt")), None)
    assert [(one["source"], one["address"]) for one in log["events"]] == [("lost", "0000:03:00.0")]
    assert (log["loaded"], log["error"]) == (12, None)


def test_the_end_of_a_load_in_the_ring_and_its_start_in_the_journal() -> None:
    end = ring(at(UNLOAD, start=30))
    assert not kernel_log.has_load(end)
    log = kernel_log.parse(end, journal(at(LOAD, LOST, UNLOAD, start=10)))
    assert numbers(log) == [(None, 1)]


def test_the_outstanding_action() -> None:
    log = parse(xid(79), xid(154, REBOOT))
    assert log["recovery"] == {GPU: 2}
    again = parse(xid(154, REBOOT), PROBED, xid(31))
    assert (again["recovery"], numbers(again)) == ({}, [(31, 1)])
    assert parse(xid(154, REBOOT), xid(154, NONE))["recovery"] == {}
    assert parse(xid(154, DRAIN), xid(154, DRAINED))["recovery"] == {}
    assert parse(LOAD, xid(154, REBOOT), LOADED)["recovery"] == {GPU: 2}


@pytest.mark.parametrize("code", sorted(xids.HEALING))
def test_the_end_of_a_reset_or_reboot_heals(code: int) -> None:
    over = f"GPU recovery action changed from 0x{code} (Some words) to 0x0 (None)"
    assert parse(xid(95), xid(154, over))["events"] == []


@pytest.mark.parametrize(
    ("output", "reaches"),
    [
        (None, False),
        (Output(1, "", "dmesg: read kernel buffer failed: Operation not permitted"), False),
        (ring(at(LOAD, start=500)), True),
        (ring(at("Linux version 6.1.0")), True),
        (ring(at(xid(13), LOADED, start=500)), False),
        (ring(""), False),
    ],
)
def test_whether_the_ring_reaches_the_load(output: Output | None, reaches: bool) -> None:
    assert kernel_log.has_load(output) is reaches


def test_lines_in_both_count_once() -> None:
    all_lines = at(LOAD, LOADED, xid(13), xid(31), xid(13), start=100)
    newest = at(xid(31), xid(13), start=130)
    log = kernel_log.parse(ring(newest), journal(all_lines))
    assert numbers(log) == [(13, 2), (31, 1)]
    assert (log["loaded"], log["events"][0]["first"]) == (110, 120)
    assert (log["sources"], log["error"]) == (["dmesg", "journal"], None)


def test_a_journal_that_has_lost_lines() -> None:
    log = kernel_log.parse(ring(at(xid(31), xid(13), start=130)), journal(at(xid(13), start=140)))
    assert numbers(log) == [(31, 1), (13, 1)]


def test_entries_of_several_lines_in_a_journal_that_is_reversed() -> None:
    reversed_entries = (
        "[  50.000000] gpu-1 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.08\n"
        "[  40.000000] gpu-1 kernel: NVRM: The NVIDIA GPU 0000:41:00.0\n"
        "                    NVRM: (PCI ID: 10de:2901) installed in this system has\n"
        "                    NVRM: fallen off the bus and is not responding to commands.\n"
        "[  30.000000] gpu-1 kernel: nvidia-nvlink: Nvlink Core is being initialized, major\n"
    )
    log = kernel_log.parse(None, Output(0, reversed_entries, ""))
    assert [(event["source"], event["last"]) for event in log["events"]] == [("lost", 40)]


REFUSED = Output(1, "", "dmesg: read kernel buffer failed: Operation not permitted\n")
NO_MATCH = Output(1, "-- No entries --\n", "")


@pytest.mark.parametrize(
    ("of_ring", "of_journal", "sources", "error"),
    [
        pytest.param(
            REFUSED,
            Output(1, "", "No journal files were opened due to insufficient permissions."),
            [],
            "dmesg: dmesg: read kernel buffer failed: Operation not permitted; journalctl: No"
            " journal files were opened due to insufficient permissions.",
            id="neither",
        ),
        pytest.param(
            None,
            None,
            [],
            "dmesg: dmesg was not found; journalctl: journalctl was not found",
            id="no program",
        ),
        pytest.param(
            REFUSED,
            Output(0, "[    1.000000] gpu-1 kernel: Linux version 6.1.0\n", ""),
            ["journal"],
            None,
            id="only the boot in the journal",
        ),
        pytest.param(
            REFUSED,
            NO_MATCH,
            ["journal"],
            "journal: the lines since the boot are not complete",
            id="a journal without its oldest lines",
        ),
        pytest.param(
            ring(at(xid(31), start=900)),
            Output(1, "", ""),
            ["dmesg", "journal"],
            "dmesg and journal: the lines since the boot are not complete",
            id="neither reaches the boot",
        ),
        pytest.param(
            ring(at(LOADED, start=9)), NO_MATCH, ["dmesg", "journal"], None, id="since the load"
        ),
        pytest.param(
            ring(at(LOADED, start=9)),
            Output(1, "-- No entries --\n", "No journal files were found.\n"),
            ["dmesg"],
            "journalctl: No journal files were found.",
            id="no journal",
        ),
        pytest.param(
            REFUSED,
            Output(0, at(LOADED), "Journal file x.journal is truncated, ignoring file."),
            ["journal"],
            None,
            id="a warning of the journal",
        ),
        pytest.param(
            ring(at(LOADED, start=9)),
            Output(None, "", ""),
            ["dmesg"],
            "journalctl: no answer in time",
            id="a slow journal",
        ),
        pytest.param(
            REFUSED,
            Output(0, f"{at(xid(13))}\n" * kernel_log.JOURNAL_LINES, ""),
            ["journal"],
            "journalctl: only the last 20000 lines about GPUs were read",
            id="a long journal",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    of_ring: Output | None, of_journal: Output | None, sources: list[str], error: str | None
) -> None:
    log = kernel_log.parse(of_ring, of_journal)
    assert (log["sources"], log["error"]) == (sources, error)


def test_lines_of_an_answer_that_came_too_late_count() -> None:
    late = Output(None, journal(at(xid(79))).stdout, "")
    assert numbers(kernel_log.parse(REFUSED, late)) == [(79, 1)]


@pytest.mark.parametrize("rc", [None, 1], ids=["too late", "failed"])
def test_a_ring_without_its_newest_lines_does_not_hide_those_of_the_journal(rc: int | None) -> None:
    old, new = at(LOAD, LOADED, xid(13), start=100), at(xid(79), start=900)
    log = kernel_log.parse(Output(rc, old, ""), journal(old, new))
    assert numbers(log) == [(13, 1), (79, 1)]
    assert (log["sources"], log["error"]) == (["journal"], None)


def test_a_part_of_the_ring_is_better_than_nothing() -> None:
    late = Output(None, at(LOAD, LOADED, xid(79)), "")
    log = kernel_log.parse(late, None)
    assert (numbers(log), log["sources"]) == ([(79, 1)], [])
    assert numbers(kernel_log.parse(late, NO_MATCH)) == [(79, 1)]
