# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Draws what a terminal showed as a picture, from the recorded output of a real run."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pyte
from pyte.screens import Char
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS = 80  # of the terminal of the record
_LINES = 200  # more than a record has, so that nothing scrolls away
# The fonts of rich's picture are on a server. Pages such as README may not load anything.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def picture(record: str, title: str, first: str) -> str:
    """Return as SVG what a terminal shows after this output, from a line with these first words."""
    screen = pyte.Screen(COLUMNS, _LINES)
    pyte.Stream(screen).feed(record)
    lines = [
        _line([screen.buffer[row][column] for column in range(COLUMNS)]) for row in range(_LINES)
    ]
    while not lines[0].plain.startswith(first):
        del lines[0]
    while not lines[-1].plain:
        del lines[-1]
    with Path("/dev/null").open("w") as nothing:
        console = Console(record=True, width=COLUMNS, file=nothing, force_terminal=True)
        console.print(Text("\n").join(lines), no_wrap=True)
        return console.export_svg(title=title, code_format=_FORMAT, unique_id="screen")


def _line(chars: list[Char]) -> Text:
    line = Text()
    for style, alike in groupby(chars, _style):
        line.append("".join(char.data for char in alike), style)
    line.rstrip()
    return line


def _style(char: Char) -> Style:
    return Style(
        color=_colour(char.fg),
        bgcolor=_colour(char.bg),
        bold=char.bold,
        italic=char.italics,
        underline=char.underscore,
        reverse=char.reverse,
    )


def _colour(name: str) -> str | None:
    """Return rich's name of a colour, by pyte's name."""
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("bright", "bright_").replace("brown", "yellow")
