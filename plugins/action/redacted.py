# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module, and hands over what it returns without credentials.

`no_log` is not enough: from ansible-core 2.19 on, the error and the warnings of a task with it are
printed nevertheless, at any verbosity. Those of apt and dnf quote addresses with their passwords.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.modules.redacted import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import execute_quietly, quietly


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(ARGUMENT_SPEC)
        module, options = args["module"], args["options"]
        loader = self._shared_loader_obj.action_loader
        if not loader.has_plugin(module):
            return without_credentials(execute_quietly(self, module, options, task_vars))
        task = self._task.copy()
        task.args = options
        action = loader.get(
            module,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        with quietly(self):
            return without_credentials(action.run(task_vars=task_vars))


def without_credentials(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of a module without the credentials in its texts.

    From ansible-core 2.19 on, the exception is an object that has the message once more.
    """
    return {
        key: _redacted(value)
        for key, value in result.items()
        if key != "exception" or isinstance(value, str)
    }


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(item) for item in value]
    return value
