# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keep the output of runs in files that only their user can read, and not more than some."""

from __future__ import annotations

import os
from collections.abc import Mapping
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


def create(place: Path, name: str) -> tuple[Path, TextIO]:
    """Create a log, and remove the oldest ones beyond KEPT. Raises OSError."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = place / f"{date}-{name}-{os.getpid()}.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    _prune(place)
    return path, open(descriptor, "w", encoding="utf-8", buffering=1)


def _prune(place: Path) -> None:
    for old in sorted(place.glob("*.log"))[:-KEPT]:
        old.unlink(missing_ok=True)
