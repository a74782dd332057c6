# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run Ansible as a user of the installed collection, and other commands, and record the result."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
INSTALLED = PROJECT / ".ansible" / "installed"


class Run(NamedTuple):
    """The result of a command."""

    returncode: int
    output: str
    seconds: float
    cpu_s: float = 0.0  # of the processor, by the command and all processes that it waited for
    peak_mib: float = 0.0  # of memory, by the largest of these processes

    @property
    def words(self) -> str:
        """The output on one line, because Ansible breaks sentences anywhere."""
        return re.sub(r"\s+", " ", self.output)

    @property
    def unchanged(self) -> set[str]:
        """The hosts on which all tasks succeeded and nothing changed."""
        row = r"^(\S+)\s+: ok=\d+\s+changed=0\s+unreachable=0\s+failed=0\s"
        return set(re.findall(row, self.output, re.M))

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
    """Run `ansible` or `ansible-playbook`. `variables` are environment variables.

    Variables of this environment about Ansible or a Molecule scenario are left out. `watch`
    receives each line during the run.
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
        _pid, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    return Run(
        running.returncode,
        "".join(lines),
        time.monotonic() - started,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )


def timed(command: Sequence[str | Path], **options: Any) -> Run:
    """Run a command and capture both outputs. The options are those of subprocess.run."""
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
