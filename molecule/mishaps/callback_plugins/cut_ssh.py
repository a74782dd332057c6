# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let a run do one step on each node, and cut the node's SSH before its second step."""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: cut_ssh
type: aggregate
short_description: Cut the connection to nodes between two steps
description:
  - Runs the commands of the environment variable E(CUT_COMMANDS), which is JSON. Each value is a
    command as a list, keyed by node. Other nodes are not cut off.
  - Writes JSON to the file that E(CUT_RECORD) names. C(steps) has the steps that each node did, and
    C(cut) the nodes that were cut off.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "cut_ssh"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._commands: dict[str, list[str]] = json.loads(os.environ["CUT_COMMANDS"])
        self._planned: dict[str, set[str]] = defaultdict(set)
        self._done: dict[str, list[str]] = {node: [] for node in self._commands}
        self._cut: set[str] = set()

    def v2_runner_on_ok(self, result: Any) -> None:
        node, step = result._host.get_name(), _step(result._task)
        if step and step.startswith("Announce the plan"):
            self._planned[node] = {line.partition(" (")[0] for line in result._result["msg"]}
        elif node in self._done and step in self._planned[node]:
            self._done[node].append(step)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        node = host.get_name()
        is_second = bool(self._done.get(node)) and _step(task) in self._planned[node]
        if is_second and node not in self._cut:
            self._cut.add(node)
            subprocess.run(self._commands[node], check=True)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        record = {"steps": self._done, "cut": sorted(self._cut)}
        Path(os.environ["CUT_RECORD"]).write_text(json.dumps(record))


def _step(task: Any) -> str | None:
    """Return the name of a task without its role. None means that it only includes others."""
    return None if "include" in task.action else task.get_name().rpartition(" : ")[2]
