# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import pci
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    recording,
)


def test_read_bus_takes_gpus_only_and_their_drivers(tmp_path):
    plant(tmp_path, parse_scene(recording("nodes/p100.txt")))
    (tmp_path / "sys/bus/pci/drivers/nvidia").mkdir(parents=True)
    (tmp_path / pci.DEVICES / "0000:03:00.0/driver").symlink_to("../../drivers/nvidia")
    assert [tuple(gpu.values()) for gpu in pci.read_bus(tmp_path).gpus] == [
        ("0000:03:00.0", "10de", "15f8", "0302", "nvidia", 1),
        ("0000:82:00.0", "10de", "15f8", "0302", None, None),
    ]


def test_virtual_functions_are_no_gpus_of_their_own(tmp_path):
    """Planted after the kernel's sysfs-bus-pci: an A100 with vGPU on, and two of its functions."""
    for slot in ("00.0", "00.4", "00.5"):
        values = {"vendor": "0x10de", "device": "0x20b5", "class": "0x030200", "numa_node": "0"}
        plant(tmp_path, {f"/{pci.DEVICES}/0000:41:{slot}/{k}": f"{v}\n" for k, v in values.items()})
    for slot in ("00.4", "00.5"):
        (tmp_path / pci.DEVICES / f"0000:41:{slot}/physfn").symlink_to("../0000:41:00.0")
    assert [gpu["address"] for gpu in pci.read_bus(tmp_path).gpus] == ["0000:41:00.0"]
    # In the virtual machine that has got one of them.
    (tmp_path / pci.DEVICES / "0000:41:00.4/physfn").unlink()
    assert [gpu["address"] for gpu in pci.read_bus(tmp_path).gpus][1:] == ["0000:41:00.4"]


def test_read_bus_where_there_is_no_bus(tmp_path):
    assert pci.read_bus(tmp_path) == ([], [], [])


def test_read_bus_leaves_out_a_device_that_goes_away(tmp_path):
    (tmp_path / pci.DEVICES / "0000:03:00.0").mkdir(parents=True)
    assert pci.read_bus(tmp_path) == ([], [], [])


@pytest.mark.parametrize(
    ("vendor", "class_", "expected"),
    [
        pytest.param("10de", "0300", True, id="vga"),
        pytest.param("10de", "0302", True, id="3d"),
        pytest.param("10de", "0403", False, id="sound"),
        pytest.param("10de", "0680", False, id="nvswitch"),
        pytest.param("10de", "0604", False, id="bridge"),
        pytest.param("1a03", "0300", False, id="board-management-vga"),
    ],
)
def test_is_gpu(vendor, class_, expected):
    assert pci.is_gpu({"vendor": vendor, "class": class_}) is expected
