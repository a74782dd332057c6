# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a run is: from the events of ansible-runner to stages, nodes and verdicts.

An event has the play, the role and the task, and the node that started or ended it. A task runs on
all nodes of a play before the next one starts, so the nodes that a stage waits for are those that
have started its task and not ended it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metal_gpu.playbooks import stages

WAITING, RUNNING, DONE, UNUSED, STOPPED = "waiting", "running", "done", "unused", "stopped"
UNREACHED = "unreached"  # the run ended before it

Values = Mapping[str, object]

# What findings are about besides hosts. A host can have such a name, too.
SUBJECTS = ("controller", "cluster", "inventory")
_ENDS = ("runner_on_ok", "runner_on_skipped", "runner_on_failed", "runner_on_unreachable")
_FLEET, _LEAK_TEST, _PLAN = "metal.gpu.fleet", "metal.gpu.gpu_leak_test", "metal.gpu.plan"
# Where the results of our modules have findings about hosts, the cluster and the inventory.
_FINDINGS = {
    _FLEET: ("findings", "notices", "refusals"),
    _LEAK_TEST: ("findings",),
    _PLAN: ("refusals",),
    "metal.gpu.preconditions": ("controller", "misplaced", "unknown"),
}


@dataclass
class Stage:
    """A stage and the nodes in it."""

    play: str
    title: str
    state: str = WAITING
    nodes: dict[str, None] = field(default_factory=dict)  # a set that keeps the order
    failed: dict[str, None] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)  # on which the task has not ended
    changed: int = 0  # results with a change
    task: str = ""
    task_since: float = 0.0
    since: float = 0.0
    seconds: float = 0.0
    is_used: bool = False  # whether a task did something on a node

    @property
    def done(self) -> int:
        """How many nodes have ended the task at hand."""
        return len(self.nodes.keys() - self.failed.keys() - self.waiting.keys())


class Progress:
    """The state of a run. `feed` takes one event after the other."""

    def __init__(
        self,
        planned: Sequence[stages.Stage],
        own_plays: Sequence[str],
        *,
        has_verdicts: bool = False,
    ) -> None:
        """`own_plays` are those that are shown; the others check the inventory and the end.

        `has_verdicts` if the playbook ends with verdicts on all nodes.
        """
        self.stages = [Stage(one.play, one.title) for one in planned]
        self.outcome = ""
        self.verdicts: dict[str, Values] = {}
        self.refused: dict[str, list[Values]] = {}  # findings of a run that does not start
        # All findings, also about the cluster and the inventory, each once.
        self.found: dict[tuple[str, ...], Values] = {}
        self.tried: list[str] = []  # nodes that the leak test has judged
        self.planned: set[str] = set()  # nodes on which a plan was made
        self.table: list[str] = []
        self.report = ""
        self.failures: list[str] = []
        self.unreachable: list[str] = []
        self.processed: list[str] = []
        self._own_plays = own_plays
        self._has_verdicts = has_verdicts
        self._play = ""
        self._current: Stage | None = None

    @property
    def current(self) -> Stage | None:
        """The stage that runs."""
        return self._current

    def feed(self, event: Values, now: float) -> None:
        """Take an event of ansible-runner."""
        kind, data = str(event.get("event", "")), mapping(event.get("event_data"))
        if kind == "playbook_on_play_start":
            self._play = str(data.get("name", ""))
        elif kind == "playbook_on_task_start":
            self._start_task(data, now)
        elif kind == "runner_on_start" and self._current:
            host = str(data.get("host", ""))
            self._current.nodes[host] = None
            self._current.waiting[host] = None
        elif kind in _ENDS:
            self._end_task(kind, data)
        elif kind == "playbook_on_stats":
            self._end(data, now)

    @property
    def is_whole(self) -> bool:
        """Whether the run did everything for the nodes that have not failed.

        If the last stage failed, it may have for all nodes. A proof that failed proves nothing.
        """
        *before, last = self.stages
        is_judged = bool(self.verdicts) or not self._has_verdicts
        return bool(before) and last.state in (DONE, UNUSED) and is_judged

    def end(self, now: float) -> None:
        """The run is over. Without its last event, it did not come to its end."""
        if stage := self._current:
            stage.seconds += now - stage.since
            stage.state = STOPPED
        self._current = None

    def _start_task(self, data: Values, now: float) -> None:
        stage = self._stage(str(data.get("resolved_role") or data.get("role") or ""))
        if stage is not self._current:
            self._leave(now)
            self._current = stage
            if stage is not None:
                stage.state, stage.since = RUNNING, now
        if stage is not None:
            stage.waiting.clear()
            # Ansible writes "ROLE : NAME".
            stage.task = str(data.get("name", "")).rpartition(" : ")[2]
            stage.task_since = now

    def _stage(self, role: str) -> Stage | None:
        """Return the stage of a task in the play at hand; None for what is not shown."""
        if self._play not in self._own_plays:
            return None
        own = [stage for stage in self.stages if stage.play == self._play]
        wanted = stages.title(role) if role else ""
        named = [stage for stage in own if stage.title == wanted]
        if named:
            return named[0]
        if self._current in own:
            return self._current
        return own[0] if own else None

    def _leave(self, now: float) -> None:
        """The current stage is over."""
        if stage := self._current:
            stage.seconds += now - stage.since
            stage.waiting.clear()
            stage.state = DONE if stage.is_used else UNUSED
        self._current = None

    def _end_task(self, kind: str, data: Values) -> None:
        host, result = str(data.get("host", "")), mapping(data.get("res"))
        action = str(data.get("task_action"))
        for key in _FINDINGS.get(action, ()):
            for one in findings_in(result.get(key)):
                self.found.setdefault(identity(one), one)
        if action == _PLAN:
            self.planned.add(host)
        if action == _LEAK_TEST:
            self.tried += mapping(result.get("nodes"))
        if action == _FLEET and kind == "runner_on_ok":
            self._judged(result)
        if (stage := self._current) is None:
            return
        stage.waiting.pop(host, None)
        if kind == "runner_on_skipped":
            return
        stage.nodes[host] = None
        stage.is_used = True
        if kind != "runner_on_ok" and not data.get("ignore_errors"):
            stage.failed[host] = None
        if result.get("changed"):
            stage.changed += 1

    def _judged(self, result: Values) -> None:
        verdicts = {name: mapping(one) for name, one in mapping(result.get("verdicts")).items()}
        self.verdicts.update(verdicts)
        refused = {
            name: [mapping(one) for one in found]
            for name, found in mapping(result.get("stopped")).items()
            if isinstance(found, list)
        }
        self.refused.update(refused)
        if self._current:  # nodes that fail need not have a task that fails
            bad = [
                name
                for name, one in verdicts.items()
                if not one.get("ok") and not one.get("planned")
            ]
            failed = dict.fromkeys([*bad, *(one for one in refused if one not in SUBJECTS)])
            self._current.failed |= failed
            self._current.nodes |= failed
        table = result.get("table")
        if isinstance(table, list) and table:
            self.table = [str(line) for line in table]
        self.report = str(result.get("report") or self.report)

    def _end(self, data: Values, now: float) -> None:
        self.failures = list(mapping(data.get("failures")))
        self.unreachable = list(mapping(data.get("dark")))
        self.processed = list(mapping(data.get("processed")))
        self.outcome = str(mapping(data.get("artifact_data")).get("metal_gpu_outcome") or "")
        self._leave(now)
        is_left = bool(self.failures or self.unreachable)
        for stage in reversed(self.stages):
            if stage.state == WAITING:
                stage.state = UNREACHED if is_left else UNUSED
            else:
                is_left = False


def identity(found: Values) -> tuple[str, ...]:
    """Return what two reports of the same finding share."""
    return tuple(str(found.get(key)) for key in ("host", "code", "message"))


def findings_in(value: object) -> list[Values]:
    """Return the findings of a list, or of the lists of a mapping."""
    if isinstance(value, Mapping):
        return [one for several in value.values() for one in findings_in(several)]
    listed = value if isinstance(value, list) else []
    return [one for one in map(mapping, listed) if "code" in one]


def mapping(value: object) -> Values:
    """Return a mapping; an empty one for anything else that an event can have in its place."""
    return value if isinstance(value, Mapping) else {}
