# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run Ansible's own modules as parts of one action, and collect what its result needs of theirs.

`no_log` would not be enough to hide credentials: from ansible-core 2.19 on, the error and the
warnings of a task with it are printed nevertheless, at any verbosity. Those of apt and dnf quote
addresses with their passwords. ansible-core takes them out of the module's output, so that they
have to be gone there already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.module_utils.secrets import HIDDEN, redact
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import Call
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.results import (
    error_of,
    printed_by,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plain_types import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import (
    execute_quietly,
    redact_output,
)

# The modules that do their work on the controller. The others run without their action plugin.
_ON_CONTROLLER = ("ansible.builtin.copy", "metal.gpu.node_info")
_HANDED_ON = ("diff", "warnings", "deprecations")
# In a file of dnf, everything up to the end of the line, whatever it begins with.
_LOGIN = re.compile(r"^([ \t]*(?:username|password)[ \t]*=[ \t]*)\S.*$", re.MULTILINE)
# Then the module does not write its options into the node's log.
_UNLOGGED = {"ansible_no_target_syslog": True}


def _without_logins(diff: Any) -> Any:
    """Return a diff without the logins of repositories in its texts."""
    if isinstance(diff, Mapping):
        return {key: _without_logins(value) for key, value in diff.items()}
    return _LOGIN.sub(rf"\1{HIDDEN}", diff) if isinstance(diff, str) else diff


class Stopped(Exception):
    """A part of the operation failed. The message says why, without credentials."""


class ModuleRunner(ActionBase):
    """An action with several modules.

    Its `run` sets `_variables`, those of the task, and `_result`, with a list as `output`.
    """

    _variables: dict[str, Any]
    _result: dict[str, Any]

    def _do_all(self, calls: tuple[Call, ...]) -> list[dict[str, Any]]:
        return [self._do(call) for call in calls]

    def _do(self, call: Call) -> dict[str, Any]:
        """Run a module whose failure ends the operation."""
        result = self._call(call)
        if result.get("failed"):
            raise Stopped(error_of(result))
        return result

    def _call(self, call: Call) -> dict[str, Any]:
        """Run a module, and keep what the result of the task needs."""
        if call.module in _ON_CONTROLLER:
            result = self._run_action(call)
        else:
            variables = self._variables if call.is_logged else {**self._variables, **_UNLOGGED}
            result = execute_quietly(self, call.module, call.options, variables)
        if call.changes and result.get("changed"):
            self._result["changed"] = True
        self._result["output"] += printed_by(result).splitlines()
        for key in _HANDED_ON:
            if found := result.get(key):
                more = found if isinstance(found, list) else [found]
                if key == "diff":
                    more = [_without_logins(one) for one in more]
                self._result[key] = [*self._result.get(key, []), *more]
        return result

    def _run_action(self, call: Call) -> dict[str, Any]:
        task = self._task.copy()
        task.args = dict(call.options)
        action = self._shared_loader_obj.action_loader.get(
            call.module,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        try:
            result: dict[str, Any] = action.run(task_vars=self._variables)
        except AnsibleActionFail as error:  # such as a file that the controller does not have
            result = {"failed": True, "msg": str(error)}
        finally:
            # Without pipelining, it may have made the folder for modules, which this task removes.
            self._cleanup_remote_tmp |= action._cleanup_remote_tmp
        return result

    def _low_level_execute_command(self, *args: Any, **options: Any) -> Any:
        answer = super()._low_level_execute_command(*args, **options)
        answer["stdout"] = redact_output(answer["stdout"])
        answer["stdout_lines"] = answer["stdout"].splitlines()
        answer["stderr"] = redact(answer["stderr"])
        answer["stderr_lines"] = answer["stderr"].splitlines()
        return answer

    def _variable(self, name: str, *default: Any) -> Any:
        if name not in self._variables and default:
            return default[0]
        if name not in self._variables:
            raise AnsibleActionFail(f"the variable {name} is not set: observe the node first")
        return plain(self._templar.template(self._variables[name]))
