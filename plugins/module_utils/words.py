# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Words that messages have in common. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


MOST = 5  # names in a message


def some(names: Collection[str], most: int = MOST) -> str:
    """Return the first names, and how many more there are."""
    first = ", ".join([*names][:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
