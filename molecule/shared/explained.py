# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `metal-gpu explain` says about a line that a program of a node has printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

from installed import INSTALLED, PROJECT


class Explained(NamedTuple):
    """The first candidate."""

    code: str | None
    remedy: str


def first(text: str) -> Explained:
    """Return what the command names first for the first line that it knows."""
    folders = (PROJECT / "src", INSTALLED)
    done = subprocess.run(
        [sys.executable, "-m", "metal_gpu", "explain", "--json", "-"],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{text}: {done.stderr}"
    candidate: Any = json.loads(done.stdout)["explanations"][0]["candidates"][0]
    return Explained(candidate["code"], candidate["remedy"])
