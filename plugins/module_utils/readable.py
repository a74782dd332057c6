# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Words that messages have in common."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


MOST = 5  # names in a message
# Marks that turn the direction of a text, so that it does not read as it is.
TURNS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# All control characters but the tab and the end of a line.
_CONTROLS = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{TURNS}]")


def printable(text: str) -> str:
    """Return a text with a question mark for each character that would control the terminal.

    Names of systems and models, words of sudo, versions, lines of logs: what a machine chooses can
    have escape sequences, which move the cursor, hide other lines, or write to the clipboard.
    """
    return _CONTROLS.sub("?", text)


def some(names: Collection[str], most: int = MOST) -> str:
    """Return the first names, and how many more there are."""
    first = ", ".join([*names][:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
