# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write every result as a callback gets it: what log collectors and web interfaces keep."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: all_results
type: aggregate
short_description: Write the results of all tasks
description:
  - Appends a line of JSON for each result to the file that the environment variable
    E(ALL_RESULTS) names.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "all_results"
    CALLBACK_NEEDS_ENABLED = True

    def _write(self, result: Any, **_options: Any) -> None:
        row = [result._host.get_name(), result._task.get_name(), result._result]
        with Path(os.environ["ALL_RESULTS"]).open("a") as file:
            file.write(json.dumps(row, default=str) + "\n")

    v2_runner_on_ok = v2_runner_on_failed = v2_runner_on_unreachable = _write
    v2_runner_item_on_ok = v2_runner_item_on_failed = v2_runner_retry = v2_on_file_diff = _write
