# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run commands against a laboratory: Ansible as a user of the installed collection would."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from metal_lab.state import CHECKOUT

INSTALLED = CHECKOUT / ".ansible" / "installed"


class Run(NamedTuple):
    """How a command ended."""

    returncode: int
    output: str
    seconds: float

    @property
    def words(self) -> str:
        """The output on one line: where Ansible breaks a sentence is nobody's business."""
        return re.sub(r"\s+", " ", self.output)

    def operations(self) -> Counter[str]:
        """Count the connection plugin's remote operations, keyed by host (needs -vvv)."""
        return Counter(re.findall(r"^<([^>]+)> SSH: (?:EXEC|PUT|FETCH)", self.output, re.M))


def run(
    command: Sequence[str | Path],
    inventory: Path,
    folder: Path,
    *,
    watch: Callable[[str], None] | None = None,
    **variables: str,
) -> Run:
    """Run `ansible` or `ansible-playbook` with its words; `variables` are of the environment.

    What the environment says already about Ansible, or about a Molecule scenario, is left out.
    `watch` gets each line while it runs.
    """
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ANSIBLE_", "MOLECULE_", "RUN_RECORD"))
    }
    started = time.monotonic()
    lines = []
    with subprocess.Popen(
        [*command, "--inventory", inventory],
        cwd=folder,
        env={**environment, "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        for line in running.stdout or ():
            lines.append(line)
            if watch:
                watch(line)
    return Run(running.returncode, "".join(lines), time.monotonic() - started)


def timed(command: Sequence[str | Path], **options: Any) -> Run:
    """Run a command with what it says on both ways out; options as of subprocess.run."""
    started = time.monotonic()
    result = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    return Run(result.returncode, result.stdout, time.monotonic() - started)
