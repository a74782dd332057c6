# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu-1 and gpu-4 are cut off repeatedly, while other things go wrong on gpu-3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scenes import ADMINS_SERVICE

from metal_lab import faults

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests

SCENARIO = Path(__file__).parent.parent
NODE = str(SCENARIO / "node.yml")
CUT_OFF = ("gpu-1", "gpu-4")
TWIN = "gpu-2"  # of gpu-1, which is never cut off
RUNS_AT_MOST = 40
UNREACHABLE = 4  # the exit code of ansible-playbook


class CutRuns(NamedTuple):
    """Consecutive runs. Each is cut off before a node's second step, until no node is."""

    returncodes: list[int]
    steps: dict[str, list[list[str]]]  # of each run, keyed by node; its last run was not cut off
    last_output: str


class Owned(NamedTuple):
    """What the admin has in Docker."""

    container: str  # its id
    settings: dict[str, Any]


@pytest.fixture(scope="session")
def owned(laboratory: Any) -> Owned:
    """The admin's container and settings on gpu-4, before its engine is replaced."""
    host = laboratory.host("gpu-4")
    container = host.check_output("docker inspect --format '{{.Id}}' %s", ADMINS_SERVICE)
    return Owned(container, json.loads(host.check_output("cat /etc/docker/daemon.json")))


@pytest.fixture(scope="session")
def cut_runs(
    laboratory: Any, owned: Owned, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[CutRuns]]:
    record = tmp_path_factory.mktemp("cut") / "record.json"
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_cut_runs, laboratory, record)


def _cut_runs(laboratory: Any, record: Path) -> CutRuns:
    """Cut both nodes off, in parallel. The twin completes the first run.

    gpu-4 gets its driver before: gpu-1 already covers the steps of that role.
    """
    run = laboratory.playbook(NODE, "--limit=gpu-4", "--tags=driver")
    assert run.returncode == 0, run.output[-4000:]  # some later test fails for it
    cut = {node: _fault(laboratory, node, "cut-ssh") for node in CUT_OFF}
    runs: list[int] = []
    steps: dict[str, list[list[str]]] = {node: [] for node in CUT_OFF}
    left = [*CUT_OFF]
    while left and len(runs) < RUNS_AT_MOST:
        run = laboratory.playbook(
            NODE,
            f"--limit={','.join(left if runs else [*left, TWIN])}",
            ANSIBLE_CALLBACK_PLUGINS=str(SCENARIO / "callback_plugins"),
            ANSIBLE_CALLBACKS_ENABLED="cut_ssh",
            CUT_RECORD=str(record),
            CUT_COMMANDS=json.dumps({node: cut[node] for node in left}),
        )
        runs.append(run.returncode)
        recorded = json.loads(record.read_text())
        for node, done in recorded["steps"].items():
            steps[node].append(done)
        if run.returncode != UNREACHABLE:
            break
        left = recorded["cut"]
        for node in left:
            subprocess.run(_fault(laboratory, node, "restore-ssh"), check=True)
    return CutRuns(runs, steps, run.output)


def _fault(laboratory: Any, node: str, fault: str) -> list[str]:
    """Return the command for a frequent fault: `lab fault` takes longer to start."""
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    container = laboratory.facts["nodes"][node]["container"]
    return [*as_root, "docker", "exec", container, "sh", "-c", faults.SCRIPTS[fault].text]
