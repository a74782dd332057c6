# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a module without printing its output, which contains whole configuration files.

From -vvv on, connection plugins print what a module returns. `no_log` in their play context, which
is a copy of the action's, prevents that (ansible-core 2.16 to 2.21, `_ssh_retry` in
plugins/connection/ssh.py). `no_log` on the task would also censor the result. ANSIBLE_DEBUG still
prints everything, as Ansible documents.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure
from ansible.utils.display import Display

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact, redact_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase

_PRINTED_FROM = 3  # -vvv
# The start of a module's result: JSON on its own line.
_RESULT = re.compile(r"^[ \t]*\{", re.MULTILINE)
# What Ansible returns if it cannot parse a module's output.
_RAW_OUTPUT = ("module_stdout", "exception")


def execute_quietly(
    action: ActionBase,
    module_name: str,
    module_args: Mapping[str, Any] | None = None,
    task_vars: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run a module as `_execute_module` does, without printing its output."""
    context = action._connection._play_context
    before = context.no_log
    context.no_log = before or _is_output_printed()
    try:
        result: dict[str, Any] = action._execute_module(
            module_name=module_name, module_args=module_args, task_vars=task_vars
        )
    except AnsibleAuthenticationFailure:
        raise  # a second attempt can lock the account
    except AnsibleConnectionFailure:
        if context.no_log != before:
            # `no_log` also censors ssh's own messages. A command without output shows them.
            context.no_log = before
            action._low_level_execute_command("exit 0", sudoable=False)
        raise
    finally:
        context.no_log = before
    return {
        key: _without_result(value) if key in _RAW_OUTPUT and isinstance(value, str) else value
        for key, value in result.items()
    }


def discovered_interpreter(action: ActionBase) -> dict[str, Any]:
    """Return the part of an action's result about the Python that its modules found on the node.

    Without it, the next task searches again, with a remote operation. `_execute_module` returns it
    with the module's result, of which our actions keep only parts.
    """
    key = action._discovered_interpreter_key
    return {"ansible_facts": {key: action._discovered_interpreter}} if key else {}


def redact_output(output: str) -> str:
    """Return what a module has printed, with no credentials in its JSON and around that."""
    head, brace, rest = output.partition("{")
    try:
        result, end = json.JSONDecoder().raw_decode(brace + rest)
    except ValueError:
        return redact(output)
    return redact(head) + json.dumps(redact_all(result)) + redact((brace + rest)[end:])


def _is_output_printed() -> bool:
    display = Display()
    # Since ansible-core 2.19, the log file has a separate verbosity.
    shown: int = max(display.verbosity, getattr(display, "log_verbosity", 0))
    return shown >= _PRINTED_FROM


def _without_result(output: str) -> str:
    """Return what was printed before the module's result, which may be truncated."""
    start = _RESULT.search(output)
    if start is None:
        return output
    left_out = len(output) - start.start()
    return f"{output[: start.start()]}[{left_out} characters of the module's result are not shown]"
