# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How `metal-gpu top` shows the GPUs: a screen that stays, plain lines, or documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from metal_gpu.gpu_use import Gpu
from metal_gpu.terminal import output
from metal_gpu.top import Machine, needs_somebody, rank

_UNKNOWN = "-"
_WIDE = 110  # columns from which the model has room
_BAR = 6
_HOST_WIDTH = 20


class View(Protocol):
    """Shows the machines again and again."""

    def show(self, machines: Sequence[Machine], cluster_error: str | None) -> None: ...

    def __enter__(self) -> View: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Screen:
    """A screen of its own, which is gone at the end."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, emoji=False)
        self._live = Live(
            Text("asking the machines …"), console=self._console, screen=True, auto_refresh=False
        )

    def show(self, machines: Sequence[Machine], cluster_error: str | None) -> None:
        # The last line is the summary, and the first one the head of the table.
        room = max(1, self._console.height - 3)
        drawn = table(machines, self._console.width, room)
        notes = [Text(cluster_error, "yellow", overflow="ellipsis")] if cluster_error else []
        self._live.update(Group(drawn, *notes, summary(machines)), refresh=True)

    def __enter__(self) -> Screen:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()


class Lines:
    """Plain lines, or one document in a line, after each question."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def show(self, machines: Sequence[Machine], cluster_error: str | None) -> None:
        if self._as_json:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            document = {"time": now, "machines": machines, "cluster_error": cluster_error}
            sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        else:
            console = output.console()
            console.print(table(machines, console.width, None))
            console.print(summary(machines))
            if cluster_error:
                output.message(cluster_error, "yellow")
        sys.stdout.flush()

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


def table(machines: Sequence[Machine], width: int, room: int | None) -> Table:
    """Return the table, with no more rows than there is room for: the first ones matter most."""
    is_wide = width >= _WIDE
    is_plain = width > 1000  # no terminal
    drawn = Table(box=None, pad_edge=False, header_style="bold", expand=not is_plain)
    drawn.add_column("host", no_wrap=True, max_width=None if is_plain else _HOST_WIDTH)
    drawn.add_column("GPU", no_wrap=True, justify="right")
    if is_wide:
        drawn.add_column("model", no_wrap=True)
    for name in ("use", "memory", "°C", "W"):
        drawn.add_column(name, no_wrap=True, justify="left" if name == "use" else "right")
    drawn.add_column("Xid, pods", no_wrap=True, overflow="ellipsis", ratio=None if is_plain else 1)
    rows = list(_rows(machines, is_wide=is_wide, is_plain=is_plain))
    hidden = 0 if room is None else len(rows) - room
    for row in rows if hidden <= 0 else rows[: len(rows) - hidden - 1]:
        drawn.add_row(*row)
    if hidden > 0:
        drawn.add_row(Text(f"… {hidden + 1} more lines", "dim"))
    return drawn


def _rows(machines: Sequence[Machine], *, is_wide: bool, is_plain: bool) -> Iterator[list[Text]]:
    blank = [Text()] * (6 if is_wide else 5)
    for machine in machines:
        host = Text(machine["host"], "" if machine["answered"] else "red")
        if machine["error"] or not machine["gpus"]:
            words = machine["error"] or "no GPU"
            yield [host, *blank, Text(words, "red" if machine["error"] else "dim")]
        for gpu in sorted(machine["gpus"], key=rank):
            cells = [Text(machine["host"]), Text(_show(gpu["index"]))]
            if is_wide:
                cells.append(Text((gpu["model"] or _UNKNOWN).removeprefix("NVIDIA ")))
            cells += [_use(gpu, is_plain=is_plain), _memory(gpu), Text(_show(gpu["temperature_c"]))]
            yield [*cells, _power(gpu), _words(gpu)]


def _use(gpu: Gpu, *, is_plain: bool) -> Text:
    value = gpu["utilization"]
    if value is None:
        return Text(_UNKNOWN)
    text = f"{value:3}%"
    if is_plain:
        return Text(text.strip())
    full = round(_BAR * value / 100)
    return Text.assemble(text, " ", ("━" * full, "green"), ("━" * (_BAR - full), "dim"))


def _memory(gpu: Gpu) -> Text:
    if gpu["memory_used_mib"] is None or gpu["memory_mib"] is None:
        return Text(_UNKNOWN)
    return Text(f"{gpu['memory_used_mib'] / 1024:.1f}/{gpu['memory_mib'] / 1024:.0f}G")


def _power(gpu: Gpu) -> Text:
    if gpu["power_w"] is None:
        return Text(_UNKNOWN)
    limit = "" if gpu["power_limit_w"] is None else f"/{gpu['power_limit_w']:.0f}"
    return Text(f"{gpu['power_w']:.0f}{limit}")


def _words(gpu: Gpu) -> Text:
    """Return the errors of a GPU, and the pods that have it."""
    parts: list[tuple[str, str]] = []
    if gpu["error"]:
        parts.append((gpu["error"], "red"))
    for one in gpu["xids"]:
        times = f" x{one['count']}" if one["count"] > 1 else ""
        style = "red" if needs_somebody({**gpu, "error": None, "xids": [one]}) else "yellow"
        parts.append((f"Xid {one['number']}{times} {one['meaning']}", style))
    parts += [(one["pod"] or f"pod {one['uid']}", "") for one in gpu["pods"]]
    return Text("; ").join(Text(words, style) for words, style in parts)


def _show(value: object) -> str:
    return _UNKNOWN if value is None else str(value)


def summary(machines: Sequence[Machine]) -> Text:
    """Return one line about all machines."""
    gpus = [gpu for machine in machines for gpu in machine["gpus"]]
    silent = sum(not machine["answered"] for machine in machines)
    bad = sum(map(needs_somebody, gpus))
    words = f"{len(gpus)} GPUs on {len(machines) - silent} of {len(machines)} machines"
    text = Text(f"{words}, {datetime.now().astimezone():%H:%M:%S}", "dim")
    if silent:
        text.append(f"; {silent} without an answer", "red")
    if bad:
        text.append(f"; {bad} GPUs need somebody", "red")
    return text
