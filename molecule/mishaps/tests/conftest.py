# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu-1 is cut off again and again, while other things go wrong on gpu-3."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SCENARIO = Path(__file__).parent.parent
NODE = str(SCENARIO / "node.yml")
LAB = Path(sys.modules["metal_lab"].__path__[0]).parent / "lab"
RUNS_AT_MOST = 40
UNREACHABLE = 4  # how ansible-playbook ends then


class CutRuns(NamedTuple):
    """Runs on gpu-1 one after the other, each cut off before its second step, until one is not."""

    returncodes: list[int]
    steps: list[list[str]]  # of each run
    last_output: str


@pytest.fixture(scope="session")
def cut_runs(
    laboratory: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[CutRuns]]:
    record = tmp_path_factory.mktemp("cut") / "steps.jsonl"
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(_cut_runs, laboratory, record)


def _cut_runs(laboratory: Any, record: Path) -> CutRuns:
    cut = [str(LAB), "fault", f"--name={laboratory.name}", "gpu-1", "cut-ssh"]
    runs = []
    for _run in range(RUNS_AT_MOST):
        run = laboratory.playbook(
            NODE,
            "--limit=gpu-1",
            ANSIBLE_CALLBACK_PLUGINS=str(SCENARIO / "callback_plugins"),
            ANSIBLE_CALLBACKS_ENABLED="cut_ssh",
            CUT_RECORD=str(record),
            CUT_COMMAND=json.dumps(cut),
        )
        runs.append(run.returncode)
        if run.returncode != UNREACHABLE:
            break
        laboratory.lab("fault", "gpu-1", "restore-ssh")
    steps = [json.loads(line) for line in record.read_text().splitlines()]
    return CutRuns(runs, steps, run.output)
