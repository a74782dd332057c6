# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import xids
from ansible_collections.metal.gpu.plugins.module_utils.verdict import kernel_log
from ansible_collections.metal.gpu.plugins.module_utils.verdict.hardware import (
    judge_hardware,
    named_gpus,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.kernel_log import (
    judge_kernel_log,
    quote_log,
)
from ansible_collections.metal.gpu.tests.unit.support import done

GPU, OTHER, SWITCH = "0000:03:00.0", "0000:82:00.0", "0000:05:00.0"
FATAL_LINK = "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x0 0x0)"
REFUSED = "dmesg: Operation not permitted; journalctl: journalctl was not found"


def event(number: int | None, line: str = "words", **more: Any) -> dict[str, Any]:
    return {
        "source": "xid" if number else "lost",
        "address": GPU,
        "number": number,
        "count": 1,
        "first": 600,
        "last": 600,
        "last_date": "2026-11-22T14:03Z",
        "line": line,
        **more,
    }


def sxid(number: int, line: str) -> dict[str, Any]:
    return event(number, line, source="sxid", address=SWITCH)


def device(index: int, address: str, error: str | None = None) -> dict[str, Any]:
    return {"index": index, "pci_address": address, "uuid": f"GPU-{index}", "error": error}


HEALTHY = [device(0, GPU), device(1, OTHER)]


def node(
    *events: dict[str, Any], devices: list[dict[str, Any]] = HEALTHY, **log: Any
) -> dict[str, Any]:
    return {
        **done.node(),
        "pci": done.bus([GPU, OTHER]),
        "nvml": {"devices": devices, "failure": None},
        "fabric": {"switches": []},
        "health": {"gpus": [], "error": None},
        "kernel_log": {
            "sources": ["dmesg"],
            "error": None,
            "loaded": 12,
            "events": list(events),
            "unlisted": 0,
            "recovery": {},
            "uuids": {},
            "words": {},
            **log,
        },
    }


def judge(seen: Any) -> list[dict[str, str]]:
    return list(judge_kernel_log("gpu-1", seen, named_gpus(seen), is_needed=False))


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(node(), id="nothing"),
        pytest.param(node(event(13), event(31), event(43), event(45), event(68)), id="programs"),
        pytest.param(node(event(63), event(92), event(94)), id="memory that was replaced"),
        pytest.param(node(event(106), event(107), event(162)), id="information"),
        pytest.param(node(event(149, "NETIR_LINK_EVT  Nonfatal XC0 i0 Link -1")), id="nonfatal"),
        pytest.param(node(sxid(12028, "Non-fatal, Link 32 egress")), id="a corrected NVSwitch"),
        pytest.param(node(sources=[], error=REFUSED), id="a log that cannot be read"),
    ],
)
def test_a_healthy_node_has_no_finding(seen: Any) -> None:
    assert judge(seen) == []


@pytest.mark.parametrize("number", [n for n, one in xids.XIDS.items() if one.tier == "application"])
def test_programs_are_no_finding(number: int) -> None:
    assert judge(node(event(number))) == []


CATALOGUE = (
    "; if the error is logged again after that (see the time above), search for its number in"
    " NVIDIA's Xid catalogue"
)
RESET_ONE = (
    "drain the node, and reboot it; or reset the GPU (`nvidia-smi --gpu-reset -i 0000:03:00.0`, "
    "DaemonSets that use it must stop first) and load the driver again"
)
RESET = RESET_ONE + CATALOGUE
REPLACE = "; if the error is logged again after that (see the time above), replace the GPU"


@pytest.mark.parametrize(
    ("seen", "errors", "remedy"),
    [
        pytest.param(
            node(event(79, "GPU has fallen off the bus.")),
            "Xid 79 (GPU off the bus) once, last at 2026-11-22T14:03Z: GPU has fallen off the bus",
            f"drain the node, and reboot it{REPLACE}",
            id="off the bus",
        ),
        pytest.param(
            node(event(None, "GPU 0000:03:00.0: GPU has fallen off the bus.")),
            "GPU off the bus once, last at 2026-11-22T14:03Z:"
            " GPU 0000:03:00.0: GPU has fallen off the bus",
            f"drain the node, and reboot it{REPLACE}",
            id="off the bus without a number",
        ),
        pytest.param(
            node(
                event(79, "GPU has fallen off the bus."),
                event(None, "GPU 0000:03:00.0: GPU has fallen off the bus."),
                event(119, "Timeout."),
            ),
            "Xid 79 (GPU off the bus) once, last at 2026-11-22T14:03Z: GPU has fallen off the bus,"
            " Xid 119 (system processor (GSP) does not answer) once, last at 2026-11-22T14:03Z:"
            " Timeout",
            f"drain the node, and reboot it{REPLACE}",
            id="one event in two lines",
        ),
        pytest.param(
            node(event(95, "Uncontained", count=800_000)),
            "Xid 95 (memory error that affects all programs) 800000 times, last at"
            " 2026-11-22T14:03Z: Uncontained",
            RESET,
            id="a flood",
        ),
        pytest.param(
            node(event(54, "power")),
            "Xid 54 (power cable missing) once, last at 2026-11-22T14:03Z: power",
            "drain the node, switch it off, and check the seating of the card and its power"
            f" cables{REPLACE}",
            id="mechanics",
        ),
        pytest.param(
            node(
                event(119, "Timeout"),
                event(154, "… from 0x0 (None) to 0x2 (OS Reboot)"),
                recovery={GPU: 2},
            ),
            "Xid 119 (system processor (GSP) does not answer) once, last at 2026-11-22T14:03Z:"
            " Timeout; the driver asks for: OS Reboot",
            f"drain the node, and reboot it{CATALOGUE}",
            id="the driver asks for more than the catalogue",
        ),
        pytest.param(
            node(event(154, "… from 0x0 (None) to 0x1 (PF FLR)"), recovery={GPU: 1}),
            "the driver asks for: PF FLR",
            RESET,
            id="only what the driver asks for",
        ),
        pytest.param(
            node(
                event(31, "program"),
                event(48, "DBE"),
                event(171, "DRAM"),
                event(45, "end"),
                event(63, "row"),
            ),
            "Xid 48 (memory error that could not be corrected) once, last at 2026-11-22T14:03Z:"
            " DBE, Xid 171 (memory error that could not be corrected) once, last at"
            " 2026-11-22T14:03Z: DRAM, Xid 31 (invalid memory access of a program) once, last at"
            " 2026-11-22T14:03Z: program, and 1 more",
            f"{RESET_ONE}{REPLACE}",
            id="the worst one first",
        ),
    ],
)
def test_errors_after_which_a_gpu_needs_repair(seen: Any, errors: str, remedy: str) -> None:
    (found,) = judge(seen)
    assert (found["code"], found["severity"]) == ("GPU_ERROR_LOGGED", "failure")
    assert found["message"] == (
        "gpu-1: the driver logged errors after which the GPU 0000:03:00.0 (GPU-0) cannot be"
        f" relied on: {errors}"
    )
    assert found["remedy"] == remedy


def test_with_nvswitches_a_reset_of_all_gpus_is_in_the_log() -> None:
    seen = node(event(95))
    seen["fabric"]["switches"] = [{"address": SWITCH}]
    (found,) = judge(seen)
    assert found["remedy"] == (
        "drain the node, and reboot it; or reset all its GPUs (`nvidia-smi --gpu-reset`, DaemonSets"
        f" that use them must stop first){CATALOGUE}"
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [(3, "Drain P2P"), (5, "Recover IMEX Domain"), (7, "Something new")],
)
def test_actions_that_are_no_repair_of_the_gpu_are_shown(code: int, words: str) -> None:
    asked = event(154, f"… from 0x0 (None) to 0x{code} ({words})")
    (found,) = judge(node(asked, recovery={GPU: code}))
    assert (found["code"], found["severity"]) == ("XID_UNKNOWN", "notice")
    assert found["message"].endswith(f"not known: the driver asks for: {words}")
    (found,) = judge(node(event(95), asked, recovery={GPU: code}))
    assert (found["code"], found["remedy"]) == ("GPU_ERROR_LOGGED", RESET)
    assert found["message"].endswith(f"; the driver asks for: {words}")


REBOOT = "… from 0x0 (None) to 0x2 (Node Reboot Required)"
# The driver reports it for every GPU.
ALL_ASK = (event(154, REBOOT), event(154, REBOOT, address=OTHER))


def test_a_gpu_is_not_accused_of_the_reboot_that_another_one_needs() -> None:
    (found,) = judge(node(*ALL_ASK, event(119), recovery={GPU: 2, OTHER: 2}))
    assert GPU in found["message"]
    assert OTHER not in found["message"]
    assert found["remedy"] == f"drain the node, and reboot it{CATALOGUE}"


@pytest.mark.parametrize("events", [(), (event(79),)], ids=["in nvidia-smi", "and in the log"])
def test_nor_if_another_finding_names_that_one(events: Any) -> None:
    lost = [device(0, GPU, "GPU is lost"), device(1, OTHER)]
    assert judge(node(*ALL_ASK, *events, devices=lost, recovery={GPU: 2, OTHER: 2})) == []


def test_a_reboot_without_a_known_cause_is_one_finding() -> None:
    (found,) = judge(node(*ALL_ASK, event(31), recovery={GPU: 2, OTHER: 2}))
    assert (found["code"], found["remedy"]) == (
        "GPU_ERROR_LOGGED",
        f"drain the node, and reboot it{CATALOGUE}",
    )
    assert found["message"].endswith(
        "the GPUs 0000:03:00.0 (GPU-0), 0000:82:00.0 (GPU-1) cannot be relied on: the driver asks"
        " for: Node Reboot Required"
    )


def test_a_request_whose_line_is_not_listed_counts() -> None:
    (found,) = judge(node(recovery={GPU: 4}, unlisted=9))
    assert found["message"].endswith("the driver asks for: a recovery action")
    assert found["remedy"] == RESET


def test_unknown_errors_beside_a_reboot_are_shown() -> None:
    found = judge(node(*ALL_ASK, event(167), event(79, address=OTHER), recovery={GPU: 2, OTHER: 2}))
    assert [one["code"] for one in found] == ["XID_UNKNOWN", "GPU_ERROR_LOGGED"]


def test_each_gpu_has_its_finding() -> None:
    found = judge(node(event(79), event(48, address=OTHER)))
    assert [GPU in one["message"] for one in found] == [True, False]
    assert [OTHER in one["message"] for one in found] == [False, True]


def test_the_log_knows_the_uuid_of_a_gpu_that_is_gone() -> None:
    gone = "0000:99:00.0"
    (found,) = judge(node(event(79, address=gone), uuids={gone: "GPU-gone"}))
    assert "the GPU 0000:99:00.0 (GPU-gone) cannot" in found["message"]


@pytest.mark.parametrize("number", [999, 51, 167, 176])
def test_a_number_that_nobody_knows_is_shown(number: int) -> None:
    (found,) = judge(node(event(number, "BAD_TSG encountered")))
    assert (found["code"], found["severity"]) == ("XID_UNKNOWN", "notice")
    assert f"Xid {number} (" in found["message"]
    assert found["message"].endswith(": BAD_TSG encountered")


ENDED = "pid=1, name=python3, Ch 00000001 caused by previous Xid {}"


@pytest.mark.parametrize(
    ("number", "line", "codes"),
    [
        (149, FATAL_LINK, ["GPU_ERROR_LOGGED"]),
        (145, "RLW_REMAP Nonfatal XC0 i0 Link 03 (0x0409a0c2)", []),
        (45, ENDED.format(149), ["GPU_ERROR_LOGGED"]),
        (45, ENDED.format(145), ["GPU_ERROR_LOGGED"]),
        (45, ENDED.format(31), []),
    ],
)
def test_errors_of_nvlink_5_that_end_programs(number: int, line: str, codes: list[str]) -> None:
    """Source: NVIDIA/open-gpu-kernel-modules#1150 and #1355."""
    found = judge(node(event(number, line)))
    assert [one["code"] for one in found] == codes
    assert all(one["remedy"].startswith("drain the node, and reboot it") for one in found)


@pytest.mark.parametrize(
    ("events", "numbers"),
    [
        ([sxid(20034, "Fatal, Link 30 LTSSM Fault Up")], ["SXid 20034 once"]),
        ([sxid(23001, "Non-fatal, whatever it says")], ["SXid 23001 once"]),
        ([sxid(20034, "Fatal, Link 30 LTSSM Fault Up"), event(79)], []),
        ([sxid(20034, "Fatal, Link 30"), sxid(22003, "Fatal, x"), event(None)], ["SXid 22003"]),
    ],
    ids=["fatal", "fatal in spite of its word", "a GPU fell off", "and another error"],
)
def test_nvswitches(events: list[dict[str, Any]], numbers: list[str]) -> None:
    found = [one for one in judge(node(*events)) if one["code"] == "NVSWITCH_ERROR_LOGGED"]
    assert len(found) == bool(numbers)
    for words, one in zip(numbers, found, strict=True):
        assert f"the NVSwitch {SWITCH}: {words}" in one["message"]
        assert one["severity"] == "failure"


@pytest.mark.parametrize(
    "devices",
    [[device(1, OTHER)], [device(0, GPU, "GPU is lost"), device(1, OTHER)]],
    ids=["without a row", "with an error"],
)
def test_a_gpu_that_another_finding_names_is_explained_there(devices: Any) -> None:
    seen = node(event(79, "GPU has fallen off the bus."), event(48, address=OTHER), devices=devices)
    (of_hardware,) = judge_hardware("gpu-1", seen, None)
    assert of_hardware["message"].endswith(
        "; the driver logged about 0000:03:00.0: Xid 79 (GPU off the bus) once, last at"
        " 2026-11-22T14:03Z: GPU has fallen off the bus"
    )
    assert [OTHER in one["message"] for one in judge(seen)] == [True]


def test_without_errors_nothing_is_quoted() -> None:
    assert quote_log(node(event(63), event(154)), [GPU]) == ""
    assert "asks for" in quote_log(node(event(154, "to 0x1 (PF FLR)"), recovery={GPU: 1}), [GPU])


def test_a_silent_log_is_named_where_it_could_explain_something() -> None:
    seen = node(sources=[], error=REFUSED)
    (found,) = judge_kernel_log("gpu-1", seen, set(), is_needed=True)
    assert (found["code"], found["severity"]) == ("KERNEL_LOG_UNREADABLE", "notice")
    assert found["message"].endswith(f"cannot be read: {REFUSED}")


def test_a_log_without_its_older_lines_is_named_where_it_could_explain_something() -> None:
    seen = node(error="journalctl: No journal files were found.")
    assert judge(seen) == []
    (found,) = judge_kernel_log("gpu-1", seen, set(), is_needed=True)
    assert (found["code"], found["severity"]) == ("KERNEL_LOG_UNREADABLE", "notice")
    assert found["message"].endswith(
        "was read only in part, and older lines are missing: journalctl: No journal files were"
        " found."
    )


def test_lines_that_are_left_out_are_named_where_they_could_explain_something() -> None:
    seen = node(unlisted=101)
    assert judge(seen) == []
    (found,) = judge_kernel_log("gpu-1", seen, set(), is_needed=True)
    assert (found["code"], found["severity"]) == ("KERNEL_LOG_UNREADABLE", "notice")
    assert found["message"].endswith(
        "has more different errors than are kept: 101 lines are left out"
    )


def test_every_action_has_a_remedy() -> None:
    broken = {one.action for one in xids.XIDS.values() if one.tier in ("hardware", "reset")}
    assert broken | {*xids.RECOVERY.values()} == {*kernel_log._REMEDIES}
