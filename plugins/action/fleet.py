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
from urllib.parse import urlsplit

from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.modules.fleet import ARGUMENT_SPEC
from ansible_collections.metal.gpu.plugins.plugin_utils import role_defaults, tags
from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import for_node
from ansible_collections.metal.gpu.plugins.plugin_utils.plain_types import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import (
    fleet,
    former,
    mirror,
    portability,
    report_file,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import (
    admission,
    explain,
    table,
    together,
)

# Loaded once, before Ansible forks its workers.
role_defaults.load()


class ActionModule(ActionBase):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(ARGUMENT_SPEC)
        task_vars, query = task_vars or {}, options["query"]
        run = plain(options["run"])
        hosts = list(_hosts(task_vars, _names(task_vars, query, run), run))
        answers = fleet.Answers(
            *(plain(options[name]) for name in ("capacity", "smoke", "unanswered", "asked"))
        )
        # The program `ansible` has no tags.
        words = (task_vars.get("ansible_run_tags", ["all"]), task_vars.get("ansible_skip_tags", ()))
        result: dict[str, Any] = {"changed": False}
        if query == "reports":
            result["reports"] = {host.name: fleet.report(host) for host in hosts}
        elif query == "members":
            result["members"] = [
                fleet.member(host) for host in hosts if not fleet.is_left_out(host)
            ]
        elif query == "questions":
            result["questions"] = [asked for host in hosts if (asked := fleet.ask(host))]
        elif query == "doubts":
            doubtful = [host.name for host in hosts if fleet.is_doubtful(host, answers)]
            result["hosts"] = doubtful
        elif query == "admission":
            active = frozenset(task_vars["ansible_play_batch"])
            result |= _admit(active, hosts, answers, options)
        elif query == "ended":
            line = fleet.ended(
                run,
                active=task_vars["ansible_play_hosts"],
                finished=task_vars["groups"].get(run["id"], ()),
                is_whole=not tags.leaves_out(*words),
                check_mode=self._task.check_mode,
            )
            result["table"] = [f"{line}, {time.time() - run['started']:.0f} s"]
        elif query == "downloads":
            result |= self._downloads(hosts, task_vars, options)
        elif query == "images":
            tried, wanted = list(_tried(task_vars, hosts)), _wanted(options)
            unfit = portability.decide(tried, wanted)
            result["hosts"] = portability.candidates(tried, wanted)
            result["explained"] = explain(one for found in unfit.values() for one in found)
        else:
            again = {row["host"]: plain(row) for row in options["again"]}
            left_out = tags.left_out(*words)
            if query == "containers":
                verdicts = portability.judge(
                    list(_tried(task_vars, hosts)),
                    _wanted(options),
                    drift=options["drift"],
                    check_mode=self._task.check_mode,
                    left_out=left_out,
                )
            else:
                verdicts = [
                    fleet.judge(
                        host,
                        answers,
                        again.get(host.name),
                        drift=options["drift"],
                        check_mode=self._task.check_mode and options["rehearsal"],
                        left_out=left_out,
                    )
                    for host in hosts
                    if query == "verdicts" or fleet.is_left_out(host)
                ]
            path = options["report"] or ""
            entries, problems = report_file.read(path)
            verdicts = former.compare(verdicts, entries)
            if path and not problems and not self._task.check_mode:
                problems = report_file.write(path, verdicts, entries)
            result |= {
                "report": "" if self._task.check_mode else path,
                "verdicts": {verdict["host"]: verdict for verdict in verdicts},
                "cordoned": fleet.cordoned(verdicts),
                "failures": fleet.failures(verdicts, answers.unanswered),
                **_end(
                    fleet.outcome(verdicts, answers.unanswered, is_proof=query != "left_out"),
                    [*(one for verdict in verdicts for one in verdict["findings"]), *problems],
                    verdicts,
                    options["since"],
                    refused=len(run.get("refused", ())),
                    check_mode=self._task.check_mode,
                    lines=portability.table(verdicts) if query == "containers" else None,
                ),
            }
        return result

    def _downloads(
        self, hosts: Iterable[fleet.Host], task_vars: Mapping[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Say what the hosts fetch. Their variables name images and files."""
        rows, refusals = [], {}
        for host in hosts:
            node = host.planned.get("node")
            if node is None:
                continue
            values = {**role_defaults.load(), **task_vars["hostvars"][host.name]}
            templar = self._templar.copy_with_new_env(available_variables=values)
            texts = {
                name: str(plain(templar.template(values[name])) or "")
                for name in mirror.VARIABLES
                if name in values
            }
            refusals[host.name] = mirror.refusals(host.name, node, texts.get(mirror.ENGINE, ""))
            if refusals[host.name]:
                continue
            rows.append(
                mirror.Host(
                    host.name,
                    node["os"]["family"],
                    host.planned.get("plans", {}),
                    {name: for_node(text, node) for name, text in texts.items()},
                    mirror.images(texts, node, host.planned.get("engine")),
                )
            )
        registry = options["registry"] or urlsplit(options["mirror"]).netloc or options["mirror"]
        listing = mirror.collect(rows, options["mirror"], registry)
        return {"downloads": mirror.describe(listing), "refusals": refusals}


def _names(task_vars: Mapping[str, Any], query: str, run: Mapping[str, Any]) -> list[str]:
    """Return the hosts that a query is about.

    In a run of a playbook of this collection, and in a table, these are also hosts that Ansible has
    taken out of the play, but not those of other batches. Ansible restricts its inventory to the
    batch.
    """
    if run:
        return list(run["hosts"])
    if query not in ("admission", "containers", "doubts", "images", "verdicts"):
        return list(task_vars["ansible_play_batch"])
    batch = {host.name for host in task_vars["hostvars"]._inventory.get_hosts()}
    return [name for name in task_vars["ansible_play_hosts_all"] if name in batch]


def _hosts(
    task_vars: Mapping[str, Any], names: Iterable[str], run: Mapping[str, Any]
) -> Iterator[fleet.Host]:
    """Yield the hosts. What they have registered counts only if it is of this run."""
    prepared = {*task_vars["groups"].get(run.get("id"), ())}
    for name in names:
        values = task_vars["hostvars"].raw_get(name)
        stopped = plain(values.get("metal_gpu_stopped", {})).get(run.get("id"), ())
        known = [*run.get("findings", {}).get(name, ()), *stopped]
        work = run.get("work", {}).get(name, ())
        yield fleet.Host(
            name,
            plain(values.get("metal_gpu", {})),
            known,
            dropped=bool(work) and name not in prepared and not known,
            work=work,
            rebooted=name in task_vars["groups"].get("nvidia_driver_rebooting", ()),
            is_plugin_pending=bool(run.get("is_plugin_pending")),
        )


def _tried(
    task_vars: Mapping[str, Any], hosts: Iterable[fleet.Host]
) -> Iterator[portability.Tried]:
    """Yield the hosts with what the scripts of the proof by `docker run` have printed."""
    for host in hosts:
        values = task_vars["hostvars"].raw_get(host.name)
        results = [plain(values.get(name, {})) for name in ("verify_pulled", "verify_ran")]
        # In check mode, a script that was skipped has printed an empty text.
        first, second = (None if one.get("skipped") else one.get("stdout") for one in results)
        asked = plain(values.get("nfs_mounts_exports", {}))
        yield portability.Tried(host, first, second, asked.get("findings", ()))


def _wanted(options: Mapping[str, Any]) -> portability.Wanted:
    return portability.Wanted(
        options["image"], plain(options["capabilities"]), bool(options["command"])
    )


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
        since = options["since"] or time.time()
        going_on = [name for name in reports if name not in stopped]
        work = {name: reports[name]["work"] for name in going_on if reports[name]["work"]}
        run = {
            "hosts": [host.name for host in hosts],
            "lost": [host.name for host in hosts if host.name not in active],
            "id": f"metal_gpu_run_{since * 1000:.0f}",
            "started": since,
            "admitted": going_on,
            "work": work,
            "bystanders": [name for name in going_on if name not in work][:1],
            "refused": [name for name in reports if name in stopped],
            "findings": stopped,
        }
        lines = explain([*found, *admitted["notices"]])
        return admitted | {"run": run, "explained": lines, "table": []}
    # A refusal of the cluster or of the inventory is one of each host.
    of_all = [one for one in found if one["host"] not in reports]
    verdicts = [
        fleet.refuse(host._replace(findings=[*stopped.get(host.name, ()), *of_all]), answers)
        for host in hosts
    ]
    outcome = fleet.silence([cluster["error"]]) if cluster.get("error") else fleet.REFUSED
    refused = sum(bool(verdict["findings"]) for verdict in verdicts)
    return admitted | _end(outcome, found, verdicts, options["since"], refused=refused)


def _end(
    outcome: str,
    findings: Iterable[Mapping[str, Any]],
    verdicts: list[dict[str, Any]],
    since: float | None,
    *,
    refused: int,
    check_mode: bool = False,
    lines: list[str] | None = None,
) -> dict[str, Any]:
    """Return what a run ends with: each finding once, the table, and the outcome.

    What many hosts have is one finding, such as a registry that no node reaches.
    """
    distinct = {(one["host"], one["code"], one["message"]): one for one in findings}
    seconds = time.time() - since if since else 0.0
    return {
        "outcome": outcome,
        "explained": [
            *explain(together(distinct.values(), but_few=True)),
            *(f"{one['host']}: {line}" for one in verdicts for line in one.get("lost", ())),
        ],
        "table": [
            *(table(verdicts) if lines is None else lines),
            fleet.summary(verdicts, refused=refused, seconds=seconds, check_mode=check_mode),
        ],
        "ansible_stats": fleet.statistic(outcome),
    }
