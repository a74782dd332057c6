# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of metal.gpu.plan: observe the node once, and plan all roles.

Ansible loads an action plugin in the process that it forks its workers from, once for all nodes.
So whatever the workers need is loaded here, at import.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.module_utils.booleans import boolean
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.modules.plan import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils import role_defaults, succession, variables
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import (
    ObservationFailed,
    interpret,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import (
    OBSERVED,
    PLANNERS,
    SHARED,
    SITE,
    needs_users,
    plan_roles,
    variables_of,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    why_unobserved,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plain_types import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult
from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import (
    discovered_interpreter,
    execute_quietly,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import explain, stopped

_ROLES = {"type": "list", "elements": "str", "choices": [*PLANNERS], "default": SITE}

variables.load_options()
role_defaults.load()

_CREDENTIALS = re.compile("://[^/]*@")


class ActionModule(ActionBase):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _result, options = self.validate_argument_spec({**ARGUMENT_SPEC, "roles": _ROLES})
        host = str(self._task.delegate_to or task_vars["inventory_hostname"])
        before = task_vars.get("metal_gpu", {})
        self._variables = self._templar.copy_with_new_env(
            available_variables={**role_defaults.load(), **task_vars}
        )
        shared, unrendered = self._shared(host)
        is_fresh = boolean(shared["metal_gpu_observation_is_fresh"])
        # A role plans itself; preflight and verify plan all roles, and look for themselves.
        # With delegate_to, the variables are nevertheless those of the host of the play.
        place = plain(before.get("place")) if before.get("host") == host else None
        if len(options["roles"]) == 1 and succession.follows(self._task, place, time.time()):
            is_fresh = True
        is_fresh = is_fresh and not options["prove"] and bool(before.get("node"))
        if not is_fresh:
            place = succession.place(self._task, time.time())
        node, refusals = self._observe(host, before, task_vars, is_fresh=is_fresh)
        refusals += unrendered
        plans: dict[str, PlanResult] = {}
        engine = None if node is None else engines.choose(node, shared["metal_gpu_engine"])
        if node is not None and not unrendered:
            roles, earlier = options["roles"], before.get("plans", {})
            plans, refusals = plan_roles(host, node, roles, self._values, shared, earlier)
            if needs_users(node, plans):
                users = {**OBSERVED, "device_users": True}
                again, refusals = self._observe(host, before, task_vars, is_fresh=False, asks=users)
                if again is not None:
                    node = again
                    plans, refusals = plan_roles(host, node, roles, self._values, shared, earlier)
        refusals += [one for plan in plans.values() for one in plan["refusals"]]
        remaining = [one for plan in plans.values() for one in plan["steps"]]
        lines = explain([*refusals, *(remaining if options["prove"] else ())])
        if lines and not options["report_only"]:
            return {"failed": True, "msg": "\n".join(lines)}
        plans = {**before.get("plans", {}), **plans}
        return {
            "changed": False,
            "host": host,
            "node": node,
            "place": place,
            "declared": shared["gpu_count"],
            "expected": shared["gpu_expected"],
            "engine": engine,
            "refusals": refusals,
            "plans": plans,
            "_ansible_no_log": bool(_CREDENTIALS.search(repr(plans))),
            **discovered_interpreter(self),
        }

    def _observe(
        self,
        host: str,
        before: Mapping[str, Any],
        task_vars: dict[str, Any],
        *,
        is_fresh: bool,
        asks: Mapping[str, object] = OBSERVED,
    ) -> tuple[Node | None, list[dict[str, str]]]:
        """Return the observation, or the finding about its failure.

        An earlier observation is fresh if a playbook knows that, or if the role follows another one
        of ours. Elsewhere, tasks of the user may have changed the node since.
        """
        if is_fresh:
            return cast(Node, plain(before["node"])), []
        try:
            # The raw data contains passwords of registries and proxies.
            result = execute_quietly(self, "metal.gpu.node_info", dict(asks), task_vars)
        except AnsibleConnectionFailure as error:
            result = {"unreachable": True, "msg": str(error)}
        except AnsibleError as error:  # such as "Missing sudo password"
            result = {"failed": True, "msg": str(error)}
        raw = result.get("raw")
        if raw is not None:
            try:
                return interpret(plain(raw)), []
            except ObservationFailed as error:
                result = {"failed": True, "msg": str(error), "failures": error.failures}
        method = self._play_context.become_method or ""
        return None, [why_unobserved(host, result, method)]

    def _values(self, role: str) -> dict[str, Any]:
        """Return the values of the variables that a role declares."""
        names = variables_of(role, self._variables.available_variables)
        return {name: self._value(name) for name in names}

    def _value(self, name: str) -> Any:
        return plain(self._variables.template(self._variables.available_variables[name]))

    def _shared(self, host: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
        """Return variables that no role declares alone, and what is wrong with templates."""
        values: dict[str, Any] = {**SHARED}
        problems = []
        for name in values.keys() & self._variables.available_variables:
            try:
                value = self._value(name)
            except Exception as error:  # a template may raise anything
                problems += stopped({"msg": str(error)}, host, f"the variable {name}")
            else:
                values[name] = SHARED[name] if value in (None, "") else value
        return values, problems
