# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What GPUs report of themselves, and what follows. Reports are written from the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import parse_report
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
from ansible_collections.metal.gpu.plugins.module_utils.verdict.health_words import (
    _ACTIONS,
    DRAIN_P2P,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import _judge_gpus
from ansible_collections.metal.gpu.tests.unit.support import done, smi_xml

ADDRESSES = ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"]
FIRST = ADDRESSES[0]
MACHINES = {
    "p100x4": ("pascal", 4, {}),
    "v100x4": ("volta", 4, {}),
    "t4x1": ("turing", 1, {}),
    "a100x8": ("ampere", 8, {}),
    "l40sx4": ("ada", 4, {}),
    "h100x8": ("hopper", 8, smi_xml.COMPLETED),
    "b200x8": ("blackwell", 8, {**smi_xml.COMPLETED, "fabric/health/summary": "Healthy"}),
}
BRANCHES = (470, 535, 550, 570, 580, 595)
SLOTS = [f"0000:{bus:02x}:00.0" for bus in range(3, 11)]
ECC = "ecc_errors/volatile/dram_uncorrectable"
ROWS = "remapped_rows/remapped_row"
MIG_ON = {"mig_mode/current_mig": "Enabled", "mig_mode/pending_mig": "Enabled"}
CLOCK = "clocks_event_reasons/clocks_event_reason_"
LINK = "pci/pci_gpu_link_info"
WIDTH, GENERATION = f"{LINK}/link_widths/current_link_width", f"{LINK}/pcie_gen/max_link_gen"


def node(
    changes: Mapping[str, Mapping[str, str | None]] | None = None,
    *,
    generation: str = "hopper",
    branch: int = 580,
    addresses: list[str] = ADDRESSES,
    names: Mapping[str, str] | None = None,
    events: Any = (),
    **more: Any,
) -> dict[str, Any]:
    gpus = [
        {
            "address": address,
            "uuid": f"GPU-{number:08}-0000-0000-0000-000000000000",
            "name": (names or {}).get(address, "a model"),
        }
        for number, address in enumerate(addresses)
    ]
    report = parse_report(Output(0, smi_xml.report(gpus, generation, branch, changes), ""))
    devices = [
        {
            "index": number,
            "name": gpu["name"],
            "pci_address": gpu["address"],
            "uuid": gpu["uuid"],
            "error": None,
        }
        for number, gpu in enumerate(gpus)
    ]
    log = done.node()["kernel_log"]
    return {
        **done.node(),
        "pci": done.bus(addresses),
        "nvml": {"devices": devices, "failure": None, "complete": True},
        "fabric": {"switches": []},
        "health": report,
        "kernel_log": {**log, "events": list(events)},
        **more,
    }


def judge(seen: Any) -> list[dict[str, str]]:
    return _judge_gpus("gpu-1", seen, None)


def xid(number: int, address: str = FIRST) -> dict[str, Any]:
    return {
        "source": "xid",
        "address": address,
        "number": number,
        "count": 1,
        "first": 600,
        "last": 600,
        "last_date": "2026-11-22T14:03Z",
        "line": "words",
    }


# -------------------------------------------------------------------------------------------------
# Healthy


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("machine", MACHINES)
def test_healthy_machines(machine: str, branch: int) -> None:
    generation, count, changes = MACHINES[machine]
    seen = node({"*": changes}, generation=generation, branch=branch, addresses=SLOTS[:count])
    assert judge(seen) == []


def test_healthy_machine_with_two_models() -> None:
    names = dict(zip(ADDRESSES, ("P100", "P100", "T4", "T4"), strict=True))
    changes = {address: {WIDTH: "8x", GENERATION: "2"} for address in ADDRESSES[:2]}
    assert judge(node(changes, names=names)) == []


@pytest.mark.parametrize("row", smi_xml.RECORD["healthy"], ids=lambda row: row["path"])
@pytest.mark.parametrize("extent", [FIRST, "*"])
def test_what_only_looks_bad(row: dict[str, Any], extent: str) -> None:
    if row["path"] == WIDTH:  # the siblings of such a GPU have the same
        extent = "*"
    paths = [path for path in smi_xml.values("hopper") if path.startswith(f"{row['path']}/")]
    changes = {**dict.fromkeys(paths), row["path"]: row["value"], **row.get("with", {})}
    assert judge(node({extent: changes})) == []


@pytest.mark.parametrize("words", [row["words"] for row in smi_xml.RECORD["no values"]])
@pytest.mark.parametrize("path", smi_xml.values("hopper"))
def test_one_odd_cell_is_no_evidence(path: str, words: str) -> None:
    assert judge(node({FIRST: {path: words}})) == []


@pytest.mark.parametrize(
    "changes",
    [
        {FIRST: {f"{CLOCK}sw_thermal_slowdown": "Active"}},
        {FIRST: {f"{CLOCK}sync_boost": "Active"}},
        # How a machine is wired: half of the slots have fewer lanes.
        {address: {WIDTH: "8x"} for address in ADDRESSES[:2]},
        {FIRST: {WIDTH: "N/A"}},
    ],
)
def test_what_is_not_judged(changes: Any) -> None:
    assert judge(node(changes)) == []


# -------------------------------------------------------------------------------------------------
# Not healthy

RESET = "`nvidia-smi --gpu-reset -i 0000:03:00.0`"
DIAGNOSTIC = "run NVIDIA's field diagnostic"


@pytest.mark.parametrize(
    ("values", "code", "words", "remedy"),
    [
        ({ECC: "2"}, "GPU_UNRELIABLE", "memory errors since the last reset: 2", RESET),
        (  # no row replaces SRAM
            {"ecc_errors/volatile/sram_uncorrectable_parity": "5", f"{ROWS}_pending": "Yes"},
            "GPU_UNRELIABLE",
            "SRAM errors since the last reset: 5",
            RESET,
        ),
        ({f"{ROWS}_failure": "Yes"}, "GPU_UNRELIABLE", "row remapping failed", DIAGNOSTIC),
        (
            {"ecc_errors/aggregate/sram_threshold_exceeded": "Yes"},
            "GPU_UNRELIABLE",
            "NVIDIA's threshold",
            DIAGNOSTIC,
        ),
        (
            {"ecc_errors/unrepairable_memory": "Yes"},
            "GPU_UNRELIABLE",
            "cannot be repaired",
            DIAGNOSTIC,
        ),
        ({"gpu_recovery_action": "Reset"}, "GPU_UNRELIABLE", "asks for: Reset", RESET),
        (
            {"gpu_recovery_action": "Drain and Reset"},
            "GPU_UNRELIABLE",
            "asks for: Drain and Reset",
            RESET,
        ),
        (
            {"gpu_recovery_action": "Reboot"},
            "GPU_UNRELIABLE",
            "asks for: Reboot",
            "drain the node, and reboot it; if `nvidia-smi -q`",
        ),
        (
            {"gpu_recovery_action": "Drain P2P"},
            "GPU_ACTION_DUE",
            ": Drain P2P",
            "end the programs that copy between GPUs",
        ),
        (
            {"gpu_recovery_action": "Recover IMEX Domain"},
            "GPU_ACTION_DUE",
            ": Recover IMEX Domain",
            "search for these words",
        ),
        ({f"{ROWS}_pending": "Yes"}, "GPU_RESET_DUE", "spare rows replace", "--gpu-reset"),
        # The row is replaced for these errors.
        ({f"{ROWS}_pending": "Yes", ECC: "1"}, "GPU_RESET_DUE", "spare rows replace", ""),
        ({"retired_pages/pending_retirement": "Yes"}, "GPU_RESET_DUE", "pages of memory", ""),
        ({"ecc_errors/channel_repair_pending": "Yes"}, "GPU_RESET_DUE", "a memory channel", ""),
        ({"ecc_errors/tpc_repair_pending": "Yes"}, "GPU_RESET_DUE", "a TPC is repaired", ""),
        ({f"{CLOCK}hw_thermal_slowdown": "Active"}, "GPU_THROTTLED", "too hot", "fans"),
        ({f"{CLOCK}hw_power_brake_slowdown": "Active"}, "GPU_THROTTLED", "power supply", ""),
        ({f"{CLOCK}hw_slowdown": "Active"}, "GPU_THROTTLED", "without a reason", ""),
        (
            {f"{CLOCK}hw_slowdown": "Active", f"{CLOCK}hw_thermal_slowdown": "Active"},
            "GPU_THROTTLED",
            "at this moment: too hot",
            "",
        ),
        ({WIDTH: "4x"}, "PCIE_LINK_DIFFERS", "0000:03:00.0 uses 4 lanes, and its siblings", ""),
        ({GENERATION: "3"}, "PCIE_LINK_DIFFERS", "supports PCIe generation 3 in its slot", ""),
        ({"compute_mode": "Prohibited"}, "COMPUTE_PROHIBITED", "error 46", "-c DEFAULT"),
        ({"compute_mode": "Exclusive_Process"}, "COMPUTE_EXCLUSIVE", "a second CUDA", "MPS"),
        ({"mig_mode/pending_mig": "Enabled"}, "MIG_MODE_PENDING", "Disabled now, Enabled then", ""),
        (MIG_ON, "MIG_EMPTY", "no MIG instance", "-mig 0"),
    ],
)
def test_one_gpu_of_four(values: dict[str, str], code: str, words: str, remedy: str) -> None:
    seen = node({FIRST: values})
    (found,) = judge(seen)
    assert found["code"] == code
    assert words in found["message"]
    assert FIRST in found["message"]
    assert not any(address in found["message"] for address in ADDRESSES[1:])
    assert remedy in found["remedy"]


def test_everything_at_once_is_one_finding() -> None:
    values = {
        ECC: "2",
        f"{ROWS}_failure": "Yes",
        "gpu_recovery_action": "Drain and Reset",
        "ecc_errors/tpc_repair_pending": "Yes",
        f"{CLOCK}hw_thermal_slowdown": "Active",
        WIDTH: "1x",
    }
    (found,) = judge(node({FIRST: values}))
    assert found["message"].partition("report: ")[2] == (
        "row remapping failed, so defective memory stays in use, "
        "the driver asks for: Drain and Reset, "
        "uncorrected memory errors since the last reset: 2, at the next reset, a TPC is repaired"
    )


@pytest.mark.parametrize("code", ["GPU_RESET_DUE", "MIG_MODE_PENDING", "COMPUTE_EXCLUSIVE"])
def test_all_gpus_are_one_finding(code: str) -> None:
    values = {
        f"{ROWS}_pending": "Yes",
        "mig_mode/pending_mig": "Enabled",
        "compute_mode": "Exclusive_Process",
    }
    (found,) = (one for one in judge(node({"*": values})) if one["code"] == code)
    assert all(address in found["message"] for address in ADDRESSES)
    assert found["severity"] == "notice"


@pytest.mark.parametrize(
    ("widths", "named"),
    [
        (("16x", "8x"), [1]),
        (("16x", "16x", "8x", "16x"), [2]),
        (("16x", "8x", "8x", "8x"), []),  # which one of them is right is not known
        (("16x", "16x", "8x", "8x"), []),
        (("8x", "8x", "8x", "8x"), []),
        (("8x",), []),
    ],
)
def test_links_of_siblings(widths: tuple[str, ...], named: list[int]) -> None:
    addresses = ADDRESSES[: len(widths)]
    changes = {one: {WIDTH: width} for one, width in zip(addresses, widths, strict=True)}
    messages = " ".join(one["message"] for one in judge(node(changes, addresses=addresses)))
    assert [number for number, one in enumerate(addresses) if one in messages] == named


# -------------------------------------------------------------------------------------------------
# One cause, one finding


def test_a_gpu_that_nvidia_smi_shows_as_broken() -> None:
    seen = node({FIRST: {"gpu_recovery_action": "Reset", ECC: "1"}})
    seen["nvml"]["devices"][0]["error"] = "[GPU requires reset]"
    (found,) = judge(seen)
    assert found["code"] == "GPU_FAULTY"
    assert "`nvidia-smi -q` reports about 0000:03:00.0: the driver asks for: Reset" in str(found)


@pytest.mark.parametrize("number", [48, 64, 95])
def test_the_kernel_log_is_evidence_of_the_report(number: int) -> None:
    (found,) = judge(node({FIRST: {f"{ROWS}_failure": "Yes"}}, events=[xid(number)]))
    assert found["code"] == "GPU_UNRELIABLE"
    assert f"Xid {number}" in found["message"]
    assert DIAGNOSTIC in found["remedy"]


def test_the_remedy_is_the_strongest_of_both() -> None:
    seen = node({FIRST: {"gpu_recovery_action": "Reset"}}, events=[xid(79)])
    (found,) = judge(seen)
    assert found["remedy"].startswith("drain the node, and reboot it; if")
    seen = node({FIRST: {"gpu_recovery_action": "Reset"}}, events=[xid(54)])
    assert "power cables" in judge(seen)[0]["remedy"]


def test_what_waits_for_a_reset_is_evidence_of_the_logged_error() -> None:
    (found,) = judge(node({FIRST: {f"{ROWS}_pending": "Yes"}}, events=[xid(95)]))
    assert found["code"] == "GPU_ERROR_LOGGED"
    assert "at the next reset, spare rows replace defective memory" in found["message"]


@pytest.mark.parametrize("number", [63, 94])
def test_a_replaced_row_and_its_log_do_not_contradict(number: int) -> None:
    (found,) = judge(node({FIRST: {f"{ROWS}_pending": "Yes"}}, events=[xid(number)]))
    assert (found["code"], found["severity"]) == ("GPU_RESET_DUE", "notice")


MIG = {
    **MIG_ON,
    "mig_devices/mig_device/index": "0",
    **dict.fromkeys(f"{ROWS}_{one}" for one in ("corr", "unc", "pending", "failure")),
    ECC: "1",
}


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([63], "GPU_RESET_DUE"),
        ([94], "GPU_RESET_DUE"),
        ([63, 94, 45], "GPU_RESET_DUE"),  # the program ended, too
        ([], "GPU_UNRELIABLE"),
        ([45], "GPU_UNRELIABLE"),
        ([63, 95], "GPU_UNRELIABLE"),
        ([63, 48], "GPU_UNRELIABLE"),
    ],
)
def test_with_mig_the_log_shows_a_row_that_was_replaced(numbers: list[int], code: str) -> None:
    (found,) = judge(node({FIRST: MIG}, events=[xid(number) for number in numbers]))
    assert found["code"] == code
    assert FIRST in found["message"]


def test_without_mig_the_log_does_not_excuse_an_error() -> None:
    values = {**MIG, "mig_mode/current_mig": "Disabled", "mig_mode/pending_mig": "Disabled"}
    assert [one["code"] for one in judge(node({FIRST: values}, events=[xid(63)]))] == [
        "GPU_UNRELIABLE"
    ]


def test_a_reset_that_is_due_names_what_must_be_reset() -> None:
    due = {address: {f"{ROWS}_pending": "Yes"} for address in ADDRESSES[:2]}
    (found,) = judge(node(due))
    assert f"--gpu-reset -i {ADDRESSES[0]},{ADDRESSES[1]}`" in found["remedy"]
    (found,) = judge(node(due, fabric={"switches": [{"address": "0000:05:00.0"}]}))
    assert "reset all its GPUs (`nvidia-smi --gpu-reset`" in found["remedy"]
    assert "ADDRESS" not in found["remedy"]


def test_other_gpus_are_judged_beside_a_broken_one() -> None:
    seen = node({FIRST: {ECC: "1"}, ADDRESSES[1]: {f"{ROWS}_pending": "Yes"}})
    assert [one["code"] for one in judge(seen)] == ["GPU_UNRELIABLE", "GPU_RESET_DUE"]


# -------------------------------------------------------------------------------------------------
# What the driver asks for

REBOOT = {"*": {"gpu_recovery_action": "Reboot"}}
LOGGED = {
    "events": [
        {**xid(154, address), "line": "(None) to 0x2 (Node Reboot Required)"}
        for address in ADDRESSES
    ],
    "recovery": dict.fromkeys(ADDRESSES, 2),
}


def asking_for_reboot(changes: Any = None, *, is_logged: bool = False) -> dict[str, Any]:
    seen = node({**REBOOT, **(changes or {})})
    if is_logged:
        seen["kernel_log"] |= LOGGED
    return seen


@pytest.mark.parametrize("is_logged", [False, True])
@pytest.mark.parametrize("is_reported", [False, True])
def test_gpus_are_not_accused_of_the_reboot_that_a_lost_one_needs(
    *, is_logged: bool, is_reported: bool
) -> None:
    seen = asking_for_reboot(is_logged=is_logged)
    seen["nvml"]["devices"][2]["error"] = "GPU is lost"
    if not is_reported:
        del seen["health"]["gpus"][2]
    assert [one["code"] for one in judge(seen)] == ["GPU_FAULTY"]


@pytest.mark.parametrize("is_logged", [False, True])
def test_nor_of_the_one_that_an_unreliable_gpu_needs(*, is_logged: bool) -> None:
    changes = {FIRST: {"gpu_recovery_action": "Reboot", f"{ROWS}_failure": "Yes"}}
    (found,) = judge(asking_for_reboot(changes, is_logged=is_logged))
    assert FIRST in found["message"]
    assert not any(address in found["message"] for address in ADDRESSES[1:])


@pytest.mark.parametrize("is_logged", [False, True])
def test_nor_of_the_one_after_a_logged_error(*, is_logged: bool) -> None:
    seen = asking_for_reboot(is_logged=is_logged)
    seen["kernel_log"]["events"] = [*seen["kernel_log"]["events"], xid(119)]
    (found,) = judge(seen)
    assert "Xid 119" in found["message"]
    assert not any(address in found["message"] for address in ADDRESSES[1:])
    assert found["remedy"].startswith("drain the node, and reboot it;")


@pytest.mark.parametrize(
    ("is_logged", "code"), [(False, "GPU_UNRELIABLE"), (True, "GPU_ERROR_LOGGED")]
)
def test_a_reboot_without_a_known_cause_is_one_finding(*, is_logged: bool, code: str) -> None:
    (found,) = judge(asking_for_reboot(is_logged=is_logged))
    assert found["code"] == code
    assert all(address in found["message"] for address in ADDRESSES)
    assert found["remedy"].startswith("drain the node, and reboot it;")


def test_what_waits_for_a_reset_is_shown_beside_a_reboot() -> None:
    changes = {FIRST: {"gpu_recovery_action": "Reboot", f"{ROWS}_pending": "Yes"}}
    codes = [one["code"] for one in judge(asking_for_reboot(changes))]
    assert codes == ["GPU_UNRELIABLE", "GPU_RESET_DUE"]


@pytest.mark.parametrize("words", ["Drain P2P", "Recover IMEX Domain", "Something new"])
def test_the_report_and_the_log_agree(words: str) -> None:
    seen = node({"*": {"gpu_recovery_action": words}})
    (found,) = judge(seen)
    assert (found["code"], found["severity"]) == ("GPU_ACTION_DUE", "notice")
    seen["kernel_log"] |= {"events": [{**xid(154), "line": f"({words})"}], "recovery": {FIRST: 7}}
    notices = judge(seen)
    assert [one["code"] for one in notices] == ["XID_UNKNOWN", "GPU_ACTION_DUE"]
    assert [FIRST in one["message"] for one in notices] == [True, False]


# -------------------------------------------------------------------------------------------------
# Reports that are missing


def test_no_report() -> None:
    seen = node(health={"gpus": [], "error": "`nvidia-smi -q -x` did not end within 60 s"})
    (found,) = judge(seen)
    assert found["code"] == "GPU_HEALTH_UNKNOWN"
    assert "did not end" in found["message"]


def test_half_a_report_names_the_rest() -> None:
    seen = node()
    seen["health"] |= {"gpus": seen["health"]["gpus"][:2], "error": "it ended in the middle"}
    (found,) = judge(seen)
    assert ADDRESSES[1] not in found["message"]
    assert all(address in found["message"] for address in ADDRESSES[2:])


def test_the_first_query_says_it_already() -> None:
    seen = node(health={"gpus": [], "error": "it printed no report"})
    seen["nvml"] |= {"complete": False, "failure": {"message": "GPU is lost"}}
    seen["nvml"]["devices"][0]["error"] = "GPU is lost"
    assert [one["code"] for one in judge(seen)] == ["GPU_FAULTY"]


def test_recorded_actions_have_a_remedy() -> None:
    rows = smi_xml.RECORD["recovery actions"]
    assert {row["words"].lower() for row in rows} <= {*_ACTIONS, DRAIN_P2P}
    assert yaml.safe_load("None") == "None"  # the record's word is a text
