# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of metal.gpu.plan: observe the node once, and plan all roles.

Ansible loads an action plugin in the process that it forks its workers from, once for all nodes.
So whatever the workers need is loaded here, at import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.modules.plan import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils import variables
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import (
    Circumstances,
    Engine,
    desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import (
    ObservationFailed,
    interpret,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    why_unobserved,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registry import (
    ENGINE_OF,
    PACKAGES,
    PLANNERS,
    REPOSITORIES,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plain import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult
from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import (
    discovered_interpreter,
    execute_quietly,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import explain, stopped

variables.load_options()
variables.load_defaults()

_OBSERVED = {"packages": [*PACKAGES], "repositories": [*REPOSITORIES]}
_CREDENTIALS = re.compile("://[^/]*@")


class ActionModule(ActionBase):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC)
        host = str(self._task.delegate_to or task_vars["inventory_hostname"])
        before = task_vars.get("metal_gpu", {})
        node, refusals = self._observe(host, before, task_vars, again=options["prove"])
        plans: dict[str, PlanResult] = {}
        if node is not None:
            plans, refusals = self._plan(host, node, options["roles"], before, task_vars)
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
            "engine": None if node is None else engines.choose(node, _engine(task_vars)),
            "refusals": refusals,
            "plans": plans,
            "_ansible_no_log": bool(_CREDENTIALS.search(repr(plans))),
            **discovered_interpreter(self),
        }

    def _observe(
        self, host: str, before: Mapping[str, Any], task_vars: dict[str, Any], *, again: bool
    ) -> tuple[Node | None, list[dict[str, str]]]:
        """Return the observation, or the finding about its failure.

        Only a playbook knows that an earlier observation is fresh: tasks of the user may have
        changed the node since.
        """
        is_fresh = boolean(task_vars.get("metal_gpu_observation_is_fresh", False))
        if is_fresh and before.get("node") and not again:
            return cast(Node, plain(before["node"])), []
        try:
            # The raw data contains passwords of registries and proxies.
            result = execute_quietly(self, "metal.gpu.node_info", _OBSERVED, task_vars)
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

    def _plan(
        self,
        host: str,
        node: Node,
        roles: list[str],
        before: Mapping[str, Any],
        task_vars: Mapping[str, Any],
    ) -> tuple[dict[str, PlanResult], list[dict[str, str]]]:
        """Return the plan of each role, and what went wrong."""
        engine = engines.choose(node, _engine(task_vars))
        templar = self._templar.copy_with_new_env(
            available_variables={**variables.load_defaults(), **task_vars}
        )
        planned: dict[str, PlanResult] = {}
        problems = []
        for role in roles:
            if len(roles) > 1 and ENGINE_OF.get(role, engine) != engine:
                continue
            try:
                earlier = {**before.get("plans", {}), **planned}
                circumstances = _circumstances(host, task_vars, earlier)
                wanted = desired(role, _values(role, templar), node, circumstances)
                planned[role] = PLANNERS[role](node, wanted)
            except Exception as error:
                problems += stopped({"msg": str(error)}, host, f"the plan of {role}")
        return planned, problems


def _engine(task_vars: Mapping[str, Any]) -> Engine:
    return cast(Engine, str(task_vars.get("metal_gpu_engine") or engines.AUTO))


def _values(role: str, templar: Any) -> dict[str, Any]:
    """Return the values of the variables that a role declares."""
    available = templar.available_variables
    return {
        name: plain(templar.template(available[name]))
        for name, option in variables.load_options().items()
        if role in option.roles and name in available
    }


def _circumstances(
    host: str, task_vars: Mapping[str, Any], plans: Mapping[str, Any]
) -> Circumstances:
    driver = plans.get("nvidia_driver", {"data": {}})
    return {
        "host": host,
        "now": datetime.now(UTC),
        "engine": _engine(task_vars),
        "engine_is_new": bool(task_vars.get("docker_ce_is_new", False)),
        # In check mode, the driver that an earlier role plans is not there yet.
        "driver_is_planned": bool(driver["data"].get("is_missing", False)),
    }
