# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write each run of a playbook as one line of JSON, so that tests can compare runs.

A line: `{"check": bool, "ran": …, "changed": …, "announced": …}`, each a list of [host, task].
Handlers are left out: they react to changes of tasks. Includes are left out: they change nothing
themselves.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible import context
from ansible.playbook.handler import Handler
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: run_record
type: aggregate
short_description: Record what each run changed and announced
description:
  - Appends a line of JSON to the file that the environment variable E(RUN_RECORD) names.
"""


def _step(line: str) -> str | None:
    """Return the name in a line "Name of the step (reason)". None means a line of a finding."""
    name = line.partition(" (")[0]
    return None if line.startswith(" ") or name.split()[0].isupper() else name


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "run_record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._ran: list[tuple[str, str]] = []
        self._changed: list[tuple[str, str]] = []
        self._announced: list[tuple[str, str]] = []

    def v2_runner_on_ok(self, result: Any) -> None:
        host, task, values = result._host.get_name(), result._task.get_name(), result._result
        if "Announce the plan" in task:
            self._announced += [(host, step) for step in map(_step, values["msg"]) if step]
        if isinstance(result._task, (Handler, TaskInclude)):
            return
        self._ran.append((host, task.rpartition(" : ")[2]))
        if values.get("changed"):
            self._changed.append(self._ran[-1])

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if set(stats.processed) <= {"localhost"}:
            return  # the scenario's own create and destroy
        record = {
            "check": context.CLIARGS["check"],
            "ran": self._ran,
            "changed": self._changed,
            "announced": self._announced,
        }
        with Path(os.environ["RUN_RECORD"]).open("a") as file:
            file.write(json.dumps(record) + "\n")
