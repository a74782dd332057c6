# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What does config_document need for a long file?"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

from installed import INSTALLED

from metal_bench.report import Goal, Section

LINES = 2000
LIMIT_S = 0.2
PROGRAM = ("-m", "metal_bench.editing")
WORDS = {
    "read": "read by Python's `tomllib`",
    "edit": "edit",
    "restore": "restore",
}

TEXT = f"""\
A TOML file of {LINES} lines has comments, indentation and inline tables. `config_document` adds the
keys of a runtime, and takes them back after somebody else has added a line. The time is that of the
processor, without Python's start and the imports. Nothing is cached from an earlier turn."""


def measure() -> dict[str, list[float]]:
    """Measure in a separate process. Return the seconds of each turn, by what is done."""
    paths = [*filter(None, sys.path), str(INSTALLED)]
    run = subprocess.run(
        [sys.executable, *PROGRAM],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    found: dict[str, list[float]] = json.loads(run.stdout)
    return found


def describe(turns: Mapping[str, Sequence[float]]) -> Section:
    """Describe. `turns` has the seconds of each turn, by what was done."""
    medians = {name: statistics.median(turns[name]) for name in WORDS}
    return Section(
        "A long configuration file",
        tuple(
            Goal(
                f"config_document, {WORDS[name]} {LINES} lines of TOML", medians[name], LIMIT_S, "s"
            )
            for name in ("edit", "restore")
        ),
        TEXT,
        ("", "median", "relative to reading"),
        tuple(
            (words, f"{medians[name] * 1000:.0f} ms", f"{medians[name] / medians['read']:.1f}")
            for name, words in WORDS.items()
        ),
        (f"python {' '.join(PROGRAM)}",),
    )
