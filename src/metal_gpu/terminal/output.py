# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What commands print: JSON, tables, findings and messages.

Results go to standard output. Messages, progress and errors go to standard error, so that a pipe
gets results only. Colours appear only on a terminal, and not with NO_COLOR (https://no-color.org).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

# rich takes 100 ms to load, so only what prints with it does.
_TRAILING = re.compile(r" +$", re.MULTILINE)
_NO_LIMIT = 10_000  # columns
_WORDS = re.compile(r"(?:`[^`]*`|\S)+")  # one between backticks has blanks
_PARTS = 4096  # of JSON that are written together: about 64 KiB
_STYLES = {"refusal": "red", "stop": "red", "failure": "red", "notice": "yellow"}


def console(stream: TextIO | None = None) -> Console:
    """Return a console on a stream, by default standard output.

    Where there is no terminal, lines are not wrapped, so that `grep` finds whole lines.
    """
    from metal_gpu.terminal.safe_console import SafeConsole

    stream = stream or sys.stdout
    width = None if stream.isatty() else _NO_LIMIT
    return SafeConsole(file=stream, width=width, highlight=False, markup=False, emoji=False)


def style_of(severity: str) -> str:
    """Return the colour of a severity."""
    return _STYLES.get(severity, "")


def print_json(value: object) -> None:
    """Print a result for programs, part by part: that of a fleet has megabytes."""
    parts = json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(value)
    while text := "".join(islice(parts, _PARTS)):
        sys.stdout.write(_without_controls(text))
    sys.stdout.write("\n")


def as_json(value: object) -> str:
    """Return JSON in one line without characters that control a terminal."""
    return _without_controls(json.dumps(value, ensure_ascii=False, default=str))


def _without_controls(text: str) -> str:
    """Return JSON without these characters; JSON itself escapes only the first 32."""
    return _controls().sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@cache
def _controls() -> re.Pattern[str]:
    from ansible_collections.metal.gpu.plugins.module_utils.readable import TURNS

    return re.compile(f"[\x7f-\x9f{TURNS}]")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    least: Sequence[str] = (),
    between: Mapping[str, str] = MappingProxyType({}),
    stream: TextIO | None = None,
) -> None:
    """Print aligned columns without a frame, so that `awk` and people can read them.

    Where a terminal has no room for them, the parts of a cell have a line each: `between` has what
    separates them, by column. If that is not enough, the columns of `least` are left out one after
    the other, and a line names them.
    """
    out = console(stream)
    cells = [[*row] for row in rows]
    names, table = [*columns], _table(columns, cells)
    for name in () if _fits(table, out) else (None, *least):
        if name in names:
            names.remove(name)
        table = _table(names, [*_narrow(columns, names, cells, between)])
        if _fits(table, out):
            break
    print_whole(out, table)
    if len(names) < len(columns):
        gone = ", ".join(name for name in columns if name not in names)
        print_line(f"no room in {out.width} columns for: {gone}", "dim", stream=stream)


def print_whole(out: Console, drawn: RenderableType) -> None:
    """Print a table, without the blanks at the ends of lines where there is no terminal."""
    if out.is_terminal:
        out.print(drawn)
        return
    with out.capture() as capture:
        out.print(drawn)
    out.file.write(_TRAILING.sub("", capture.get()))


def _narrow(
    columns: Sequence[str],
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    between: Mapping[str, str],
) -> Iterator[list[str]]:
    """Yield the rows with these columns only, and with one part of a cell in each line."""
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        for name, words in between.items():
            cells[name] = cells[name].replace(words, f"{words.rstrip()}\n")
        yield [cells[name] for name in names]


def _fits(table: Table, out: Console) -> bool:
    """Tell whether no line of a table is longer than those of the console."""
    return out.measure(table, options=out.options.update(width=_NO_LIMIT)).maximum <= out.width


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def print_finding(finding: Mapping[str, str], *, stream: TextIO | None = None) -> None:
    """Print a finding: what is wrong, and what to do about it."""
    from rich.text import Text

    out = console(stream)
    head = f"{finding['severity']} {finding['code']}"
    # The message starts with the host.
    line = Text(wrapped(f"{head} {finding['message']}".replace("\n", "\n    "), out.width))
    line.stylize(style_of(finding["severity"]), 0, len(head))
    out.print(line, soft_wrap=True)
    print_line(f"    remedy: {finding['remedy']}", stream=stream)
    print_line(f"    see {finding['reference']}", "dim", stream=stream)


def print_line(text: str, style: str = "", *, stream: TextIO | None = None) -> None:
    """Print a line of a result."""
    from rich.text import Text

    out = console(stream)
    out.print(Text(wrapped(text, out.width), style=style), soft_wrap=True)


def wrapped(text: str, width: int) -> str:
    """Return a text in lines of a width, and what goes on is indented.

    What is between backticks stays in one line, so that a command can be copied. The terminal wraps
    one that is too long, and knows that it is one line.
    """
    from rich.cells import cell_len

    lines: list[str] = []
    for line in text.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        first, *words = _WORDS.findall(line)
        lines.append(f"{indent}{first}")
        for word in words:
            if cell_len(lines[-1]) + 1 + cell_len(word) <= width:
                lines[-1] += f" {word}"
            else:
                lines.append(f"{indent}    {word}")
    return "\n".join(lines)


def message(text: str, style: str = "") -> None:
    """Print a line to standard error: progress, or where something was written."""
    print_line(text, style, stream=sys.stderr)


def error(text: str) -> None:
    """Print what made a command fail to standard error."""
    from rich.text import Text

    out = console(sys.stderr)
    line = Text(wrapped(f"error: {text}", out.width))
    line.stylize("bold red", 0, len("error:"))
    out.print(line, soft_wrap=True)
