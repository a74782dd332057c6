# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bars on standard error while a command waits for machines; nothing where there is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Progress:
    """The bars of a command. They disappear when it goes on."""

    def __init__(self) -> None:
        is_terminal = sys.stderr.isatty()
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not is_terminal,
        )

    def step(self, name: str, total: int) -> Callable[[], None]:
        """Start a bar, and return what moves it by one."""
        task = self._bars.add_task(name, total=total)
        return lambda: self._bars.advance(task)

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()
