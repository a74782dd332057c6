# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run modules in separate processes and measure their cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from installed import INSTALLED


class Cost(NamedTuple):
    """The cost of a process without its start and its imports."""

    seconds: float
    peak_mib: float


class Result(NamedTuple):
    """The result of a process."""

    cost: Cost
    ended: float  # by time.monotonic()


def start(program: str, arguments: Mapping[str, Any]) -> subprocess.Popen[str]:
    """Start a program of `metal_bench.worker`."""
    paths = [*filter(None, sys.path), str(INSTALLED)]
    process = subprocess.Popen(
        [sys.executable, "-m", "metal_bench.worker", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(arguments))
    process.stdin.close()
    process.stdin = None  # nothing more to send for communicate()
    return process


def finish(process: subprocess.Popen[str]) -> Result:
    """Wait for the end of the process. If it failed, exit with its output."""
    output, errors = process.communicate()
    ended = time.monotonic()
    if process.returncode != 0:
        raise SystemExit(f"{process.args!r} failed: {output}{errors}")
    return Result(Cost(**json.loads(errors.splitlines()[-1])), ended)


def run(program: str, arguments: Mapping[str, Any]) -> Cost:
    return finish(start(program, arguments)).cost
