# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Raise an exception in a module when its process gets a signal, so that it cleans up first."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def raise_on_signals() -> None:
    """Leave at these signals. One that is ignored, as SIGHUP is with nohup, stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)


def _leave(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)
