# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plans of several roles for one node, from its observation and its variables.

The action plugin metal.gpu.plan and the Python library plan by the same code. They differ only in
who renders the templates of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from types import MappingProxyType
from typing import Final, cast

from ansible_collections.metal.gpu.plugins.module_utils.booleans import boolean
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils import variables
from ansible_collections.metal.gpu.plugins.plugin_utils.components import COMPONENTS
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd.plan import CRI
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import (
    Circumstances,
    Engine,
    desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import reload
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import stopped

Planner = Callable[[Node, Mapping[str, object]], PlanResult]


def _planner(component: str) -> Planner:
    return cast(Planner, import_module(f"..{component}.plan", __name__).plan)


# By role, in the order in which the roles run. Each takes its own `Desired`; see desired.py.
PLANNERS = {one.role: _planner(one.name) for one in COMPONENTS if one.where == "node"}
_ENGINES = {one.role: one.name for one in COMPONENTS if one.engine}
# What an observation must contain for all plans, as options of metal.gpu.node_info.
OBSERVED: Mapping[str, list[str]] = MappingProxyType(
    {
        "packages": [pattern for one in COMPONENTS for pattern in one.packages],
        "repositories": [pattern for one in COMPONENTS for pattern in one.repositories],
    }
)
# Variables that no role declares alone, with their defaults.
SHARED: Mapping[str, object] = MappingProxyType(
    {
        "gpu_count": None,
        "gpu_expected": None,
        "metal_gpu_engine": engines.AUTO,
        "metal_gpu_observation_is_fresh": False,
        "docker_ce_is_new": False,
    }
)
# What metal.gpu.site plans, in its order.
SITE: Final = [one.role for one in COMPONENTS if one.is_for_site and one.role in PLANNERS]


def plan_roles(
    host: str,
    node: Node,
    roles: Sequence[str],
    values: Callable[[str], Mapping[str, object]],
    shared: Mapping[str, object],
    earlier: Mapping[str, PlanResult],
) -> tuple[dict[str, PlanResult], list[dict[str, str]]]:
    """Return the plan of each role, and a finding for each role that cannot be planned.

    Of several roles, those of an engine that the node does not use are left out. `values` returns
    the values of the variables of a role, and may fail. `shared` has those of SHARED. `earlier` are
    plans that this run has made before.
    """
    engine = engines.choose(node, _engine(shared))
    planned: dict[str, PlanResult] = {}
    problems: list[dict[str, str]] = []
    for role in roles:
        if len(roles) > 1 and _ENGINES.get(role, engine) != engine:
            continue
        try:
            circumstances = _circumstances(host, shared, {**earlier, **planned})
            planned[role] = PLANNERS[role](node, desired(role, values(role), node, circumstances))
        except Exception as error:  # a template may raise anything
            problems += stopped({"msg": str(error)}, host, f"the plan of {role}")
    return planned, problems


def needs_users(node: Node, plans: Mapping[str, PlanResult]) -> bool:
    """Tell whether to observe who uses the driver, which is slow: a step may reload systemd."""
    is_loaded = node["driver"]["module_version"] is not None
    is_asked = node["device_users"] is None and any(plan["steps"] for plan in plans.values())
    return is_asked and is_loaded and reload.may_take(node)


def variables_of(role: str, available: Collection[str]) -> list[str]:
    """Return the variables that a role declares, of those that have a value."""
    options = variables.load_options().items()
    return [name for name, option in options if role in option.roles and name in available]


def _engine(shared: Mapping[str, object]) -> Engine:
    return cast(Engine, shared["metal_gpu_engine"])


def _circumstances(
    host: str, shared: Mapping[str, object], plans: Mapping[str, PlanResult]
) -> Circumstances:
    driver, containerd = plans.get("nvidia_driver"), plans.get("containerd")
    return {
        "host": host,
        "now": datetime.now(UTC),
        "engine": _engine(shared),
        "engine_is_new": boolean(shared["docker_ce_is_new"]),
        "cri_is_planned": containerd is not None
        and CRI.slug in [step["slug"] for step in containerd["steps"]],
        # In check mode, the driver that an earlier role plans is not there yet.
        "driver_is_planned": driver is not None and bool(driver["data"].get("is_missing", False)),
    }
