# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How `metal-gpu top` shows the GPUs: a screen that stays, plain lines, or documents."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, TypeVar

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from metal_gpu.gpu_use import Gpu
from metal_gpu.terminal import output
from metal_gpu.top import Machine, codes, needs_somebody, rank, urgent

_UNKNOWN = "-"
_WIDE = 110  # columns from which the model has room
_PLAIN = 1000  # columns that no terminal has
_BAR = 5
_HOST_WIDTHS = (18, 40)
_ELLIPSIS = "…"

Line = TypeVar("Line")


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
        self._console = output.console()
        self._live = Live(
            Text("asking the machines …"), console=self._console, screen=True, auto_refresh=False
        )

    def show(self, machines: Sequence[Machine], cluster_error: str | None) -> None:
        self._live.update(
            drawn(machines, cluster_error, self._console.width, self._console.height), refresh=True
        )

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

    def __init__(self, *, as_json: bool, quiet: bool = False) -> None:
        self._as_json = as_json
        self._quiet = quiet

    def show(self, machines: Sequence[Machine], cluster_error: str | None) -> None:
        if self._as_json:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            document = {"time": now, "machines": machines, "cluster_error": cluster_error}
            sys.stdout.write(output.as_json(document) + "\n")
        else:
            console = output.console()
            parts = drawn(machines, cluster_error, console.width, None, quiet=self._quiet)
            if parts.renderables:
                output.print_whole(console, parts)
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


def drawn(
    machines: Sequence[Machine],
    cluster_error: str | None,
    width: int,
    height: int | None,
    *,
    quiet: bool = False,
) -> Group:
    """Return all lines: those about machines, a table of GPUs, where remedies are, and the summary.

    Where they do not fit, the last ones are left out, which matter least. With `quiet`, there are
    only those that need somebody, and no summary.
    """
    if quiet:
        machines = urgent(machines)
    notes = [*_notes(machines, cluster_error, quiet=quiet)]
    remedies = [*_remedies(machines)]
    rows = [*_rows(machines, is_wide=width >= _WIDE, is_plain=width > _PLAIN)]
    if height is not None:
        # Without the head of the table, the remedies, the summary and the cursor.
        free = max(4, height - 3 - len(remedies))
        notes = _fitting(notes, free - min(len(rows), free // 2), lambda: Text(_ELLIPSIS, "dim"))
        rows = _fitting(rows, free - len(notes), lambda: [Text(_ELLIPSIS, "dim")])
    parts = [_table(rows, width)] if rows else []
    end = [] if quiet else [summary(machines)]
    return Group(*notes, *parts, *remedies, *end)


def _fitting(lines: list[Line], room: int, last: Callable[[], Line]) -> list[Line]:
    return lines if len(lines) <= room else [*lines[: max(0, room - 1)], last()]


def _notes(
    machines: Sequence[Machine], cluster_error: str | None, *, quiet: bool
) -> Iterator[Text]:
    """Yield a line for each machine that does not answer, and for errors besides its GPUs."""
    if cluster_error:
        yield _line(cluster_error, "yellow")
    for machine in machines:
        if machine["error"]:
            yield _line(_named(machine["host"], machine["code"], machine["error"]), "red")
        for switch in machine["switches"]:
            errors = "; ".join(
                f"SXid {one['number']}{_times(one['count'])} {one['line']}"
                for one in switch["sxids"]
            )
            words = f"NVSwitch {switch['address']}: {errors}"
            yield _line(_named(machine["host"], switch["code"], words), "red")
        if not machine["error"] and not machine["gpus"] and not quiet:
            yield _line(f"{machine['host']}: no GPU", "dim")


def _remedies(machines: Sequence[Machine]) -> Iterator[Text]:
    """Yield a line with the commands that have the remedies, if something needs one."""
    known = codes(machines)
    hosts = [one["host"] for one in urgent(machines) if one["answered"] or one["code"]]
    host = shlex.quote(hosts[0]) if len(hosts) == 1 else "HOST"
    if known:
        words = f"metal-gpu doctor {host}; metal-gpu explain {' '.join(known)}"
        yield _line(f"remedies: {words}", "dim")
    elif any(one["answered"] and one["error"] for one in machines):
        yield _line(f"remedies: metal-gpu doctor {host}", "dim")


def _named(host: str, code: str | None, words: str) -> str:
    return ": ".join(part for part in (host, code, words) if part)


def _line(words: str, style: str) -> Text:
    return Text(words, style, no_wrap=True, overflow="ellipsis")


def _times(count: int) -> str:
    return f" x{count}" if count > 1 else ""


def _table(rows: Iterable[list[Text]], width: int) -> Table:
    is_plain = width > _PLAIN
    drawn = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", expand=not is_plain)
    drawn.add_column(
        "host", no_wrap=True, max_width=None if is_plain else _HOST_WIDTHS[width >= _WIDE]
    )
    drawn.add_column("GPU", no_wrap=True, justify="right")
    if width >= _WIDE:
        drawn.add_column("model", no_wrap=True)
    drawn.add_column("use", no_wrap=True)
    for name in ("memory", "°C", "W"):
        drawn.add_column(name, no_wrap=True, justify="right")
    drawn.add_column("Xid, pods", no_wrap=True, overflow="ellipsis", ratio=None if is_plain else 1)
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _rows(machines: Sequence[Machine], *, is_wide: bool, is_plain: bool) -> Iterator[list[Text]]:
    for machine in machines:
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
    """Return the errors of a GPU, the finding that they are, and the pods that have it."""
    parts: list[tuple[str, str]] = []
    if gpu["error"]:
        parts.append((gpu["error"], "red"))
    for one in gpu["xids"]:
        style = "red" if needs_somebody({**gpu, "error": None, "xids": [one]}) else "yellow"
        parts.append((f"Xid {one['number']}{_times(one['count'])} {one['meaning']}", style))
    if gpu["code"]:
        parts.append((gpu["code"], "red" if needs_somebody(gpu) else "yellow"))
    parts += [(one["pod"] or f"pod {one['uid']}", "") for one in gpu["pods"]]
    return Text("; ").join(Text(words, style) for words, style in parts)


def _show(value: object) -> str:
    return _UNKNOWN if value is None else str(value)


def summary(machines: Sequence[Machine]) -> Text:
    """Return one line about all machines."""
    gpus = [gpu for machine in machines for gpu in machine["gpus"]]
    silent = sum(not machine["answered"] for machine in machines)
    bad = sum(map(needs_somebody, gpus))
    switches = sum(len(machine["switches"]) for machine in machines)
    words = f"{len(gpus)} GPUs on {len(machines) - silent} of {len(machines)} machines"
    text = Text(f"{words}, {datetime.now().astimezone():%H:%M:%S}", "dim")
    if silent:
        text.append(f"; {silent} without an answer", "red")
    for count, one, several in (
        (bad, "GPU needs", "GPUs need"),
        (switches, "NVSwitch needs", "NVSwitches need"),
    ):
        if count:
            text.append(f"; {count} {one if count == 1 else several} somebody", "red")
    return text
