# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run came to, for programs and for narrow terminals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ansible_collections.metal.gpu.plugins.module_utils.findings import NOTICE
from metal_gpu.playbooks.progress import SUBJECTS, Progress, Values, findings_in, identity, mapping

NARROW = ("node", "GPU", "GPUs", "verdict")

_CONTROLLER = "localhost"  # where playbooks run tasks for all hosts
_FINDING = ("code", "severity", "message", "remedy", "reference")


def as_document(
    progress: Progress, playbook: str, rc: int, log: str | None, interrupted: bool
) -> dict[str, object]:
    """Return what `--json` prints: schemas/playbook.json."""
    found: dict[str, list[Values]] = defaultdict(list)
    for one in progress.found.values():
        found[str(one.get("host"))].append(one)
    names = _names(progress)
    return {
        "playbook": playbook,
        "rc": rc,
        "outcome": progress.outcome or None,
        "interrupted": interrupted,
        "hosts": [_host(progress, name, rc, found[name]) for name in names],
        "findings": [_finding(one) for one in _of_no_host(progress, {*names})],
        "log": log,
        "report": progress.report or None,
    }


def word(verdict: Values) -> str:
    """Return the verdict as the table of the playbook has it: `ok`, `planned`, or the codes."""
    if verdict.get("ok"):
        return "busy" if verdict.get("busy") else "ok"
    if verdict.get("planned"):
        return "planned"
    codes = (str(found.get("code")) for found in findings_in(verdict.get("findings")))
    return " ".join(dict.fromkeys(codes)) or "-"


def narrow(progress: Progress) -> list[tuple[str, ...]]:
    """Return the rows of a table for a terminal that is too narrow for that of the playbook."""
    rows: list[tuple[str, ...]] = []
    for name, verdict in progress.verdicts.items():
        machine, layers = mapping(verdict.get("machine")), mapping(verdict.get("layers"))
        model, proven = machine.get("gpu"), layers.get("smoke") or layers.get("nvml")
        rows.append((name, _cell(model), _cell(proven), word(verdict)))
    return rows


def _names(progress: Progress) -> list[str]:
    played = [
        *progress.verdicts,
        *progress.failures,
        *progress.unreachable,
        *progress.processed,
        *(name for stage in progress.stages for name in stage.nodes),  # of a run that was stopped
    ]
    names = dict.fromkeys(played)
    if not {*progress.verdicts, *progress.planned} & {_CONTROLLER}:
        names.pop(_CONTROLLER, None)
    refused = (one for one in progress.refused if one not in (*SUBJECTS, _CONTROLLER))
    return [*dict.fromkeys([*names, *refused])]


def _of_no_host(progress: Progress, hosts: set[str]) -> list[Values]:
    """Return the findings that are about no single host."""
    refused = {identity(one): one for found in progress.refused.values() for one in found}
    found = [one for key, one in refused.items() if key not in progress.found]
    found += progress.found.values()
    return [one for one in found if one.get("host") not in hosts]


def _host(progress: Progress, name: str, rc: int, reported: Sequence[Values]) -> dict[str, object]:
    verdict = progress.verdicts.get(name)
    refused = [*progress.refused.get(name, [])]
    found = refused if verdict is None else findings_in(verdict.get("findings"))
    known = {*map(identity, found)}
    # A verdict has all that is wrong with the host when the run ends.
    found += [
        one
        for one in reported
        if identity(one) not in known and (verdict is None or one.get("severity") == NOTICE)
    ]
    has_ended = rc == 0 or progress.is_whole or name in progress.tried
    state = "ok" if has_ended or verdict is not None else "unknown"
    if name in progress.unreachable:
        state = "unreachable"
    # The task that refuses a run fails as the first host.
    elif (name in progress.failures and progress.outcome != "refused") or (
        not (verdict or {}).get("planned") and any(one.get("severity") != NOTICE for one in found)
    ):
        state = "failed"
    return {
        "host": name,
        "state": state,
        "verdict": word(verdict or {"findings": refused}) if verdict or refused else None,
        "findings": [_finding(one) for one in found],
    }


def _finding(found: Values) -> dict[str, str]:
    return {key: str(found.get(key, "")) for key in _FINDING}


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
