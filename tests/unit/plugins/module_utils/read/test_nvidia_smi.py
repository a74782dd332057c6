# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_smi
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi import (
    NvmlDevice,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

UUID = "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c0"
P100 = "Tesla P100-PCIE-16GB"
FIRST = NvmlDevice(0, f"{UUID}1", P100, 16384, "0000:03:00.0", True, "580.178.04")
SECOND = NvmlDevice(1, f"{UUID}2", P100, 16384, "0000:82:00.0", True, "580.178.04")
LOST = SECOND._replace(memory_mib=None, persistence_mode=None, error="[GPU is lost]")
HEALTHY = recording("nvidia_smi/query-p100x2.txt")
CUT = HEALTHY[:-20]
WITH_LOST = recording("nvidia_smi/query-gpu-lost.txt")
UNREACHED = recording("nvidia_smi/unreached-550.txt")
UNREACHED_WITH_ROWS = recording("nvidia_smi/unreached-with-rows.txt")
# The rest are strings of the binary of 550.163.01, where no other origin is given.
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    " Make sure that the latest NVIDIA driver is installed and running."
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
NO_LIBRARY = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:03:00.0"  # of many reports, 418 to 580
GONE = "GPU is lost.  Reboot the system to recover this GPU"
HANDLE = "Unable to determine the device handle for"


def row(**cells: str) -> str:
    """Return the first row with other cells."""
    values = dict(zip(nvidia_smi.FIELDS, HEALTHY.splitlines()[0].split(", "), strict=True))
    return ", ".join({**values, **cells}.values())


@pytest.mark.parametrize(
    ("stdout", "devices"),
    [
        pytest.param(HEALTHY, (FIRST, SECOND), id="healthy"),
        pytest.param(WITH_LOST, (FIRST, LOST), id="one-lost"),
        pytest.param(
            row(**{"memory.total": "[N/A]", "persistence_mode": "[Not Supported]"}),
            (FIRST._replace(memory_mib=None, persistence_mode=None),),
            id="what-a-model-has-not-is-no-error",
        ),
        pytest.param(f"{HEALTHY}{INFOROM}\n", (FIRST, SECOND), id="warning-below"),
        pytest.param("No devices were found\n", (), id="none"),
        pytest.param("", (), id="silence"),
    ],
)
def test_devices(stdout, devices):
    assert nvidia_smi.parse_answer(0, stdout, "").devices == devices


@pytest.mark.parametrize("field", ["uuid", "name", "pci.bus_id", "driver_version"])
def test_what_every_model_has_is_an_error_where_it_is_not(field):
    (device,) = nvidia_smi.parse_answer(0, row(**{field: "[N/A]"}), "").devices
    assert device.error == "[N/A]"


# What is on record for cells, and what a broken program or a cut transfer leaves.
@pytest.mark.parametrize("field", nvidia_smi.FIELDS[1:])
@pytest.mark.parametrize(
    "cell",
    [
        "[GPU is lost]",
        "[GPU requires reset]",
        "[GPU requires drain and reset]",
        "[Reset Required]",
        "[Unknown Error]",
        "[Insufficient Permissions]",
        "[GPU access blocked by the operating system]",
        "[Requested functionality has been deprecated]",
        "[Function not found]",
        "[Not Found]",
        "[N/A",
        "GPU is lost",
        "Unknown Error",
        "GPU is inaccessible",
        "ERR!",
        "",
        "GPU-",
        "\x00",
        "²",
        "00000000:03:00",
        "{}",
    ],
)
def test_a_cell_is_a_value_or_an_error(field, cell):
    answer = nvidia_smi.parse_answer(0, row(**{field: cell}), "")
    assert all(device.error for device in answer.devices)
    assert cell.strip("\x00") in answer.failure["message"]


@pytest.mark.parametrize(
    ("rc", "stdout", "code", "message"),
    [
        pytest.param(0, WITH_LOST, "gpu_lost", "[GPU is lost]", id="lost-in-a-cell"),
        pytest.param(
            0, row(**{"memory.total": "[Unknown Error]"}), "gpu_error", "[Unknown Error]",
            id="error-in-a-cell",
        ),
        pytest.param(
            0, row(uuid="none"), "gpu_error", "uuid is 'none'", id="no-value-of-its-field"
        ),
        pytest.param(0, "", "no_devices", "nvidia-smi printed nothing", id="silence"),
        pytest.param(6, "No devices were found", "no_devices", "No devices were found", id="none"),
        pytest.param(9, NO_DRIVER, "driver_not_loaded", NO_DRIVER, id="no-module"),
        pytest.param(12, NO_LIBRARY, "library_not_found", NO_LIBRARY, id="no-library"),
        pytest.param(
            18, f"{MISMATCH}\nNVML library version: 580.178", "library_mismatch",
            f"{MISMATCH}; NVML library version: 580.178", id="new",
        ),
        pytest.param(255, MISMATCH, "library_mismatch", MISMATCH, id="text-before-exit-code"),
        pytest.param(14, f"{HEALTHY}{INFOROM}", "inforom_corrupted", INFOROM, id="inforom"),
        pytest.param(0, f"{HEALTHY}{INFOROM}", "inforom_corrupted", INFOROM, id="inforom-and-0"),
        pytest.param(
            14, HEALTHY, "inforom_corrupted", "nvidia-smi gave no reason", id="rows-and-14"
        ),
        pytest.param(
            8, HEALTHY, "insufficient_power", "nvidia-smi gave no reason", id="rows-and-8"
        ),
        pytest.param(15, HEALTHY, "gpu_lost", "nvidia-smi gave no reason", id="rows-and-15"),
        pytest.param(255, HEALTHY, "unknown", "nvidia-smi gave no reason", id="rows-and-255"),
        pytest.param(0, f"{HEALTHY}?\n", "unknown", "?", id="unknown-line"),
        pytest.param(0, f"{HEALTHY}\x1b[31m\n", "unknown", "?[31m", id="control-character"),
        pytest.param(
            0, f"{HEALTHY}x, {UUID}3, y\n", "unknown", f"x, {UUID}3, y", id="no-index"
        ),
        pytest.param(0, CUT, "unknown", CUT.splitlines()[1].strip(), id="cut-row"),
        pytest.param(
            0, row(name="Tesla P100, 16GB"), "unknown", row(name="Tesla P100, 16GB"),
            id="comma-in-a-name",
        ),
        pytest.param(15, UNREACHED, "gpu_lost", GONE, id="unreached"),
        pytest.param(
            255, UNREACHED_WITH_ROWS, "gpu_error", "Unknown Error", id="unreached-with-rows"
        ),
        pytest.param(
            0, UNREACHED_WITH_ROWS, "gpu_error", "Unknown Error", id="unreached-and-exit-code-0"
        ),
        pytest.param(
            14, f"{UNREACHED}{INFOROM}", "inforom_corrupted", INFOROM, id="one-lost-other-corrupted"
        ),
        pytest.param(
            2, 'Field "x" is not a valid field to query.', "invalid_argument",
            'Field "x" is not a valid field to query.', id="field",
        ),
        pytest.param(
            127, "nvidia-smi: symbol lookup error: undefined symbol: nvmlX", "unknown",
            "nvidia-smi: symbol lookup error: undefined symbol: nvmlX", id="broken-program",
        ),
    ],
)  # fmt: skip
def test_failure(rc, stdout, code, message):
    answer = nvidia_smi.parse_answer(rc, stdout, "")
    assert answer.failure == {"code": code, "exit_code": rc, "message": message}
    assert answer.is_whole is (
        rc == 0 and code in ("gpu_lost", "gpu_error") and "handle" not in stdout
    )


def test_no_failure():
    answer = nvidia_smi.parse_answer(0, HEALTHY, "")
    assert (answer.failure, answer.is_whole) == (None, True)


@pytest.mark.parametrize(
    ("stdout", "message"),
    [
        ("", "nvidia-smi did not end within 30 s"),
        (HEALTHY, "nvidia-smi did not end within 30 s"),
        (f"{HEALTHY}{INFOROM}", f"nvidia-smi did not end within 30 s: {INFOROM}"),
    ],
    ids=["nothing", "rows", "rows and a warning"],
)
def test_no_answer_in_time(stdout, message):
    answer = nvidia_smi.parse_answer(None, stdout, "")
    assert answer.failure == {"code": "timeout", "exit_code": None, "message": message}
    assert not answer.is_whole


def test_a_long_text_is_cut():
    message = nvidia_smi.parse_answer(1, "x" * 10_000, "").failure["message"]
    assert len(message) < 310
    assert message.endswith("…")


@pytest.mark.parametrize(
    ("rc", "stderr", "code"),
    [(9, NO_DRIVER, "driver_not_loaded"), (0, INFOROM, "inforom_corrupted"), (0, "?", "unknown")],
)
def test_what_is_only_on_standard_error_counts(rc, stderr, code):
    failure = nvidia_smi.parse_answer(rc, HEALTHY if rc == 0 else "", stderr).failure
    assert (failure["code"], failure["message"]) == (code, stderr)


# The forms of drivers 340 to 610, from public reports.
@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("GPU2: 0000:83:00.0", NvmlDevice(2, pci_address="0000:83:00.0")),
        ("GPU2", NvmlDevice(2)),
        ("GPU 0000:0B:00.0", NvmlDevice(pci_address="0000:0b:00.0")),
        ("GPU0000:25:00.0", NvmlDevice(pci_address="0000:25:00.0")),
        ("gpu 0000:3B:00.0", NvmlDevice(pci_address="0000:3b:00.0")),
        ("GPU 00000000:01:00.0", NvmlDevice(pci_address="0000:01:00.0")),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        GONE,
        "Unknown Error",
        "Not Found",
        "A GPU reset must occur before this GPU can be used again.",
    ],
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_gpu_that_cannot_be_reached(gpu, device, error, stream):
    text = {"stdout": "", "stderr": "", stream: f"{HANDLE} {gpu}: {error}\n"}
    assert nvidia_smi.parse_answer(255, **text).devices == (device._replace(error=error),)
    assert nvidia_smi.is_cut_short(**text)


def test_an_answer_that_is_whole_needs_no_list():
    assert not nvidia_smi.is_cut_short(WITH_LOST, "")


SLOTS = ["0000:03:00.0", "0000:04:00.0", "0000:83:00.0", "0000:84:00.0"]
UUIDS = {slot: f"{UUID}{number}" for number, slot in enumerate(SLOTS, start=1)}
LISTING = recording("nvidia_smi/list-unreached.txt")


def test_the_others_are_taken_from_the_list():
    devices = nvidia_smi.parse_answer(15, UNREACHED, "").devices
    found = nvidia_smi.place(devices, LISTING, UUIDS, SLOTS)
    assert [(gpu.index_, gpu.uuid, gpu.pci_address, gpu.error) for gpu in found] == [
        (0, f"{UUID}1", SLOTS[0], None),
        (1, f"{UUID}2", SLOTS[1], None),
        (2, f"{UUID}3", SLOTS[2], GONE),
        (3, f"{UUID}4", SLOTS[3], None),
    ]


def test_rows_come_before_the_list():
    devices = nvidia_smi.parse_answer(0, UNREACHED_WITH_ROWS, "").devices
    found = nvidia_smi.place(devices, LISTING, UUIDS, SLOTS)
    assert [(gpu.index_, gpu.memory_mib) for gpu in found] == [
        (0, None),
        (1, 16384),
        (2, 16384),
        (3, 16384),
    ]


@pytest.mark.parametrize(
    ("devices", "addresses"),
    [
        pytest.param([NvmlDevice(3, f"{UUID}4")], [SLOTS[3]], id="by its UUID"),
        pytest.param(
            [*(NvmlDevice(number, pci_address=SLOTS[number]) for number in range(3)),
             NvmlDevice(3, error=GONE)],
            SLOTS, id="where no other is",
        ),
        pytest.param(
            [*(NvmlDevice(number, pci_address=SLOTS[number]) for number in range(3)),
             NvmlDevice(3)],
            [*SLOTS[:3], None], id="a healthy one has to say it",
        ),
        pytest.param(
            [*(NvmlDevice(number, pci_address=SLOTS[number]) for number in range(2)),
             NvmlDevice(2, error=GONE), NvmlDevice(3, error=GONE)],
            [*SLOTS[:2], None, None], id="one of two places",
        ),
    ],
)  # fmt: skip
def test_where_a_gpu_is(devices, addresses):
    found = nvidia_smi.place(devices, "", UUIDS, SLOTS)
    assert [gpu.pci_address for gpu in found] == addresses


def test_the_kernel_module_knows_the_uuid():
    (found,) = nvidia_smi.place(
        [NvmlDevice(2, None, error=GONE)], "", {SLOTS[2]: "GPU-x"}, SLOTS[2:3]
    )
    assert (found.uuid, found.pci_address) == ("GPU-x", SLOTS[2])


def test_every_exit_code_of_the_manual_has_a_name():
    assert set(nvidia_smi.FAILURES) >= {2, 3, 4, 6, 8, 9, 10, 12, 13, 14, 15, 18}
