# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A console that shows what a machine has said, and does not let it control the terminal.

Names of systems and models, words of sudo, versions, lines of logs: what a machine chooses can have
escape sequences, which move the cursor, hide other lines, or write to the clipboard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# All control characters but the tab and the end of a line, and those that turn the direction.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text with a question mark for each character that would control the terminal."""
    return _CONTROLS.sub("?", text)


class SafeConsole(Console):
    """rich removes only some of these characters. What rich itself prints of them is no text."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
