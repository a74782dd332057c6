# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Show a run on a terminal: a bar for each stage, and what the nodes are waited for.

A bar has a part for each node: those that have ended the task at hand, those that have not, and
those that failed. Messages of the run are printed above the bars.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from ansible_collections.metal.gpu.plugins.module_utils.readable import some
from metal_gpu.playbooks.progress import (
    DONE,
    RUNNING,
    STOPPED,
    UNREACHED,
    UNUSED,
    Progress,
    Stage,
)

_BAR = 16  # characters
_TITLE = 18
_NODES = 3  # names of those that are waited for
_SIGNS = {
    DONE: ("✔", "green"),
    RUNNING: ("▶", "cyan"),
    UNUSED: ("-", "dim"),
    STOPPED: ("■", "yellow"),
}
_FAILED = ("✘", "red")
_ASCII = {"✔": "+", "▶": ">", "✘": "!", "■": "x", "…": "~", "━": "=", "─": "-", "·": "."}


class Display:
    """The bars. A context manager, which leaves the terminal as it was."""

    def __init__(
        self, progress: Progress, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._progress = progress
        self._console = console
        self._clock = clock
        self._lock = threading.Lock()
        self._live = Live(
            self, console=console, refresh_per_second=4, transient=True, redirect_stderr=False
        )

    def __enter__(self) -> Display:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        with self._lock:
            self._progress.end(self._clock())
        self._live.__exit__(kind, error, place)
        for line in self.lines():
            self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)

    def feed(self, event: dict[str, object]) -> None:
        """Take an event."""
        with self._lock:
            self._progress.feed(event, self._clock())

    def say(self, text: str, style: str = "") -> None:
        """Print a message above the bars."""
        self._console.print(Text(text, style=style))

    def lines(self) -> list[Text]:
        """Return the lines of all stages."""
        is_unicode = self._console.encoding.lower().startswith("utf")
        with self._lock:
            return [
                line if is_unicode else _ascii(line)
                for stage in self._progress.stages
                for line in lines_of(stage, self._clock())
            ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines():
            line.no_wrap, line.overflow = True, "ellipsis"
            yield line


def lines_of(stage: Stage, now: float) -> Iterator[Text]:
    """Yield the line of a stage, and for the stage at hand its task and who is waited for."""
    sign, style = _FAILED if stage.failed else _SIGNS.get(stage.state, ("·", "dim"))
    line = Text(f"{sign} ", style=style)
    title = stage.title if len(stage.title) <= _TITLE else f"{stage.title[: _TITLE - 1]}…"
    is_alive = stage.state in (DONE, RUNNING, STOPPED)
    line.append(f"{title:<{_TITLE}} ", "" if is_alive else "dim")
    if is_alive:
        line.append_text(bar(stage))
        line.append(f" {describe(stage, now)}", "default")
    elif words := {UNUSED: "nothing to do", UNREACHED: "not reached"}.get(stage.state):
        line.append(words, "dim")
    yield line
    if stage.state == RUNNING and stage.task:
        yield Text(f"    {waits(stage, now)}", style="dim")
    elif stage.state == STOPPED:
        yield Text(f"    stopped at: {stage.task}", style="yellow")


def bar(stage: Stage) -> Text:
    """Return the bar of a stage."""
    total = max(len(stage.nodes), 1)
    failed = -(-len(stage.failed) * _BAR // total)  # one failed node of many is visible
    done = min(stage.done * _BAR // total, _BAR - failed)
    text = Text("━" * done, style="green")
    text.append("━" * failed, "red")
    return text.append("─" * (_BAR - done - failed), "dim")


def describe(stage: Stage, now: float) -> str:
    """Return the numbers of a stage."""
    seconds = stage.seconds + (now - stage.since if stage.state == RUNNING else 0.0)
    parts = [f"{stage.done}/{len(stage.nodes)} nodes"]
    parts += [f"{len(stage.failed)} failed"] if stage.failed else []
    parts += [f"{stage.changed} changed"] if stage.changed else []
    return ", ".join([*parts, duration(seconds)])


def waits(stage: Stage, now: float) -> str:
    """Return what the stage waits for."""
    since = f" ({duration(now - stage.task_since)})" if now - stage.task_since >= 1 else ""
    if not stage.waiting:
        return stage.task
    return f"waiting for {some(stage.waiting, _NODES)}: {stage.task}{since}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _ascii(line: Text) -> Text:
    line.plain = "".join(_ASCII.get(sign, sign) for sign in line.plain)
    return line
