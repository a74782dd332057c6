# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run knows about each of its hosts, and what it concludes at its end. No function does I/O.

A run observes each host once. Only hosts with work enter the roles. There a host can be prepared,
stop with findings, or drop out, as a node that becomes unreachable does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import NO_KUBECONFIG
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import LIST
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding, is_sound
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.module_utils.verdict.cluster import machine_ids
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import (
    question,
    reconcile,
)
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import (
    ClusterRow,
    Question,
    SmokeRow,
)
from ansible_collections.metal.gpu.plugins.plugin_utils import variables
from ansible_collections.metal.gpu.plugins.plugin_utils.components import by_name
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import strategy
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import rehearsal
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import (
    BUSY,
    OK,
    PLANNED,
    codes,
    stopped,
    word,
)

Finding = Mapping[str, str]

# Outcomes of a run, besides `ok`, `unhealthy` and, in check mode, `planned`.
CLUSTER_DOWN = "cluster_down"
REFUSED = "refused"
UNPROVEN = "unproven"


class Host(NamedTuple):
    """A host of the run."""

    name: str
    planned: Mapping[str, Any]  # the result of metal.gpu.plan; empty if there is none
    findings: Sequence[Finding]  # why the run left the host out
    dropped: bool = False  # it had work, and neither was prepared nor stopped
    work: Collection[str] = ()  # roles that had steps when the run started
    rebooted: bool = False  # by a role, or on its way
    is_plugin_pending: bool = False  # in check mode: the real run changes the device plugin

    @property
    def declared(self) -> Any:
        return self.planned.get("declared")


class Answers(NamedTuple):
    """What the cluster has answered: rows by name of the node."""

    capacity: Mapping[str, ClusterRow]
    smoke: Mapping[str, SmokeRow]
    unanswered: Sequence[Finding]  # why it gave no answer
    asked: Collection[str]


def report(host: Host) -> dict[str, Any]:
    """Return what decides about the admission of a host."""
    node = host.planned.get("node")
    plans = host.planned.get("plans", {})
    platform = plans.get("preflight", {"data": {}})
    work = [role for role, plan in plans.items() if plan["steps"]]
    # The roles that a host enters show their notices themselves.
    silent = [plan for role, plan in plans.items() if role == "preflight" or not work]
    return {
        "node_name": platform["data"].get("node_name") or "",
        "kubelet_running": None if node is None else node["kubelet"]["running"],
        "machine": {} if node is None else machine_ids(node),
        "refusals": [*host.planned.get("refusals", ())],
        "work": work,
        "gives_gpus_by_default": _gives_gpus_by_default(host),
        "resources": [*(variables.gpu_expected(host.planned.get("expected")) or ())],
        "notices": [one for plan in silent for one in plan["notices"]],
    }


def member(host: Host) -> dict[str, Any]:
    """Return the name of a host's node, and what its engine can do, for the device plugin."""
    node, engine = host.planned["node"], host.planned["engine"]
    steps = host.planned.get("plans", {}).get(runtime.ROLE, {}).get("steps", ())
    return {
        "host": host.name,
        "node": node["kubelet"]["node_name"],
        "engine": engine,
        **strategy.facts(engine, node, is_pending=bool(steps)),
        "gives_gpus_by_default": _gives_gpus_by_default(host),
    }


def _gives_gpus_by_default(host: Host) -> bool:
    is_wanted = section(host.planned, "plans", runtime.ROLE, "data").get("is_default")
    return runtime.gives_gpus_by_default(
        host.planned.get("engine"), host.planned.get("node"), is_wanted=bool(is_wanted)
    )


def ask(host: Host) -> Question | None:
    """Return what to query the cluster about a host for; None: nothing."""
    node = host.planned.get("node")
    if node is None:
        return None
    count, _refusals = variables.gpu_count(host.name, host.declared)
    by_hand = variables.gpu_expected(host.planned.get("expected")) or {}
    return question(host.name, node, count, host.findings, by_hand)


def is_doubtful(host: Host, answers: Answers) -> bool:
    """Tell whether a host must be observed again, because it has changed since.

    Its pods have failed, it is not Ready although its observation succeeded, or it dropped out.
    """
    node = host.planned.get("node")
    if host.findings and node is None:
        return not _has_reason(host)
    if host.findings:
        # A role that lost its connection goes on, and may stop with the error of a later task.
        return bool(host.work) and any(one["code"] == "RUN_STOPPED" for one in host.findings)
    if host.dropped or node is None:
        # A second try to use a connection plugin that is not there would fail for all nodes.
        return not _has_reason(host) and not host.planned.get("failed")
    name = node["kubelet"]["node_name"]
    smoke, row = answers.smoke.get(name), answers.capacity.get(name)
    failed = smoke is not None and smoke["state"] == "failed"
    return failed or (row is not None and not row["ready"] and not row.get("another"))


def is_left_out(host: Host) -> bool:
    """Tell whether the run left the host out, or lost it."""
    return bool(host.findings) or host.dropped or host.planned.get("node") is None


def _has_reason(host: Host) -> bool:
    """Tell whether the run has just tried to observe the host, in vain."""
    return host.planned.get("node") is None and bool(host.planned.get("refusals"))


def judge(
    host: Host,
    answers: Answers,
    again: Mapping[str, Any] | None,
    *,
    drift: bool,
    check_mode: bool = False,
    left_out: Collection[str] = (),
) -> dict[str, Any]:
    """Return the verdict on a host. `again` is the second result of metal.gpu.plan, if any.

    In check mode, a host can be `planned`: only a real run can tell what it comes to. The roles in
    `left_out` do not run, because of tags.
    """
    node = host.planned.get("node")
    known = [*host.findings]
    if node is None and not known:
        known += host.planned.get("refusals") or _unobserved(host, again)
    if again is not None:
        known += _changes(host, node, again)
        node = node or again.get("node")
    elif host.dropped:
        known.append(_away(host))
    planned = host.planned.get("plans", {})
    refused = [one for plan in planned.values() for one in plan["refusals"]]
    failed = [one for one in host.planned.get("refusals", ()) if one not in refused]
    plans = by_name(planned) if drift else {}
    if failed:  # what could not be computed
        plans["no plan"] = {"steps": [], "refusals": failed, "notices": []}
    name = "" if node is None else node["kubelet"]["node_name"]
    count, wrong = variables.gpu_count(host.name, host.declared)
    judged = reconcile(
        host.name,
        node,
        count,
        answers.capacity.get(name),
        answers.smoke.get(name),
        known,
        unanswered=answers.unanswered,
        asked=answers.asked,
        plans={} if known else plans,
    )
    new = [one for one in wrong if one not in judged["findings"]]
    verdict: dict[str, Any] = {
        **judged,
        "findings": new + judged["findings"],
        "ok": judged["ok"] and not new,
        "planned": False,
        "left_out": bool(known),
        "changed": _has_changed(host),
        "would_change": not {*host.work}.issubset(left_out),
    }
    if not check_mode or known:
        return verdict
    work = {*host.work, *(role for role, plan in planned.items() if plan["steps"])}
    expected = verdict["layers"]["pci"] if count is None else count
    waiting = rehearsal.waiting(
        verdict["findings"],
        node,
        {role: _slugs(planned.get(role)) for role in work.difference(left_out)},
        answers.capacity.get(name),
        expected,
        is_plugin_pending=host.is_plugin_pending,
        is_complete=work.isdisjoint(left_out),
    )
    return _rehearsed(verdict, waiting) if waiting else verdict


def _slugs(plan: Mapping[str, Any] | None) -> set[str]:
    return {step["slug"] for step in plan["steps"]} if plan else set()


def _rehearsed(verdict: dict[str, Any], waiting: Sequence[Finding]) -> dict[str, Any]:
    """Return the verdict without what waits for the real run. Drift is what that run mends."""
    stays = [one for one in verdict["findings"] if one not in waiting]
    drift = [one for one in waiting if one["code"] == rehearsal.DRIFT]
    return {**verdict, "findings": stays + drift, "lost": [], "planned": is_sound(stays)}


def _unobserved(host: Host, again: Mapping[str, Any] | None) -> Sequence[Finding]:
    """Return why there is no result of metal.gpu.plan, unless a second one tells."""
    if again is not None and again.get("node") is None:
        return []
    error = "Ansible had removed the host from the play"
    return stopped({"msg": error, **host.planned}, host.name, "the observation")


def _has_changed(host: Host) -> bool:
    """Tell whether the run carried out steps: of a role, or of one that failed."""
    if any(one["code"] != "ROLLOUT_HALTED" for one in host.findings):
        return bool(host.work)
    plans = host.planned.get("plans", {})
    return any(not plans[role]["steps"] for role in host.work if role in plans)


def _changes(
    host: Host, node: Mapping[str, Any] | None, again: Mapping[str, Any]
) -> Iterable[Finding]:
    """Yield what a second observation shows about the first."""
    seen = again.get("node")
    if seen is None:
        yield from again.get("refusals", ())
    elif host.dropped:
        yield _away(host)
    elif node is not None and not host.rebooted and seen["boot_id"] != node["boot_id"]:
        yield finding("NODE_RESTARTED", host.name)


def _away(host: Host) -> Finding:
    error = "the node was unreachable for a while"
    return finding("RUN_STOPPED", host.name, task="the connection", error=error)


def refuse(host: Host, answers: Answers) -> dict[str, Any]:
    """Return the verdict on a host of a run that does not start: its refusals, and nothing else."""
    verdict = judge(host, answers, None, drift=False)
    return {**verdict, "findings": [*host.findings], "lost": [], "ok": False}


def summary(
    verdicts: Sequence[Mapping[str, Any]], *, refused: int, seconds: float, check_mode: bool = False
) -> str:
    """Return the last line of the table."""
    words = Counter(word(verdict) for verdict in verdicts)
    gpus = sum(verdict["layers"]["nvml"] or 0 for verdict in verdicts)
    changed = sum(verdict["would_change" if check_mode else "changed"] for verdict in verdicts)
    done = "would change" if check_mode else "changed"
    if words[PLANNED]:
        parts = [f"{words[PLANNED]} of {len(verdicts)} nodes planned"]
        parts += [f"{words[OK]} ok"] if words[OK] else []
    else:
        parts = [f"{words[OK]} of {len(verdicts)} nodes ok"]
    parts += [f"{words[BUSY]} busy"] if words[BUSY] else []
    parts += [f"{gpus} GPUs"] if gpus or not words[PLANNED] else []
    parts += [f"{changed} {done}"]
    parts += [f"{refused} refused"] if refused else []
    parts += ["only a real run proves GPUs"] if words[PLANNED] else []
    # The table looks the same if the pods only ran nvidia-smi.
    parts += ["level list"] if any(one.get("level") == LIST for one in verdicts) else []
    return ", ".join([*parts, f"{seconds:.0f} s"])


def ended(
    run: Mapping[str, Any],
    *,
    active: Collection[str],
    finished: Collection[str],
    is_whole: bool,
    check_mode: bool,
) -> str:
    """Return the last line of a teardown, without its time.

    Hosts that Ansible has not removed are `active`, and those `finished` have gone through their
    roles. The tags of the run leave something out unless it `is_whole`.
    """
    work = run["work"]
    done = [
        one for one in run["admitted"] if one in active and (one in finished or one not in work)
    ]
    refused = len(run["refused"])
    failed = len(run["hosts"]) - len(done) - refused
    counted = f"{len(done)} of {len(run['hosts'])} nodes"
    if is_whole:
        changed = sum(one in work for one in done)
        word, change = ("planned", "would change") if check_mode else ("restored", "changed")
        parts = [f"{counted} {word}", f"{changed} {change}"]
    else:  # whether anything ran is not known
        parts = [f"{counted} done as far as the tags go"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{refused} refused"] if refused else []
    return ", ".join(parts)


def outcome(
    verdicts: Iterable[Mapping[str, Any]], unanswered: Sequence[Finding], *, is_proof: bool = True
) -> str:
    """Return what a run that has started comes to; `is_proof` unless tags left the proof out."""
    silent = [one["message"] for one in unanswered if one["code"] != "CLUSTER_REJECTED"]
    if silent:
        return silence(silent)
    of_nodes = [*verdicts]
    if any(map(fails, of_nodes)):
        return "unhealthy"
    if not is_proof:
        return UNPROVEN
    return OK if all(verdict["ok"] for verdict in of_nodes) else PLANNED


def silence(errors: Iterable[str]) -> str:
    """Return the outcome without an answer of the API server: without a kubeconfig, none is due."""
    return REFUSED if all(map(NO_KUBECONFIG.search, errors)) else CLUSTER_DOWN


def statistic(outcome: str) -> dict[str, Any]:
    """Return the outcome as a custom statistic of the run, as the module set_stats does."""
    return {"data": {"metal_gpu_outcome": outcome}, "per_host": False}


def failures(
    verdicts: Iterable[Mapping[str, Any]], unanswered: Sequence[Finding]
) -> dict[str, str]:
    """Return the codes for each host that fails for more than what every host has."""
    return {
        verdict["host"]: ", ".join(codes(verdict))
        for verdict in verdicts
        if fails(verdict) and any(one not in unanswered for one in verdict["findings"])
    }


def cordoned(verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the hosts that are cordoned although they are well."""
    return [
        verdict["host"]
        for verdict in verdicts
        if verdict["ok"] and any(one["code"] == "NODE_CORDONED" for one in verdict["findings"])
    ]


def fails(verdict: Mapping[str, Any]) -> bool:
    """Tell whether the host fails. What a run in check mode is about to mend does not count."""
    return not verdict["ok"] and not verdict.get("planned")
