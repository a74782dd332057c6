# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reports are written from the record of real ones: tests/recorded/nvidia_smi_xml.yml."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import limited
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_smi_lines, nvidia_smi_xml
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output
from ansible_collections.metal.gpu.tests.unit.support import smi_xml

GPUS = [
    {
        "address": f"0000:{bus}:00.0",
        "uuid": f"GPU-0000000{number}-0000-0000-0000-000000000000",
        "name": "NVIDIA H100 80GB HBM3",
    }
    for number, bus in enumerate(("53", "64"))
]
FIRST = GPUS[0]["address"]


def parse(
    generation: str = "hopper", branch: int = 580, changes: Any = None
) -> nvidia_smi_xml.Report:
    text = smi_xml.report(GPUS, generation, branch, changes)
    return nvidia_smi_xml.parse_report(Output(0, text, ""))


def parse_text(text: str, rc: int | None = 0, stderr: str = "") -> nvidia_smi_xml.Report:
    return nvidia_smi_xml.parse_report(Output(rc, text, stderr))


GENERATIONS = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")


@pytest.mark.parametrize("branch", [470, 535, 550, 570, 580, 595])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_healthy_gpus(generation: str, branch: int) -> None:
    found = parse(generation, branch)
    assert (found["cuda_version"], found["error"]) == ("13.0", None)
    assert [gpu["pci_address"] for gpu in found["gpus"]] == [gpu["address"] for gpu in GPUS]
    for gpu in found["gpus"]:
        assert gpu["recovery_action"] in (None, "None")
        assert gpu["uncorrected"] == 0
        assert gpu["clocks"] == ["gpu_idle"]
        assert gpu["link"]["width"] == gpu["link"]["max_width"] == 16
        assert gpu["compute_mode"] == "Default"
        bad = ("sram_threshold_exceeded", "unrepairable_memory", "remap_pending", "remap_failed")
        assert not any(gpu[name] for name in (*bad, "pages_pending", "repairs_pending"))


def test_what_a_branch_does_not_have_is_not_known() -> None:
    (old, _other), (new, _another) = parse("ampere", 550)["gpus"], parse("ampere", 580)["gpus"]
    assert (old["recovery_action"], new["recovery_action"]) == ("None", "None")
    assert (old["remap_failed"], parse("turing")["gpus"][0]["remap_failed"]) == (False, None)
    assert parse("hopper", 470)["gpus"][0]["fabric"] is None


@pytest.mark.parametrize(
    ("path", "value", "name", "expected"),
    [
        ("gpu_recovery_action", "Drain and Reset", "recovery_action", "Drain and Reset"),
        ("gpu_recovery_action", "[Reset]", "recovery_action", "Reset"),
        ("gpu_recovery_action", "Something new", "recovery_action", "Something new"),
        ("ecc_errors/volatile/dram_uncorrectable", "2", "uncorrected", 2),
        ("ecc_errors/volatile/sram_uncorrectable_secded", "1", "uncorrected", 1),
        ("ecc_errors/volatile/sram_uncorrectable", "4", "uncorrected", 4),
        ("ecc_errors/volatile/sram_uncorrectable_secded", "1", "uncorrected_sram", 1),
        ("ecc_errors/volatile/sram_uncorrectable", "4", "uncorrected_sram", 4),
        ("ecc_errors/volatile/dram_uncorrectable", "4", "uncorrected_sram", 0),
        ("ecc_errors/volatile/double_bit/total", "3", "uncorrected", 3),
        ("ecc_errors/aggregate/dram_uncorrectable", "7", "uncorrected_ever", 7),
        ("ecc_errors/aggregate/sram_threshold_exceeded", "Yes", "sram_threshold_exceeded", True),
        ("ecc_errors/unrepairable_memory", "Yes", "unrepairable_memory", True),
        ("ecc_errors/channel_repair_pending", "Yes", "repairs_pending", ["channel"]),
        ("ecc_errors/tpc_repair_pending", "Yes", "repairs_pending", ["tpc"]),
        ("remapped_rows/remapped_row_unc", "3", "remapped", 3),
        ("remapped_rows/remapped_row_pending", "Yes", "remap_pending", True),
        ("remapped_rows/remapped_row_failure", "Yes", "remap_failed", True),
        ("remapped_rows/remapped_row_failure", "1", "remap_failed", None),
        ("retired_pages/pending_retirement", "Yes", "pages_pending", True),
        ("retired_pages/double_bit_retirement/retired_count", "5", "pages_retired", 5),
        ("mig_mode/pending_mig", "Enabled", "mig_pending", "Enabled"),
        ("mig_devices", "N/A", "mig_instances", None),
        ("mig_devices", None, "mig_instances", None),
        ("compute_mode", "Prohibited", "compute_mode", "Prohibited"),
    ],
)
def test_values(path: str, value: str, name: str, expected: Any) -> None:
    changed, other = parse(changes={FIRST: {path: value}})["gpus"]
    assert changed[name] == expected  # type: ignore[literal-required]
    assert other == parse()["gpus"][1]


def test_mig_instances() -> None:
    """The text below mig_devices as it is recorded; what is no number is not known."""
    row = smi_xml.RECORD["instances"]
    _gpu, whole = parse()["gpus"]
    assert whole["mig_instances"] == []
    names = row["elements"]
    numbers = [dict(zip(names, one, strict=True)) for one in ((0, 7, 0), (1, 13, 1), (2, "N/A", 0))]
    devices = "".join(
        f"<mig_device>{''.join(f'<{key}>{n}</{key}>' for key, n in one.items())}"
        "<device_attributes><shared/></device_attributes></mig_device>"
        for one in numbers
    )
    text = smi_xml.report(GPUS, "hopper").replace(
        "<mig_devices>None</mig_devices>", f"<mig_devices>\n{devices}</mig_devices>", 1
    )
    found, _other = parse_text(text)["gpus"]
    ids = [
        (one["index"], one["gpu_instance"], one["compute_instance"], one["files"])
        for one in found["mig_instances"] or ()
    ]
    assert ids == [(0, 7, 0, []), (1, 13, 1, []), (2, None, 0, [])]


@pytest.mark.parametrize(
    ("counts", "sram"), [((0, 3), 3), ((1, 2), 3), ((0, 0), 0), (("N/A", "N/A"), None)]
)
def test_errors_are_counted_at_mig_instances(counts: Any, sram: int | None) -> None:
    """The counters of their GPU are not offered then. Source: netdata, a100-sxm4-mig.xml."""
    devices = "".join(
        "<mig_device><ecc_error_count>\n\t<volatile_count>\n\t\t<sram_uncorrectable>"
        f"{count}</sram_uncorrectable></volatile_count></ecc_error_count></mig_device>"
        for count in counts
    )
    values = {path: "N/A" for path in smi_xml.values("hopper") if "ecc_errors/volatile" in path}
    text = smi_xml.report(GPUS, "hopper", changes={FIRST: values}).replace(
        "<mig_devices>None</mig_devices>", f"<mig_devices>\n{devices}</mig_devices>", 1
    )
    found, _other = parse_text(text)["gpus"]
    assert (found["uncorrected"], found["uncorrected_sram"]) == (sram, sram)


@pytest.mark.parametrize("kind", ["event", "throttle"])
def test_reasons_of_slow_clocks(kind: str) -> None:
    name = f"clocks_{kind}_reasons/clocks_{kind}_reason_hw_thermal_slowdown"
    found = parse("hopper", 580 if kind == "event" else 470, {FIRST: {name: "Active"}})
    assert found["gpus"][0]["clocks"] == ["gpu_idle", "hw_thermal_slowdown"]


@pytest.mark.parametrize(
    ("values", "action"),
    [
        ({"reset_required": "No"}, "None"),
        ({"reset_required": "Yes"}, "Reset"),
        ({"reset_required": "No", "drain_and_reset_recommended": "Yes"}, "Drain and Reset"),
        ({"reset_required": "N/A", "drain_and_reset_recommended": "N/A"}, None),
        ({"reset_required": "Requested functionality has been deprecated"}, None),
    ],
)
def test_drivers_without_a_recovery_action(values: dict[str, str], action: str | None) -> None:
    changes = {f"gpu_reset_status/{name}": value for name, value in values.items()}
    assert parse("ampere", 550, {"*": changes})["gpus"][0]["recovery_action"] == action


@pytest.mark.parametrize("words", [row["words"] for row in smi_xml.RECORD["no values"]])
def test_an_error_in_the_place_of_values_is_no_value(words: str) -> None:
    (gpu, _other) = parse("hopper", 580, {FIRST: dict.fromkeys(smi_xml.values("hopper"), words)})[
        "gpus"
    ]
    known = {name: value for name, value in gpu.items() if value not in (None, [])}
    assert set(known) == {"pci_address", "uuid", "model", "link", "fabric"}
    assert set(gpu["link"].values()) == {None}


@pytest.mark.parametrize("row", smi_xml.RECORD["recovery actions"], ids=lambda row: row["words"])
def test_recorded_actions(row: dict[str, Any]) -> None:
    found = parse(changes={FIRST: {"gpu_recovery_action": row["words"]}})
    assert found["gpus"][0]["recovery_action"] == row["words"]


# -------------------------------------------------------------------------------------------------
# Reports that are not whole

WHOLE = smi_xml.report(GPUS, "hopper")
SECOND_GPU = WHOLE.index("<gpu", WHOLE.index("</gpu>"))


@pytest.mark.parametrize(
    ("text", "rc", "gpus", "error"),
    [
        pytest.param(WHOLE, 0, 2, None, id="whole"),
        pytest.param(f"{WHOLE}WARNING: infoROM is corrupted\n", 0, 2, None, id="words after it"),
        pytest.param(WHOLE[: SECOND_GPU + 300], 0, 1, "in the middle of its report", id="cut"),
        pytest.param(WHOLE[:200], 0, 0, "in the middle of its report", id="cut in the head"),
        pytest.param("", None, 0, "did not end within 60 s", id="hangs"),
        pytest.param(WHOLE[: SECOND_GPU + 300], None, 1, "did not end", id="hangs halfway"),
        pytest.param("", 0, 0, "printed nothing", id="nothing"),
        pytest.param("\x1b[2J\x00,\ufffd", 0, 0, "printed no report: ?[2J?,", id="garbage"),
        pytest.param("NVIDIA-SMI has failed\n", 9, 0, "NVIDIA-SMI has failed", id="no driver"),
        pytest.param(WHOLE.replace("</uuid>", "<uuid>", 1), 0, 1, "no valid XML", id="not closed"),
        pytest.param(WHOLE.replace("00000000:53", "53", 1), 0, 1, "no valid XML", id="no address"),
        pytest.param(
            WHOLE.replace("<gpu id=", "<gpu>", 1), 0, 1, "1 of 2 GPUs", id="a tag that is garbled"
        ),
    ],
)
def test_reports(text: str, rc: int | None, gpus: int, error: str | None) -> None:
    found = parse_text(text, rc)
    assert len(found["gpus"]) == gpus
    assert (error or "") in (found["error"] or "")
    assert bool(found["error"]) is bool(error)


def test_not_run() -> None:
    assert nvidia_smi_xml.parse_report(None)["error"] == "`nvidia-smi -q -x` was not run"


def test_entities_are_not_declared() -> None:
    """Of a document that declares some, only the elements of GPUs are parsed."""
    bomb = '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">'
    head = f"<!DOCTYPE nvidia_smi_log [{bomb}]>"
    text = WHOLE.replace("<nvidia_smi_log>", f"{head}<nvidia_smi_log>")
    assert parse_text(text)["gpus"] == parse_text(WHOLE)["gpus"]
    used = parse_text(text.replace("NVIDIA H100", "&b;", 1))
    assert "undefined entity" in (used["error"] or "")
    inside = parse_text(WHOLE.replace("<uuid>", f"{bomb}<uuid>", 1))
    assert "a markup declaration" in (inside["error"] or "")


@pytest.mark.parametrize(
    "processes",
    [
        "<processes><process_info>a < b & c</process_info></processes>",
        "<processes>\n</processes>",
    ],
)
def test_names_of_processes_are_not_parsed(processes: str) -> None:
    text = WHOLE.replace("</gpu>", f"{processes}\n</gpu>", 1)
    assert parse_text(text) == parse_text(WHOLE)


def processes(kind: str, name: str, number: int = 1) -> str:
    info = f"\t\t\t\t<process_name>{name}</process_name>\n"
    one = f"\t\t\t<process_info>\n{info}\t\t\t</process_info>\n"
    return f"\t\t<{kind}>\n{one * number}\t\t</{kind}>\n"


@pytest.mark.parametrize("kind", ["processes", "accounted_processes"])
@pytest.mark.parametrize(
    "name",
    ["</nvidia_smi_log>", "</gpu>", '<gpu id="00000000:99:00.0">', "</processes>", "<processes>"],
)
def test_a_process_can_have_any_name(kind: str, name: str) -> None:
    text = WHOLE.replace("</gpu>", f"{processes(kind, name)}\t</gpu>", 1)
    assert parse_text(text) == parse_text(WHOLE)


def test_a_list_that_is_an_error() -> None:
    words = "<accounted_processes>Insufficient Size</accounted_processes>"
    text = WHOLE.replace("</gpu>", f"\t\t{words}\n\t</gpu>")
    assert parse_text(text) == parse_text(WHOLE)


def test_a_report_without_one_of_its_gpus_is_not_whole() -> None:
    found = parse_text(WHOLE[:SECOND_GPU] + "</nvidia_smi_log>\n")
    assert [gpu["pci_address"] for gpu in found["gpus"]] == [FIRST]
    assert found["error"] == "`nvidia-smi -q -x` printed 1 of 2 GPUs"


@pytest.mark.parametrize("serial", ["\x00\x1b", "A&B", "&", "\udcff", "&amp;"])
def test_one_garbled_value_does_not_cost_the_others(serial: str) -> None:
    text = WHOLE.replace("<uuid>", f"<serial>{serial}</serial><uuid>", 1)
    assert parse_text(text) == parse_text(WHOLE)


PIECES = ('<gpu id="', "<gpu>", '<gpu id="0">', "<processes>", "</gpu>")
LINES = ('<gpu id="0">\n', "<processes>\n", "</gpu>\n", "\n")


@pytest.mark.parametrize("piece", [*PIECES, *LINES])
def test_an_endless_output_costs_no_time(piece: str) -> None:
    text = piece * (nvidia_smi_lines.MAX_BYTES // len(piece))
    started = time.process_time()
    parse_text(text)
    parse_text(f'<nvidia_smi_log>\n<gpu id="00000000:01:00.0">\n{text}\n</gpu>\n')
    assert time.process_time() - started < 10


# -------------------------------------------------------------------------------------------------
# The query


def ask(tmp_path: Path, text: str) -> nvidia_smi_xml.Report:
    """Return the report of a program that prints a text."""
    (tmp_path / "text").write_text(text)
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/text\n")
    program.chmod(0o755)
    query = nvidia_smi_lines.query(str(program))
    return nvidia_smi_xml.parse_report(
        Output(*limited.run(list(query), environ_update={"LC_ALL": "C"}))
    )


@pytest.mark.parametrize("kind", ["processes", "accounted_processes"])
def test_many_processes_do_not_cut_the_report(tmp_path: Path, kind: str) -> None:
    name = "a" * 1200
    text = WHOLE.replace("</gpu>", f"{processes(kind, name, 4000)}\t</gpu>")
    assert len(text) > nvidia_smi_lines.MAX_BYTES
    assert ask(tmp_path, text) == parse_text(WHOLE)


def test_the_query_keeps_everything_else(tmp_path: Path) -> None:
    words = "<accounted_processes>Insufficient Size</accounted_processes>"
    empty = "\t\t<processes>\n\t\t</processes>\n"
    text = WHOLE.replace("</gpu>", f"{empty}\t\t{words}\n\t</gpu>")
    assert ask(tmp_path, text) == parse_text(WHOLE)


def test_the_query_forwards_no_more_than_its_limit(tmp_path: Path) -> None:
    found = ask(tmp_path, WHOLE[:SECOND_GPU] + "<serial>1</serial>\n" * 500_000)
    assert len(found["gpus"]) == 1
    assert f"after {nvidia_smi_lines.MAX_BYTES} characters" in (found["error"] or "")
