# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of metal.gpu.fleet: what the run knows about all hosts of the play.

It reads what the hosts have registered as it is. As templates, the variables of 2,000 hosts would
take minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.modules.fleet import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils.plain import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import fleet
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import explain, table


class ActionModule(ActionBase):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC)
        task_vars = task_vars or {}
        # A verdict is also about hosts that Ansible has taken out of the play, but not about those
        # of other batches.
        is_whole = options["query"] in ("doubts", "verdicts") and not self._task.get_play().serial
        names = task_vars["ansible_play_hosts_all" if is_whole else "ansible_play_batch"]
        hosts = list(_hosts(task_vars, names, plain(options["findings"])))
        answers = fleet.Answers(
            *(plain(options[name]) for name in ("capacity", "smoke", "unanswered", "asked"))
        )
        result: dict[str, Any] = {"changed": False}
        if options["query"] == "reports":
            result["reports"] = {host.name: fleet.report(host) for host in hosts}
        elif options["query"] == "members":
            result["members"] = [fleet.member(host) for host in hosts if host.planned.get("node")]
        elif options["query"] == "questions":
            result["questions"] = [asked for host in hosts if (asked := fleet.ask(host))]
        elif options["query"] == "doubts":
            doubtful = [host.name for host in hosts if fleet.is_doubtful(host, answers)]
            result["hosts"] = doubtful
        else:
            if options["query"] == "left_out":
                hosts = [host for host in hosts if fleet.is_left_out(host)]
            again = {row["host"]: plain(row) for row in options["again"]}
            verdicts = [
                fleet.judge(host, answers, again.get(host.name), drift=options["drift"])
                for host in hosts
            ]
            result |= _conclusion(verdicts, answers, check_mode=self._task.check_mode)
            seconds = time.time() - options["since"] if options["since"] else 0.0
            changed = len(task_vars["groups"].get("metal_gpu_prepared", ()))
            ended = fleet.summary(verdicts, answers.unanswered, changed=changed, seconds=seconds)
            result["outcome"] = ended["outcome"]
            result["table"] += [ended["line"]]
        return result


def _hosts(
    task_vars: Mapping[str, Any], names: Iterable[str], findings: Mapping[str, list[dict[str, str]]]
) -> Iterator[fleet.Host]:
    groups = task_vars["groups"]
    pending = {*groups.get("metal_gpu_work", ())} - {*groups.get("metal_gpu_prepared", ())}
    for name in names:
        values = task_vars["hostvars"].raw_get(name)
        stopped = plain(values.get("metal_gpu_stopped", []))
        known = [*findings.get(name, ()), *stopped]
        yield fleet.Host(
            name,
            plain(values.get("metal_gpu", {})),
            _declared(task_vars, name, values),
            known,
            dropped=name in pending and not known,
        )


def _declared(task_vars: Mapping[str, Any], name: str, values: Mapping[str, Any]) -> Any:
    """Return a host's gpu_count, which can be a template."""
    value = values.get("gpu_count")
    is_template = isinstance(value, str) and "{{" in value
    return task_vars["hostvars"][name]["gpu_count"] if is_template else plain(value)


def _conclusion(
    verdicts: list[dict[str, Any]], answers: fleet.Answers, *, check_mode: bool
) -> dict[str, Any]:
    """Return the table, and each finding once: with its host that fails, or for all to see."""
    failures = {
        verdict["host"]: explain(own)
        for verdict in verdicts
        if fleet.fails(verdict, check_mode=check_mode)
        and (own := fleet.own(verdict, answers.unanswered))
    }
    mentioned = list(answers.unanswered)
    for verdict in verdicts:
        if verdict["host"] not in failures:
            mentioned += [one for one in verdict["findings"] if one not in mentioned]
    return {
        "verdicts": {verdict["host"]: verdict for verdict in verdicts},
        "table": table(verdicts),
        "mentioned": explain(mentioned),
        "failures": failures,
    }
