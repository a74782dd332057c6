# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import pci


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("00000000:03:00.0", "0000:03:00.0"),
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("0000:03:00.0", "0000:03:00.0"),
        pytest.param("00010000:03:00.0", "10000:03:00.0", id="wide-domain"),
    ],
)
def test_normalise_address(address, expected):
    assert pci.normalise_address(address) == expected
