# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs of this machine that a laboratory needs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from metal_lab.cache import FILES

LIST = FILES / "needs.txt"


def read(text: str) -> Iterator[tuple[str, str]]:
    """Yield a program or the path of a file, and the package that has it."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            thing, package = line.split()
            yield thing, package


def missing(text: str) -> dict[str, str]:
    """Return what this machine lacks, and the packages."""
    return {
        thing: package
        for thing, package in read(text)
        if not (Path(thing).exists() if thing.startswith("/") else shutil.which(thing))
    }


def check() -> None:
    """If this machine lacks something, exit with all of it and how to get it."""
    if lacking := missing(LIST.read_text()):
        raise SystemExit(
            f"this machine lacks {', '.join(lacking)}; to install them on Debian or Ubuntu:\n"
            f"apt-get install --no-install-recommends {' '.join(lacking.values())}"
        )
