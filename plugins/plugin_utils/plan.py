# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan is: the steps to take with their reasons, or the refusals.

A planner is a pure function of an observation (what metal.gpu.node_info returned) and of
desired (the role's variables). `--check` shows its plan, the role carries it out, and the second
run finds it empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact


@dataclass
class Plan:
    """Steps and refusals as they are found. The name of a step is that of its task."""

    host: str
    steps: list[dict[str, str]] = field(default_factory=list)
    refusals: list[dict[str, str]] = field(default_factory=list)
    notices: list[dict[str, str]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)  # what the tasks need to know

    def step(self, name: str, reason: str | None) -> None:
        """Add a step, if there is a reason for it. What is shown has no credentials."""
        if reason:
            self.steps.append({"name": name, "reason": redact(reason)})

    def refuse(self, code: str, **evidence: Any) -> None:
        self.refusals.append(finding(code, self.host, **evidence))

    def notice(self, code: str, **evidence: Any) -> None:
        self.notices.append(finding(code, self.host, **evidence))

    def result(self) -> dict[str, Any]:
        """Return the plan as data. A plan with refusals has no steps."""
        if self.refusals:
            self.steps = []
        return asdict(self)


def actor(role: str) -> str:
    """Return the name that a role's edits in files of others go by; its tasks give the same."""
    return f"metal.gpu.{role}"


def changes(node: Mapping[str, Any], role: str, suffix: str) -> dict[tuple[str, ...], Any]:
    """Return what a role has changed in files with this suffix.

    Keyed by key path, with what was there before, None for nothing.
    """
    return {
        tuple(change["key"]): change["before"]
        for edit in node["ours"]["edits"]
        if edit["actor"] == actor(role) and edit["path"].endswith(suffix)
        for change in edit["changes"]
    }


def edited(node: Mapping[str, Any], role: str) -> list[str]:
    """Return the files of others that a role has changed, and can give back."""
    return [edit["path"] for edit in node["ours"]["edits"] if edit["actor"] == actor(role)]


def refuse_uneditable(plan: Plan, config: Mapping[str, Any]) -> None:
    """Refuse a configuration file that a step edits, and that cannot be edited."""
    if config["obstacle"]:
        plan.refuse("CONFIG_NOT_EDITABLE", path=config["path"], error=config["obstacle"])


def refuse_lost_history(plan: Plan, node: Mapping[str, Any], role: str) -> None:
    """Refuse to change anything where it is not known what the role has changed before."""
    for edit in node["ours"]["edits"]:
        if plan.steps and edit["actor"] == actor(role) and edit["error"]:
            plan.refuse("HISTORY_UNREADABLE", path=edit["path"], error=edit["error"])
