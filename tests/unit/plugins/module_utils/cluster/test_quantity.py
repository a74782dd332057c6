# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from decimal import Decimal

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster.quantity import (
    QuantityInvalid,
    parse_quantity,
    plain,
)

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("value", "number"),
    [
        pytest.param("4", 4, id="whole"),
        pytest.param(4, 4, id="json-number"),
        pytest.param("+4", 4, id="plus"),
        pytest.param("-4", -4, id="minus"),
        pytest.param("5.", 5, id="no-digit-after-the-point"),
        pytest.param(".5", 0.5, id="no-digit-before-the-point"),
        pytest.param("63800m", 63.8, id="milli"),
        pytest.param("4000m", 4, id="milli-whole"),
        pytest.param("5n", 5e-9, id="nano"),
        pytest.param("5u", 5e-6, id="micro"),
        pytest.param("2k", 2_000, id="kilo"),
        pytest.param("2M", 2_000_000, id="mega"),
        pytest.param("2E", 2 * 10**18, id="exa-not-exponent"),
        pytest.param("527987808Ki", 527987808 * 1024, id="kibi"),
        pytest.param("1.5Gi", 1610612736, id="gibi-with-fraction"),
        pytest.param("1Ei", 1024**6, id="exbi"),
        pytest.param("12e6", 12_000_000, id="exponent"),
        pytest.param("12E+6", 12_000_000, id="exponent-with-sign"),
        pytest.param("1500e-3", 1.5, id="exponent-negative"),
        pytest.param("0.1n", 1e-9, id="rounded-up-to-nano"),
        pytest.param("-1e-400", -1e-9, id="rounded-away-from-zero"),
        pytest.param("9223372036854775807", LARGEST, id="largest-is-exact"),
        pytest.param("8Ei", LARGEST, id="cut-to-64-bits"),
        pytest.param("-1e999999999", -LARGEST, id="cut-without-computing-it"),
    ],
)
def test_parse_quantity(value, number):
    assert plain(parse_quantity(value)) == number


NO_QUANTITIES = """
    - . 1e 1ki 1K 1e9999999999 [N/A] ٤
    1.1.M 1+1.0M 0.1mi 0.1am aoeu .5i 1i -3.01i -3.01e-
"""  # the second line is from Kubernetes' own tests (apimachinery pkg/api/resource)


@pytest.mark.parametrize("value", ["", " 1", "1 ", "1\n", True, None, *NO_QUANTITIES.split()])
def test_parse_quantity_rejects(value):
    with pytest.raises(QuantityInvalid, match="is not a Kubernetes quantity"):
        parse_quantity(value)


def test_plain_keeps_whole_numbers_whole():
    assert isinstance(plain(Decimal("4.000")), int)
    assert isinstance(plain(Decimal("63.8")), float)
