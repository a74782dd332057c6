# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Parse Kubernetes quantities such as "4", "100m", "16Gi" or "12e6".

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import functools
import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_UP, Context, Decimal
from typing import Any

_SYNTAX = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<binary>[KMGTPE])i|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,9}))?",
    re.ASCII,
)
_BINARY = {prefix: 1024**power for power, prefix in enumerate("KMGTPE", start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

# Kubernetes keeps no fraction below a billionth and nothing beyond 64 bits.
_STEP = Decimal("1e-9")
_LIMIT = Decimal(2**63 - 1)
# Wide enough that no intermediate value is rounded.
_EXACT = Context(prec=1000, rounding=ROUND_UP, Emax=MAX_EMAX, Emin=MIN_EMIN)


class QuantityInvalid(ValueError):
    """A text is not a quantity."""


def parse_quantity(value: Any) -> Decimal:
    """Parse a quantity as the API server does; JSON numbers are read as their text.

    A fraction below a billionth is rounded away from zero. A number that does not fit into 64 bits
    becomes the largest number that does. Raises QuantityInvalid.
    """
    number = None if isinstance(value, bool) else _parse(str(value))
    if number is None:
        raise QuantityInvalid(
            f"{value!r} is not a Kubernetes quantity. Use a number such as 4, 1.5 or 12e6, with at "
            "most one suffix of n u m k M G T P E Ki Mi Gi Ti Pi Ei"
        )
    return number


# Thousands of nodes have only a few different amounts.
@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Decimal | None:
    match = _SYNTAX.fullmatch(text)
    if match is None:
        return None
    exponent = match["exponent"] or _DECIMAL.get(match["decimal"], 0)
    number = _EXACT.create_decimal(f"{match['number']}e{exponent}")
    if match["binary"]:
        number = _EXACT.multiply(number, Decimal(_BINARY[match["binary"]]))
    return _EXACT.quantize(max(-_LIMIT, min(_LIMIT, number)), _STEP)


def plain(quantity: Decimal) -> int | float:
    """Return the number for JSON and playbooks: an integer if possible."""
    return int(quantity) if quantity == quantity.to_integral_value() else float(quantity)
