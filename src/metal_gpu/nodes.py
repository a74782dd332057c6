# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine that was observed, or the reason why it was not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE, finding, is_sound
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node as Observed
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile
from ansible_collections.metal.gpu.plugins.plugin_utils import variables
from ansible_collections.metal.gpu.plugins.plugin_utils.components import planning
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import (
    ObservationFailed,
    interpret,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    why_unobserved,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import stopped
from metal_gpu import node_program
from metal_gpu.hosts import Host
from metal_gpu.ssh.settings import Session, Unreachable
from metal_gpu.templates import Variables

Finding = Mapping[str, str]
_INTERPRETER = "ansible_python_interpreter"
_STATED = ("gpu_count", "gpu_expected")
_building = Lock()


class PlannedStep(NamedTuple):
    """What a role would do, and why."""

    role: str
    slug: str
    name: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """What the roles of metal.gpu.site would do on a node."""

    roles: Mapping[str, PlanResult]
    refusals: Sequence[Finding]  # they stop the run, so no step is taken
    notices: Sequence[Finding]

    @property
    def steps(self) -> list[PlannedStep]:
        return [
            PlannedStep(role, one["slug"], one["name"], one["reason"])
            for role, plan in self.roles.items()
            for one in plan["steps"]
        ]


@dataclass(frozen=True)
class Node:
    """A host after its observation."""

    host: Host
    observed: Observed | None  # what metal.gpu.node_info returns as gpu_node
    unobserved: Finding | None = None  # why there is no observation
    host_key: str | None = None  # the fingerprint by which SSH has known it

    @property
    def name(self) -> str:
        return self.host.name

    def plan(self, desired: Mapping[str, object] | None = None) -> Plan:
        """Return what metal.gpu.site would do, with variables of its roles as in an inventory.

        The variables of the host count as well. A node that was not observed has no steps, and the
        reason as its refusal.
        """
        return self._plan(desired) if desired else self._default_plan

    @cached_property
    def _default_plan(self) -> Plan:
        return self._plan({})

    def _plan(self, desired: Mapping[str, object]) -> Plan:
        if self.observed is None:
            return Plan({}, [self.unobserved] if self.unobserved else [], [])
        own = {**self.host.variables, **desired}
        available = {**variables.load_defaults(), **own}
        rendered = Variables(available)
        shared, problems = _shared(self.name, rendered)
        invalid = variables.refuse_invalid(self.name, _rendered(rendered, own), variables.OF_SITE)
        plans: dict[str, PlanResult] = {}
        wrong: list[dict[str, str]] = []
        if not problems:

            def values(role: str) -> dict[str, object]:
                return {one: rendered[one] for one in planning.variables_of(role, available)}

            # What is invalid has its own finding, and no role plans with it.
            bad = {role for name in invalid for role in variables.load_options()[name].roles}
            roles = [role for role in planning.SITE if role not in bad]
            plans, wrong = planning.plan_roles(self.name, self.observed, roles, values, shared, {})
        refusals = [
            *invalid.values(),
            *problems,
            *wrong,
            *(one for plan in plans.values() for one in plan["refusals"]),
        ]
        notices = [
            *variables.notice_unknown({self.name: own}),
            *(one for plan in plans.values() for one in plan["notices"]),
        ]
        return Plan(plans, _distinct(refusals), _distinct(notices))

    @cached_property
    def declared(self) -> int | None:
        """The number of GPUs that the inventory declares."""
        return variables.gpu_count(self.name, self.stated["gpu_count"])[0]

    @cached_property
    def stated(self) -> Mapping[str, object]:
        """What the inventory says about the GPUs of the host: gpu_count and gpu_expected.

        None: nothing, or the plan refuses it.
        """
        own = Variables({**variables.load_defaults(), **self.host.variables})
        return {**dict.fromkeys(_STATED), **_rendered(own, _STATED)}

    @cached_property
    def findings(self) -> list[Finding]:
        """What is wrong with the machine, and what stops a run, by the rules of verify.

        Only what the machine itself shows: `Fleet.verify` asks the cluster as well.
        """
        if self.observed is None:
            return [self.unobserved] if self.unobserved else []
        verdict = reconcile(self.name, self.observed, self.declared, None, None, (), asked=())
        plan = self.plan()
        return _distinct([*verdict["findings"], *plan.refusals, *plan.notices])

    @property
    def is_sound(self) -> bool:
        """Tell whether no finding needs somebody."""
        return is_sound(self.findings)


def observe(host: Host, session: Session) -> Node:
    """Observe a machine by one command. Raises Unreachable."""
    named = host.variables.get(_INTERPRETER)
    is_path = isinstance(named, str) and not named.startswith("auto") and "{{" not in named
    answer = session.run(
        node_program.command(str(named) if is_path else None),
        _program(),
        node_program.TIME_LIMIT_S + 30,
    )
    if answer.rc is None and not answer.stdout:
        cut = "the connection ended during the observation"
        raise Unreachable(finding("NODE_UNREACHABLE", host.name, error=cut))
    try:
        observed = interpret(node_program.read(answer.stdout, answer.stderr))
        return Node(host, observed, host_key=getattr(session, "host_key", None))
    except node_program.PythonMissing as error:
        return Node(host, None, finding("PYTHON_MISSING", host.name, found=str(error)))
    except node_program.NotObserved as error:
        return Node(host, None, why_unobserved(host.name, {"msg": str(error)}))
    except ObservationFailed as error:
        failed = {"msg": str(error), "failures": error.failures}
        return Node(host, None, why_unobserved(host.name, failed))


def _program() -> bytes:
    """Return the program for all nodes. Their threads ask for it at the same time."""
    options = planning.OBSERVED
    with _building:
        return node_program.text(tuple(options["packages"]), tuple(options["repositories"]))


def failed(host: Host, error: Exception) -> Node:
    """Return a node whose observation or judgement raised an error that nobody expected."""
    words = redact(f"{type(error).__name__}: {error}")
    return Node(host, None, finding("OBSERVATION_FAILED", host.name, error=words))


def _rendered(available: Variables, names: Iterable[str]) -> dict[str, object]:
    """Return the variables of this collection among these, less those that cannot be rendered."""
    values: dict[str, object] = {}
    for name in variables.load_options().keys() & {*names} & available.values.keys():
        with suppress(Exception):  # a template may raise anything; the plan reports it
            values[name] = available[name]
    return {name: value for name, value in values.items() if not _is_encrypted(value)}


def _is_encrypted(value: object) -> bool:
    """Tell whether a value, or a part of it, is encrypted. ansible-inventory has a mapping then."""
    if isinstance(value, Mapping):
        return "__ansible_vault" in value or any(map(_is_encrypted, value.values()))
    return isinstance(value, list) and any(map(_is_encrypted, value))


def _shared(host: str, rendered: Variables) -> tuple[dict[str, object], list[Finding]]:
    """Return the variables that no role declares alone, and those that cannot be rendered."""
    values: dict[str, object] = {**planning.SHARED}
    problems: list[Finding] = []
    for name in values.keys() & rendered.values.keys():
        try:
            value = rendered[name]
        except Exception as error:  # a template may raise anything
            problems += stopped({"msg": str(error)}, host, f"the variable {name}")
        else:
            values[name] = planning.SHARED[name] if value in (None, "") else value
    return values, problems


def _distinct(found: Sequence[Finding]) -> list[Finding]:
    """Return each finding once, with those that stop something first."""
    distinct = {(one["code"], one["message"]): one for one in found}.values()
    return sorted(distinct, key=lambda one: one["severity"] == NOTICE)
