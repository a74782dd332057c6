# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module, and hands over what it returns without credentials.

`no_log` is not enough: from ansible-core 2.19 on, the error and the warnings of a task with it are
printed nevertheless, at any verbosity. Those of apt and dnf quote addresses with their passwords.
ansible-core takes them out of the module's output, so that they have to be gone there already.
"""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact, redact_all
from ansible_collections.metal.gpu.plugins.modules.redacted import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import execute_quietly


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(ARGUMENT_SPEC)
        return execute_quietly(self, args["module"], args["options"], task_vars)

    def _low_level_execute_command(self, *args: Any, **options: Any) -> Any:
        answer = super()._low_level_execute_command(*args, **options)
        answer["stdout"] = redact_output(answer["stdout"])
        answer["stdout_lines"] = answer["stdout"].splitlines()
        return answer


def redact_output(output: str) -> str:
    """Return what a module has printed, with no credentials in its JSON and around that."""
    head, brace, rest = output.partition("{")
    try:
        result, end = json.JSONDecoder().raw_decode(brace + rest)
    except ValueError:
        return redact(output)
    return redact(head) + json.dumps(redact_all(result)) + redact((brace + rest)[end:])
