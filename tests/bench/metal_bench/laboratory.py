# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start, use and stop the laboratories of the measurements."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import installed
from installed import PROJECT, Run

HERE = Path(__file__).resolve().parent.parent
LAB = PROJECT / "tests" / "lab" / "lab"
LOGS = PROJECT / ".ansible" / "bench"


class Laboratory(NamedTuple):
    """A laboratory that runs."""

    facts: dict[str, Any]  # as `lab facts` prints them

    @property
    def folder(self) -> Path:
        return Path(self.facts["folder"])

    @property
    def kubeconfig(self) -> str:
        return str(self.facts["kubeconfig"])

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory.yml"

    def ansible(
        self, log: str, *command: str, inventory: Path | None = None, **variables: str
    ) -> Run:
        """Run Ansible with `variables` in its environment. If it fails, exit with its log."""
        return _kept(
            log,
            installed.run(
                command, inventory or self.inventory, self.folder, watch=None, **variables
            ),
        )

    def ssh(self, log: str, node: str, script: str) -> Run:
        """Run a shell script as root on a node, over one SSH connection."""
        command = [*self.facts["nodes"][node]["ssh"], "sudo bash -s"]
        return _kept(log, installed.timed(command, input=script))

    def stop(self, *programs: str) -> None:
        """End parts of the control plane."""
        pids = [str(self.facts["processes"][program]) for program in programs]
        as_root = [] if os.geteuid() == 0 else ["sudo"]
        subprocess.run([*as_root, "kill", *pids], check=True)

    def kubectl_command(self, *words: str) -> list[str]:
        return [
            self.facts["kubectl"]["program"],
            f"--kubeconfig={self.kubeconfig}",
            *words,
        ]

    def kubectl(self, *words: str) -> str:
        return subprocess.run(
            self.kubectl_command(*words), check=True, stdout=subprocess.PIPE, text=True
        ).stdout


@contextmanager
def started(description: str) -> Iterator[Laboratory]:
    """Start a laboratory of tests/bench/labs. Stop it afterwards, also after an error."""
    name = f"bench-{description}"
    _lab("down", "--name", name)
    try:
        _lab("up", HERE / "labs" / f"{description}.yml", "--name", name)
        facts = PROJECT / ".lab" / name / "facts.json"
        yield Laboratory(json.loads(facts.read_text()))
    finally:
        _lab("down", "--name", name)


def _lab(*words: str | Path) -> None:
    subprocess.run([LAB, *words], check=True, stdin=subprocess.DEVNULL)


def _kept(log: str, run: Run) -> Run:
    """Write the output of a run to a log. If the run failed, exit with the log's path."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{log}.log"
    path.write_text(run.output)
    if run.returncode != 0:
        raise SystemExit(f"failed: {path}")
    return run
