# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils import nvidia_smi
from ansible_collections.metal.gpu.plugins.module_utils.nvidia_smi import NvmlDevice, NvmlFailure
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

UUID = "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c0"
P100 = "Tesla P100-PCIE-16GB"
FIRST = NvmlDevice(0, f"{UUID}1", P100, 16384, "0000:03:00.0", True, "580.178.04", None)
SECOND = NvmlDevice(1, f"{UUID}2", P100, 16384, "0000:82:00.0", True, "580.178.04", None)
LOST = SECOND._replace(memory_mib=None, persistence_mode=None, error="[GPU is lost]")
HEALTHY = recording("nvidia_smi/query-p100x2.txt")
WITH_LOST = recording("nvidia_smi/query-gpu-lost.txt")
# The rest are strings of the binary of 550.163.01, where no other origin is given.
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    " Make sure that the latest NVIDIA driver is installed and running."
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
NO_LIBRARY = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."


@pytest.mark.parametrize(
    ("stdout", "devices"),
    [
        pytest.param(HEALTHY, (FIRST, SECOND), id="healthy"),
        pytest.param(WITH_LOST, (FIRST, LOST), id="one-lost"),
        pytest.param(
            "0, GPU-1, Graphics Device, [N/A], 00000000:03:00.0, [Not Supported], 390.157\n",
            (
                NvmlDevice(
                    0, "GPU-1", "Graphics Device", None, "0000:03:00.0", None, "390.157", None
                ),
            ),
            id="what-a-model-has-not-is-no-error",
        ),
        pytest.param(
            f"{HEALTHY}WARNING: infoROM is corrupted at gpu 0000:03:00.0\n",
            (FIRST, SECOND),
            id="warning-below",
        ),
        pytest.param("No devices were found\n", (), id="none"),
        pytest.param("", (), id="silence"),
    ],
)
def test_parse_devices(stdout, devices):
    assert nvidia_smi.parse_devices(stdout) == devices


@pytest.mark.parametrize(
    ("rc", "stdout", "code", "message"),
    [
        pytest.param(0, WITH_LOST, "gpu_lost", "[GPU is lost]", id="lost-in-a-cell"),
        pytest.param(
            0,
            "0, GPU-1, P100, [Unknown Error], 00000000:03:00.0, Enabled, 580.178.04",
            "gpu_error",
            "[Unknown Error]",
            id="error-in-a-cell",
        ),
        pytest.param(0, "", "no_devices", "nvidia-smi printed nothing", id="silence"),
        pytest.param(6, "No devices were found", "no_devices", "No devices were found", id="none"),
        pytest.param(9, NO_DRIVER, "driver_not_loaded", NO_DRIVER, id="no-module"),
        pytest.param(12, NO_LIBRARY, "library_not_found", NO_LIBRARY, id="no-library"),
        pytest.param(
            18, f"{MISMATCH}\nNVML library version: 580.178", "library_mismatch", MISMATCH, id="new"
        ),
        pytest.param(255, MISMATCH, "library_mismatch", MISMATCH, id="text-before-exit-code"),
        pytest.param(
            14,
            f"{HEALTHY}WARNING: infoROM is corrupted at gpu 0000:03:00.0",
            "inforom_corrupted",
            "WARNING: infoROM is corrupted at gpu 0000:03:00.0",
            id="inforom",
        ),
        pytest.param(
            15,
            "Unable to determine the device handle for GPU0000:03:00.0: GPU is lost."
            "  Reboot the system to recover this GPU",
            "gpu_lost",
            "Unable to determine the device handle for GPU0000:03:00.0: GPU is lost."
            "  Reboot the system to recover this GPU",
            id="fallen-off-the-bus",
        ),
        pytest.param(
            2,
            'Field "x" is not a valid field to query.',
            "invalid_argument",
            'Field "x" is not a valid field to query.',
            id="field",
        ),
        pytest.param(
            127,
            "nvidia-smi: symbol lookup error: undefined symbol: nvmlX",
            "unknown",
            "nvidia-smi: symbol lookup error: undefined symbol: nvmlX",
            id="broken-program",
        ),
    ],
)
def test_parse_failure(rc, stdout, code, message):
    assert nvidia_smi.parse_failure(rc, stdout, "") == NvmlFailure(code, rc, message)


def test_no_failure():
    assert nvidia_smi.parse_failure(0, HEALTHY, "") is None


def test_no_answer_in_time():
    assert nvidia_smi.parse_failure(None, "", "").code == "timeout"


def test_what_is_only_on_standard_error_counts():
    assert nvidia_smi.parse_failure(9, "", NO_DRIVER).message == NO_DRIVER


def test_every_exit_code_of_the_manual_has_a_name():
    assert set(nvidia_smi.FAILURES) >= {2, 3, 4, 6, 8, 9, 10, 12, 13, 14, 15, 18}
