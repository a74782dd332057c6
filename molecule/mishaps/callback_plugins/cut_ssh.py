# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let a run do one step of its plans, and cut the node's SSH before the second one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: cut_ssh
type: aggregate
short_description: Cut the connection to a node between two steps
description:
  - Does so with the command, a list in JSON, that the environment variable E(CUT_COMMAND) has.
  - Appends a line of JSON to the file that E(CUT_RECORD) names, with the steps that were done.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "cut_ssh"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._planned: set[str] = set()
        self._done: list[str] = []
        self._cut = False

    def v2_runner_on_ok(self, result: Any) -> None:
        step = _step(result._task)
        if step == "Announce what will be done, and why":
            self._planned = {line.partition(" (")[0] for line in result._result["msg"]}
        elif step in self._planned:
            self._done.append(step)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        if self._done and not self._cut and _step(task) in self._planned:
            self._cut = True
            subprocess.run(json.loads(os.environ["CUT_COMMAND"]), check=True)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        with Path(os.environ["CUT_RECORD"]).open("a") as file:
            file.write(json.dumps(self._done) + "\n")


def _step(task: Any) -> str | None:
    """Return the name of a task without its role's; None where it only includes others."""
    return None if "include" in task.action else task.get_name().rpartition(" : ")[2]
