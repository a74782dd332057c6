# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of metal.gpu.fleet: what the run knows about all hosts of the play.

It reads what the hosts have registered as it is. As templates, the variables of 2,000 hosts would
take minutes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.modules.fleet import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils.plain import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import fleet
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import (
    admission,
    explain,
    table,
)


class ActionModule(ActionBase):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC)
        task_vars, query = task_vars or {}, options["query"]
        # A table is also about hosts that Ansible has taken out of the play, but not about those of
        # other batches.
        whole = ("admission", "doubts", "verdicts")
        is_whole = query in whole and not self._task.get_play().serial
        names = task_vars["ansible_play_hosts_all" if is_whole else "ansible_play_batch"]
        hosts = list(_hosts(task_vars, names, plain(options["findings"])))
        answers = fleet.Answers(
            *(plain(options[name]) for name in ("capacity", "smoke", "unanswered", "asked"))
        )
        result: dict[str, Any] = {"changed": False}
        if query == "reports":
            result["reports"] = {host.name: fleet.report(host) for host in hosts}
        elif query == "members":
            result["members"] = [fleet.member(host) for host in hosts if host.planned.get("node")]
        elif query == "questions":
            result["questions"] = [asked for host in hosts if (asked := fleet.ask(host))]
        elif query == "doubts":
            doubtful = [host.name for host in hosts if fleet.is_doubtful(host, answers)]
            result["hosts"] = doubtful
        elif query == "admission":
            active = frozenset(task_vars["ansible_play_batch"])
            result |= _admit(active, hosts, answers, options)
        else:
            if query == "left_out":
                hosts = [host for host in hosts if fleet.is_left_out(host)]
            again = {row["host"]: plain(row) for row in options["again"]}
            verdicts = [
                fleet.judge(host, answers, again.get(host.name), drift=options["drift"])
                for host in hosts
            ]
            changed, refused = (
                len(task_vars["groups"].get(f"metal_gpu_{group}", ()))
                for group in ("prepared", "refused")
            )
            result |= {
                "verdicts": {verdict["host"]: verdict for verdict in verdicts},
                "failures": fleet.failures(
                    verdicts, answers.unanswered, check_mode=self._task.check_mode
                ),
                **_end(
                    fleet.outcome(verdicts, answers.unanswered),
                    [one for verdict in verdicts for one in verdict["findings"]],
                    verdicts,
                    options["since"],
                    changed=changed,
                    refused=refused,
                ),
            }
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


def _admit(
    active: Collection[str],
    hosts: list[fleet.Host],
    answers: fleet.Answers,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Decide which hosts may go on. If none may, end with the table."""
    cluster = plain(options["cluster"])
    reports = {host.name: fleet.report(host) for host in hosts if host.name in active}
    admitted = admission(
        reports,
        cluster,
        invalid=plain(options["invalid"]),
        drain=options["drain"],
        skip_refused=options["skip_refused"],
    )
    found, stopped = admitted["findings"], admitted["stopped"]
    if admitted["begin"]:
        return admitted | {"explained": explain([*found, *admitted["notices"]]), "table": []}
    # A refusal of the cluster or of the inventory is one of each host.
    of_all = [one for one in found if one["host"] not in reports]
    verdicts = [
        fleet.refuse(host._replace(findings=[*stopped.get(host.name, ()), *of_all]), answers)
        for host in hosts
    ]
    outcome = fleet.CLUSTER_DOWN if cluster.get("error") else fleet.REFUSED
    refused = sum(bool(verdict["findings"]) for verdict in verdicts)
    return admitted | _end(outcome, found, verdicts, options["since"], changed=0, refused=refused)


def _end(
    outcome: str,
    findings: Iterable[Mapping[str, Any]],
    verdicts: list[dict[str, Any]],
    since: float | None,
    **counts: int,
) -> dict[str, Any]:
    """Return what a run ends with: each finding once, the table, and the outcome."""
    distinct = {(one["host"], one["code"], one["message"]): one for one in findings}
    seconds = time.time() - since if since else 0.0
    return {
        "outcome": outcome,
        "explained": explain(distinct.values()),
        "table": [*table(verdicts), fleet.summary(verdicts, seconds=seconds, **counts)],
        "ansible_stats": fleet.statistic(outcome),
    }
