# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of metal.gpu.preconditions: check the play and its variables."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.modules.preconditions import (
    ARGUMENT_SPEC,
    version_of,
)
from ansible_collections.metal.gpu.plugins.plugin_utils import preconditions, variables
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.fleet import REFUSED, statistic


class ActionModule(ActionBase):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC)
        roles = variables.OF_SITE if options["roles"] is None else options["roles"]
        result = {
            "changed": False,
            "started": time.time(),
            "hosts": task_vars["ansible_play_batch"],
            "play": preconditions.refuse_strategy(self._task.get_play().strategy),
            "controller": self._refuse_packages(options["packages"], task_vars),
            **self._check_variables(roles, task_vars),
        }
        if any(result[reason] for reason in ("play", "controller", "invalid")):
            # A run that goes on in spite of it ends with another outcome.
            result["ansible_stats"] = statistic(REFUSED)
        return result

    def _refuse_packages(
        self, packages: list[str], task_vars: dict[str, Any]
    ) -> list[dict[str, str]]:
        if not packages:
            return []
        if self._is_this_python(task_vars):
            found = {package: version_of(package) for package in packages}
            return preconditions.refuse_packages(sys.executable, found)
        try:
            result = self._execute_module(
                module_name="metal.gpu.preconditions",
                module_args={"packages": packages},
                task_vars=task_vars,
            )
        except AnsibleError as error:
            result = {"failed": True, "msg": str(error)}
        if result.get("failed"):
            reason = result.get("module_stderr") or result["msg"]
            host = preconditions.CONTROLLER
            return [finding("CONTROLLER_UNUSABLE", host, error=redact(reason.strip()))]
        return preconditions.refuse_packages(result["python"], result["versions"])

    def _is_this_python(self, task_vars: dict[str, Any]) -> bool:
        """Tell whether modules on the controller run with the Python of this process.

        Then no process has to start for the answer.
        """
        host = task_vars.get("ansible_delegated_vars", {}).get(self._task.delegate_to, {})
        is_local = host.get("ansible_connection") == "local"
        return bool(is_local and host.get("ansible_python_interpreter") == sys.executable)

    def _check_variables(self, roles: Sequence[str], task_vars: dict[str, Any]) -> dict[str, Any]:
        if not roles:
            return {"invalid": {}, "misplaced": [], "unknown": []}
        hosts = {host: task_vars["hostvars"][host] for host in task_vars["ansible_play_hosts_all"]}
        invalid = {
            host: variables.refuse_invalid(host, values, roles) for host, values in hosts.items()
        }
        return {
            "invalid": {host: refusals for host, refusals in invalid.items() if refusals},
            "misplaced": variables.refuse_misplaced(hosts, load_extra_vars(self._loader)),
            "unknown": [*variables.notice_unknown(hosts), *variables.notice_unused(hosts)],
        }
