# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a module whose output nobody may read on the way: it carries whole configuration files.

From -vvv on, connection plugins print what a module returns. `no_log` in their play context, which
is a copy of the action's, makes them stop (ansible-core 2.16 to 2.21, `_ssh_retry` in
plugins/connection/ssh.py). `no_log` on the task would censor the result as well.
ANSIBLE_DEBUG prints everything nevertheless, as Ansible documents.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure
from ansible.utils.display import Display

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible.plugins.action import ActionBase

_PRINTED_FROM = 3  # -vvv
# Where a module begins to print its result: JSON on a line of its own.
_RESULT = re.compile(r"^[ \t]*\{", re.MULTILINE)
# What Ansible hands on where it cannot read a module's output.
_RAW_OUTPUT = ("module_stdout", "exception")


def execute_quietly(
    action: ActionBase,
    module_name: str,
    module_args: Mapping[str, Any] | None = None,
    task_vars: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run a module as `_execute_module` does, and let nothing print its output."""
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
            # `no_log` censors ssh's own words, too. A command without output can show them.
            context.no_log = before
            action._low_level_execute_command("exit 0", sudoable=False)
        raise
    finally:
        context.no_log = before
    return {
        key: _without_result(value) if key in _RAW_OUTPUT and isinstance(value, str) else value
        for key, value in result.items()
    }


def _is_output_printed() -> bool:
    display = Display()
    # The log file has a verbosity of its own from ansible-core 2.19 on.
    shown: int = max(display.verbosity, getattr(display, "log_verbosity", 0))
    return shown >= _PRINTED_FROM


def _without_result(output: str) -> str:
    """Return what was printed before the module's result, which may have been cut off."""
    start = _RESULT.search(output)
    if start is None:
        return output
    left_out = len(output) - start.start()
    return f"{output[: start.start()]}[{left_out} characters of the module's result are not shown]"
