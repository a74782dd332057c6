# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What counts as true and as false in variables, also where ansible-core is not installed.

A test compares these values with those of ansible-core.
Source: ansible-core, module_utils/parsing/convert_bool.py, 2.16 to 2.21.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Final

TRUE: Final = frozenset(("y", "yes", "on", "1", "true", "t", 1, True))
FALSE: Final = frozenset(("n", "no", "off", "0", "false", "f", 0, False))
BOOLEANS: Final = TRUE | FALSE


def boolean(value: object) -> bool:
    """Return the value as a truth value. Raises TypeError."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    known = value.lower().strip() if isinstance(value, str) else value
    if isinstance(known, (str, int, float)) and known in BOOLEANS:
        return known in TRUE
    raise TypeError(f"{value!r} is neither true nor false")
