# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import (
    OPEN,
    PROPRIETARY,
    generation,
    supports,
)


@pytest.mark.parametrize(
    ("device", "name", "recommended"),
    [
        pytest.param("0191", "Tesla or older", PROPRIETARY, id="8800 GTX"),
        pytest.param("06c0", "Fermi", PROPRIETARY, id="GTX 480"),
        pytest.param("06d1", "Fermi", PROPRIETARY, id="C2050"),
        pytest.param("06fd", "Tesla or older", PROPRIETARY, id="NVS 295"),
        pytest.param("0a78", "Tesla or older", PROPRIETARY, id="FX 380 LP"),
        pytest.param("0dd8", "Fermi", PROPRIETARY, id="Quadro 2000"),
        pytest.param("0f00", "Fermi", PROPRIETARY, id="GT 630, GF108"),
        pytest.param("0fc0", "Kepler", PROPRIETARY, id="GT 640"),
        pytest.param("1040", "Fermi", PROPRIETARY, id="GT 520"),
        pytest.param("1091", "Fermi", PROPRIETARY, id="M2090"),
        pytest.param("10d8", "Tesla or older", PROPRIETARY, id="NVS 300"),
        pytest.param("1140", "Fermi", PROPRIETARY, id="610M"),
        pytest.param("118f", "Kepler", PROPRIETARY, id="K10"),
        pytest.param("1200", "Fermi", PROPRIETARY, id="GTX 560 Ti"),
        pytest.param("1287", "Kepler", PROPRIETARY, id="GT 730"),
        pytest.param("102d", "Kepler", PROPRIETARY, id="K80"),
        pytest.param("13f2", "Maxwell", PROPRIETARY, id="M60"),
        pytest.param("17fd", "Maxwell", PROPRIETARY, id="M40"),
        pytest.param("15f8", "Pascal", PROPRIETARY, id="P100"),
        pytest.param("1b38", "Pascal", PROPRIETARY, id="P40"),
        pytest.param("1db6", "Volta", PROPRIETARY, id="V100"),
        pytest.param("1EB8", "Turing", OPEN, id="T4"),
        pytest.param("2182", "Turing", OPEN, id="GTX 1660 Ti"),
        pytest.param("20b2", "Ampere", OPEN, id="A100"),
        pytest.param("2236", "Ampere", OPEN, id="A10"),
        pytest.param("25b6", "Ampere", OPEN, id="A2"),
        pytest.param("2330", "Hopper", OPEN, id="H100"),
        pytest.param("2342", "Grace Hopper", OPEN, id="GH200"),
        pytest.param("26b9", "Ada", OPEN, id="L40S"),
        pytest.param("27b8", "Ada", OPEN, id="L4"),
        pytest.param("2901", "Blackwell", OPEN, id="B200"),
        pytest.param("2bb5", "Blackwell", OPEN, id="RTX PRO 6000"),
        pytest.param("3182", "Blackwell Ultra", OPEN, id="B300"),
        pytest.param("4000", "newer", OPEN, id="not known yet"),
    ],
)
def test_generation(device: str, name: str, recommended: str) -> None:
    found = generation(device)
    assert (found.name, found.flavours[0]) == (name, recommended)


@pytest.mark.parametrize(
    ("device", "version", "expected"),
    [
        ("15f8", "580.178.04", True),
        ("15f8", "590.48.01", False),
        ("102d", "580.178.04", False),
        ("102d", "470.256.02", True),
        ("06d1", "470.256.02", False),
        ("06d1", "390.157", True),
        ("0191", "390.157", False),
        ("0191", "340.108", True),
        ("2901", "565.57.01", False),
        ("2901", "580.178.04", True),
        ("3182", "570.211.01", False),
        ("20b2", "620.10.01", True),
    ],
)
def test_supports(device: str, version: str, expected: bool) -> None:
    assert supports(generation(device), version) is expected
