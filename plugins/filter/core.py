# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of this collection.

Each has a page of its own beside this file. The functions of `internal` are for the roles of this
collection, and change without notice.
"""

from __future__ import annotations

import sys

# Before an import that fails for a reason that nobody understands.
if sys.version_info < (3, 11):  # noqa: UP036 - users of ansible-core 2.16 can have Python 3.10
    found = ".".join(map(str, sys.version_info[:3]))
    raise ImportError(f"metal.gpu needs Python 3.11 or later on the controller, found {found}")

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible import constants, context
from ansible.errors import AnsibleFilterError

from ansible_collections.metal.gpu.plugins.module_utils import findings
from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    docker_proof,
    forbidden,
    leak_docker,
    leak_verdict,
)
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.readable import some
from ansible_collections.metal.gpu.plugins.module_utils.verdict import driver_causes
from ansible_collections.metal.gpu.plugins.module_utils.verdict import reconcile as verdict
from ansible_collections.metal.gpu.plugins.module_utils.verdict.cluster import CLUSTER, SMOKE
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import (
    ClusterRow,
    SmokeRow,
    Verdict,
)
from ansible_collections.metal.gpu.plugins.plugin_utils import tags
from ansible_collections.metal.gpu.plugins.plugin_utils.components import by_name
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    labels,
    rollout,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    plan as device_plugin,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import drain
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import content
from ansible_collections.metal.gpu.plugins.plugin_utils.plain_types import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult
from ansible_collections.metal.gpu.plugins.plugin_utils.variables import gpu_count
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import permissions, report


def reconcile(
    node: Node | None,
    host: str,
    declared: Any = None,
    cluster: ClusterRow | None = None,
    smoke: SmokeRow | None = None,
    known: Iterable[Mapping[str, str]] = (),
    unanswered: Iterable[Mapping[str, str]] = (),
    asked: Collection[str] = (CLUSTER, SMOKE),
    plans: Mapping[str, PlanResult] | None = None,
) -> Verdict:
    count, wrong = gpu_count(host, declared)
    return verdict.reconcile(
        host,
        node,
        count,
        cluster,
        smoke,
        [*wrong, *known],
        unanswered=unanswered,
        asked=asked,
        plans=by_name(plans or {}),
    )


def plan_device_plugin(observed: Mapping[str, Any], desired: Mapping[str, Any]) -> PlanResult:
    return device_plugin.plan(plain(observed), plain(desired))


def leaks_of_docker(output: str, host: str, driver: str | None) -> dict[str, list[Any]]:
    """Return the findings and the line about a host on which containers tried to get GPUs.

    `driver` is the version of the loaded driver.
    """
    is_loaded = driver is not None
    results = leak_docker.parse(output, is_loaded=is_loaded)
    first = "" if is_loaded else leak_verdict.HOST_FIRST
    return {
        "findings": leak_verdict.findings(host, results, leak_verdict.NO_DEFAULT, first),
        "summary": [leak_verdict.summary(host, results)],
    }


def registry_document(hosts: Any, target: Any, path: str) -> dict[str, object]:
    return content.document(plain(hosts), plain(target), path)


def registry_certificate(hosts: Any, target: Any, path: str, created: Any) -> str:
    return content.certificate(plain(hosts), plain(target), path, created)


def registry_questions(hosts: Any, target: Any) -> list[dict[str, object]]:
    return content.questions(plain(hosts), plain(target))


def _is_ours(playbook: str) -> bool:
    """Tell whether a playbook is ours, by its name or by its path."""
    return playbook.startswith("metal.gpu.") or Path(playbook).resolve().parent == _PLAYBOOKS


def refuse_unknown_tags(
    words: Iterable[str], known: Iterable[str], skipped: Iterable[str] = ()
) -> str:
    """Return why our playbook refuses these tags; empty if it accepts them.

    A playbook of the user that imports ours can have tags of its own. The configuration of Ansible
    names tags to skip in all playbooks of the user. Raises AnsibleFilterError for options that
    leave out the tasks without which a run could refuse nothing, and would not fail.
    """
    if unable := tags.leaves_out_checks(plain(skipped), context.CLIARGS.get("start_at_task")):
        raise AnsibleFilterError(unable)
    started = [str(one) for one in context.CLIARGS.get("args", ())]
    if not all(map(_is_ours, started)):
        return ""
    named = [word for word in plain(words) if word not in constants.TAGS_SKIP]
    return tags.refuse_unknown(named, plain(known), "this playbook")


_PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
_INTERNAL: Mapping[str, Callable[..., Any]] = {
    "build_remedy": driver_causes.build_remedy,
    "gpu_users": drain.users,
    "gpu_work": drain.work,
    "keeping": labels.keeping,
    "leak_script": leak_docker.script,
    "leaks_of_docker": leaks_of_docker,
    "labelling": labels.labelling,
    "missing": rollout.missing,
    "no_answer": forbidden.no_answer,
    "not_running": rollout.not_running,
    "permissions": permissions.needed,
    "plan_device_plugin": plan_device_plugin,
    "pull_script": docker_proof.pull_script,
    "refuse_unknown_tags": refuse_unknown_tags,
    "registry_certificate": registry_certificate,
    "registry_document": registry_document,
    "registry_questions": registry_questions,
    "run_script": docker_proof.run_script,
    "some": some,
    "stopped": report.stopped,
    "unlabelling": labels.unlabelling,
}


def internal(value: Any, function: str, *arguments: Any, **named: Any) -> Any:
    return _INTERNAL[function](value, *arguments, **named)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "explain": report.explain,
            "finding": findings.finding,
            "internal": internal,
            "reconcile": reconcile,
        }
