# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds of DKMS that fail, with the recorded words of make and the compiler."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml

RECORD = Path(__file__).parent / "recorded" / "dkms.yml"
_FILE = "/usr/local/lib/metal-lab/build-fails"  # the stand-in of make reads it


def words() -> dict[str, str]:
    """Return what a failed build prints, by its cause."""
    record: dict[str, Any] = yaml.safe_load(RECORD.read_text())
    return {
        row["name"]: "".join(f"{line}\n" for line in row["printed"])
        for row in record["failed_builds"]
    }


def scripts() -> dict[str, tuple[str, str]]:
    """Return the faults: what each does, and its shell script."""
    known = words()
    cases = "".join(
        f"{name}) printf %s {shlex.quote(text)} > {_FILE} ;;\n" for name, text in known.items()
    )
    return {
        "build-fails": (
            f"CAUSE: DKMS cannot build modules; CAUSE is {', '.join(known)}",
            f'case "$1" in\n{cases}*) echo "no cause $1" >&2; exit 1 ;;\nesac',
        ),
        "builds": ("DKMS can build modules again", f"rm --force {_FILE}"),
    }
