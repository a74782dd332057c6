# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep the output of runs in files that only their user can read, and not more than some."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

KEPT = 50  # files


def folder(environment: Mapping[str, str]) -> Path:
    """Return where logs are kept, as the XDG Base Directory Specification says."""
    state = environment.get("XDG_STATE_HOME", "")
    home = Path(environment.get("HOME") or Path.home())
    # The specification: a relative path is not valid, and is to be ignored.
    base = Path(state) if state.startswith("/") else home / ".local" / "state"
    return base / "metal-gpu" / "logs"


class Log:
    """A log that is written while a run goes on. If the disk is full, the run is not stopped."""

    def __init__(self, path: Path, file: TextIO, tell: Callable[[str], None]) -> None:
        self.path = path
        self._file = file
        self._tell = tell
        self._is_whole = True

    def write(self, text: str) -> None:
        """Write some lines. The first ones that are lost are told."""
        try:
            self._file.write(text)
        except OSError as error:
            if self._is_whole:
                self._tell(f"the log {self.path} is not complete: {error}")
            self._is_whole = False

    def close(self) -> None:
        with suppress(OSError):  # what is left of lines that could not be written
            self._file.close()


def create(place: Path, name: str, tell: Callable[[str], None]) -> Log:
    """Create a log, and remove the oldest ones beyond KEPT. Raises OSError."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = place / f"{date}-{name}-{os.getpid()}.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    _prune(place)
    return Log(path, open(descriptor, "w", encoding="utf-8", buffering=1), tell)


def _prune(place: Path) -> None:
    for old in sorted(place.glob("*.log"))[:-KEPT]:
        old.unlink(missing_ok=True)
