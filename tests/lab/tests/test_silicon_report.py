# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`nvidia-smi -q -x` of the stand-in has what the record says of real GPUs."""

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

import metal_lab

RECORD = yaml.safe_load(
    (Path(metal_lab.__file__).parent / "recorded/nvidia_smi_xml.yml").read_text()
)
VERSIONS = ("550.163.01", "570.211.01", "580.178.04", "595.91.07")
# nvml.h, NVML_DEVICE_ARCH_*
ARCHITECTURES = {"pascal": 4, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
GPU = (
    'gpu minor=0 address=0000:03:00.0 uuid=GPU-0 serial=320000000 name="NVIDIA X" memory_mib=16384 '
    "cc=9.0 arch={arch} brand=2 device=2330 subsystem=10de:118f class=0302 numa=0 power_w=250 "
    "mig={mig} persistence=0 state=ok"
)


@pytest.fixture(scope="module", params=VERSIONS)
def driver(request, install):
    return install(request.param)


@pytest.fixture(scope="module")
def newest(install):
    return install(VERSIONS[-1])


def describe(driver, generation, *values, gpus=1, smi=None):
    driver.clear()
    has_mig = generation in ("ampere", "hopper", "blackwell")
    line = GPU.format(arch=ARCHITECTURES[generation], mig=int(has_mig))
    lines = [line.replace("GPU-0", f"GPU-{n}").replace(":03:", f":0{3 + n}:") for n in range(gpus)]
    lines[0] = " ".join([lines[0], *values])
    fault = [f"nvidia_smi {smi}"] if smi else []
    driver.describe("\n".join([f"driver_version {driver.version}", *fault, *lines, "end", ""]))
    for name in ("nvidiactl", "nvidia0"):
        (driver.root / "dev" / name).touch()


def report(driver):
    status, output = driver.smi("-q", "-x")
    assert status == 0
    return output


def gpu(driver):
    return ET.fromstring(report(driver)).find("gpu")


def value(element, path):
    found = element.find(path)
    return None if found is None else (found.text or "").strip()


def in_branch(row, driver):
    branch = int(driver.version.split(".")[0])
    return row.get("first branch", 0) <= branch <= row.get("last branch", 9999)


@pytest.mark.parametrize("generation", ARCHITECTURES)
def test_healthy_gpus(driver, generation):
    describe(driver, generation)
    found = gpu(driver)
    expected = {}
    for row in RECORD["elements"]:
        of = row["values"].get(generation, row["values"].get("all"))
        expected.setdefault(row["path"], None)
        if in_branch(row, driver) and of != "-":
            expected[row["path"]] = of
    assert {path: value(found, path) for path in expected} == expected


def test_the_document(driver):
    describe(driver, "hopper")
    text = report(driver)
    (doctype,) = (row["doctype"] for row in RECORD["schemas"] if in_branch(row, driver))
    assert text.splitlines()[:2] == [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "{doctype}">',
    ]
    root = ET.fromstring(text)
    assert value(root, "driver_version") == driver.version
    assert root.find("gpu").get("id") == value(root, "gpu/pci/pci_bus_id") == "00000000:03:00.0"


@pytest.mark.parametrize(
    ("generation", "values", "path", "expected"),
    [
        ("hopper", "ecc=2", "ecc_errors/volatile/dram_uncorrectable", "2"),
        ("pascal", "ecc=2", "ecc_errors/volatile/double_bit/total", "2"),
        ("ampere", "sram_threshold=1", "ecc_errors/aggregate/sram_threshold_exceeded", "Yes"),
        ("ampere", "remap=1", "remapped_rows/remapped_row_pending", "Yes"),
        ("ampere", "remap=1", "remapped_rows/remapped_row_failure", "No"),
        ("ampere", "remap=2", "remapped_rows/remapped_row_failure", "Yes"),
        ("turing", "pages=1", "retired_pages/pending_retirement", "Yes"),
        ("hopper", "clocks=72", "clocks_event_reasons/clocks_event_reason_hw_slowdown", "Active"),
        ("hopper", "clocks=4", "clocks_event_reasons/clocks_event_reason_sw_power_cap", "Active"),
        ("hopper", "width=8", "pci/pci_gpu_link_info/link_widths/current_link_width", "8x"),
        ("hopper", "generation=2", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "2"),
        ("hopper", "compute=2", "compute_mode", "Prohibited"),
        ("hopper", "compute=3", "compute_mode", "Exclusive_Process"),
        ("hopper", "mig_pending=1", "mig_mode/pending_mig", "Enabled"),
        ("hopper", "fabric=3", "fabric/state", "Completed"),
        ("hopper", "fabric=1", "fabric/state", "Not Started"),
        ("hopper", "fabric=3", "fabric/health/summary", "N/A"),
        ("blackwell", "fabric=3", "fabric/health/summary", "Healthy"),
    ],
)
def test_faults(newest, generation, values, path, expected):
    describe(newest, generation, values)
    assert value(gpu(newest), path) == expected


@pytest.mark.parametrize("row", RECORD["recovery actions"], ids=lambda row: row["words"])
def test_recovery_actions(newest, row):
    describe(newest, "hopper", f"recovery={row['nvml']}")
    assert value(gpu(newest), "gpu_recovery_action") == row["words"]


def test_old_drivers_ask_for_a_reset_in_another_element(driver):
    describe(driver, "hopper", "recovery=1")
    found = value(gpu(driver), "gpu_reset_status/reset_required")
    branch = int(driver.version.split(".")[0])
    assert found == ("Yes" if branch < 565 else found)
    assert (found is None) is (branch >= 580)


def test_a_report_that_is_cut(newest):
    describe(newest, "hopper", gpus=2, smi="xml=cut")
    (newest.root / "dev" / "nvidia1").touch()
    text = report(newest)
    assert text.count("</gpu>") == 1
    assert "</nvidia_smi_log>" not in text
    assert newest.smi("-L")[0] == 0


def test_a_report_of_garbage(newest):
    describe(newest, "hopper", smi="xml=noise")
    with pytest.raises(UnicodeDecodeError):
        report(newest)
    assert newest.smi("-L")[0] == 0


def test_a_report_that_hangs(newest):
    describe(newest, "hopper", smi="xml=stall")
    assert newest.smi("-L")[0] == 0
    command = [newest.libraries / "nvidia-smi", "-q", "-x"]
    environment = {"LD_LIBRARY_PATH": str(newest.libraries)}
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(command, env=environment, timeout=1, stdout=subprocess.DEVNULL, check=False)


@pytest.mark.parametrize("arguments", [("-q",), ("-x",)])
def test_only_xml_is_simulated(newest, arguments):
    describe(newest, "hopper")
    assert newest.smi(*arguments)[0] == 2
