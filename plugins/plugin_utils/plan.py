# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan is: the steps to take with their reasons, or the refusals.

A planner is a pure function of an observation (what metal.gpu.node_info returned) and of what is
desired (the role's variables). `--check` shows the plan. The role carries it out. The plan of the
second run is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from posixpath import basename
from typing import Generic, NamedTuple, TypedDict, TypeVar

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from ansible_collections.metal.gpu.plugins.module_utils.verdict import rows
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Edits, ListEdit, apply
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import KeyConflict


class Step(NamedTuple):
    """An action of a role."""

    slug: str  # for conditions of tasks
    title: str  # for people; the name of the task


class NoData(TypedDict):
    """The data of a plan without any. Every plan is also a plan with this data."""


class Edit(TypedDict, total=False):
    """What to change in a configuration file, as arguments of metal.gpu.config_document."""

    path: str
    remove: list[list[str]]
    discard: list[dict[str, list[str]]]
    merge: dict[str, object]


class File(TypedDict):
    """A file of this collection, which has only this block."""

    path: str
    block: str


class Change(TypedDict):
    """An edit of this collection, which a role undoes if the program does not start with it."""

    path: str
    actor: str


PlanResult = rows.PlanResult
Data_co = TypeVar("Data_co", bound=Mapping[str, object], covariant=True)


@dataclass
class Plan(Generic[Data_co]):
    """Steps with their reasons, refusals and notices, and what the tasks need to know."""

    host: str
    data: Data_co
    steps: dict[Step, str] = field(default_factory=dict)  # with the reasons, in the order of a run
    refusals: list[dict[str, str]] = field(default_factory=list)
    notices: list[dict[str, str]] = field(default_factory=list)

    def step(self, step: Step, reason: str | None) -> None:
        """Add a step if there is a reason for it."""
        if reason:
            self.steps[step] = reason

    def has_step(self, *steps: Step) -> bool:
        """Tell whether the plan has one of these steps so far."""
        return not self.steps.keys().isdisjoint(steps)

    def refuse(self, code: str, **evidence: object) -> None:
        self.refusals.append(finding(code, self.host, **evidence))

    def notice(self, code: str, **evidence: object) -> None:
        self.notices.append(finding(code, self.host, **evidence))

    def result(self) -> PlanResult:
        """Return the plan as data. A plan with refusals has no steps. Reasons are redacted."""
        steps = {} if self.refusals else self.steps
        return {
            "steps": [
                {"slug": step.slug, "name": step.title, "reason": redact(reason)}
                for step, reason in steps.items()
            ],
            "refusals": self.refusals,
            "notices": self.notices,
            "data": self.data,
        }


def actor(role: str) -> str:
    """Return the actor of a role's edits in the admin's files; its tasks pass the same name."""
    return f"metal.gpu.{role}"


def changes(node: Node, role: str, suffix: str) -> dict[tuple[str, ...], object]:
    """Return what a role changed in files with this suffix.

    Maps each key path to its former value; None: the key did not exist.
    """
    return {
        tuple(change["key"]): change["before"]
        for edit in node["ours"]["edits"]
        if edit["actor"] == actor(role) and edit["path"].endswith(suffix)
        for change in edit["changes"]
    }


def edited(node: Node, role: str) -> list[str]:
    """Return the admin's files that a role changed and can restore."""
    return [edit["path"] for edit in node["ours"]["edits"] if edit["actor"] == actor(role)]


def naming_rival(reason: str | None, node: Node, role: str, path: str) -> str | None:
    """Return the reason for a change, and that someone else changed the file since the role did.

    Two tools that write one file undo each other, in each run of either. Another role of this
    collection is no such tool.
    """
    edits = [edit for edit in node["ours"]["edits"] if edit["path"] == path and not edit["error"]]
    is_edited = any(edit["actor"] == actor(role) for edit in edits)
    if reason and is_edited and not any(edit["untouched"] for edit in edits):
        return f"{reason}; something else has changed {path} since this role wrote it"
    return reason


class Unread(TypedDict):
    """Which files an engine has not read yet. An observed engine is one."""

    changed_since_start: list[str]
    edited_since_start: list[str]


def unread_reason(engine: Unread, *, drop_in: str, name: str) -> str | None:
    """Return why an engine that is correctly configured must be restarted.

    An earlier run may have stopped between the change and the restart. What somebody else changed
    waits for the next start, also in a file that a role edited before that start: they may not be
    done with it, or not want a restart now. `drop_in` is the name of the file that has nothing but
    settings of ours.
    """
    ours = {*engine["edited_since_start"]}
    unread = ", ".join(
        path for path in engine["changed_since_start"] if path in ours or basename(path) == drop_in
    )
    return f"{unread} changed after {name} started; containers keep running" if unread else None


def unread_change(node: Node, changed: Iterable[str]) -> Change | None:
    """Return the path and the actor of our change that an engine has not read yet.

    If the engine does not start with the change, the role may undo it, unless the admin has edited
    the file since.
    """
    unread = {*changed}
    changes: list[Change] = [
        {"path": edit["path"], "actor": edit["actor"]}
        for edit in node["ours"]["edits"]
        if edit["path"] in unread and edit["untouched"]
    ]
    return next(iter(changes), None)


def refuse_uneditable(plan: Plan[NoData], path: str | None, obstacle: str | None) -> None:
    """Refuse a configuration file that a step edits but that cannot be edited."""
    if obstacle:
        plan.refuse("CONFIG_NOT_EDITABLE", path=path, error=obstacle)


def refuse_conflict(plan: Plan[NoData], outline: Mapping[str, object], edit: Edit) -> None:
    """Refuse an edit that metal.gpu.config_document refuses for what the file has at its keys."""
    lists = (ListEdit(tuple(one["path"]), one["items"]) for one in edit.get("discard", ()))
    edits = Edits(discard=tuple(lists), merge=edit["merge"])
    try:
        apply({**outline}, edits)
    except KeyConflict as error:
        plan.refuse("CONFIG_NOT_EDITABLE", path=edit["path"], error=error)


def refuse_lost_history(plan: Plan[NoData], node: Node, role: str) -> None:
    """Refuse to change anything if the history of the role's edits is unreadable."""
    for edit in node["ours"]["edits"]:
        if plan.steps and edit["actor"] == actor(role) and edit["error"]:
            plan.refuse("HISTORY_UNREADABLE", path=edit["path"], error=edit["error"])
