# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemd reads its units again only when a role has written or deleted one.

A reload can remove the access of running containers to their GPUs. So a task that reloads has a
condition that is true only with a task that changes a unit, or with what a plan says of units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import cdi
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import persistence
from ansible_collections.metal.gpu.tests.unit.roles.test_tasks import ROOT, with_nested

# Paths in tasks, and an example of each.
UNITS = {
    "docker_ce_plan.data.proxy.path": own_files.DOCKER_PROXY,
    "nfs_mounts_unit.path": "/etc/systemd/system/srv.mount",
    "nfs_mounts_stale": "/etc/systemd/system/srv.automount",
    "__kubelet_device_plugins_drop_in": "/etc/systemd/system/kubelet.service.d/99-metal-gpu.conf",
    "nvidia_container_runtime_plan.data.cdi_drop_in.path": cdi.CDI_DROP_IN["path"],
    "nvidia_driver_plan.data.persistence_drop_in.path": persistence.DROP_IN_FILE["path"],
    "nvidia_driver_plan.data.fabric_drop_in.path": own_files.FABRIC_DROP_IN,
    "nvidia_driver_file": persistence.DROP_IN_FILE["path"],  # those of __nvidia_driver_drop_ins
}
# What plans say of units. Their tests are test_daemon_reload_only_for_units for the kubelet,
# test_proxy.py and test_plan.py for Docker.
OF_PLANS = (
    *("docker_ce_plan.data.daemon_reload", "docker_ce_plan.data.proxy_reload"),
    "kubelet_device_plugins_plan.data.daemon_reload",
)
_TOKENS = re.compile(
    r"'(?P<step>\w+)' in (?:__\w+|\w+_steps\w*)|(?P<plan>\w+_plan\.data\.\w*reload)"
    r"|(?P<register>\w+) is changed|(?P<variable>__\w+_drop_ins?)\b"
)


class Task(NamedTuple):
    """A task that reloads systemd, with the conditions that must all be true."""

    role: str
    name: str
    conditions: list[str]


def tasks(role: str) -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / "roles" / role / "tasks").glob("*.yml")):
        for task in yaml.safe_load(path.read_text()):
            yield from with_nested([task])


def conditions(task: dict[str, Any]) -> list[str]:
    found = task.get("when", [])
    return [str(one) for one in (found if isinstance(found, list) else [found])]


def reloads() -> Iterator[Task]:
    for role in sorted(path.name for path in (ROOT / "roles").iterdir()):
        for task in tasks(role):
            wish = task.get("ansible.builtin.systemd_service", {}).get("daemon_reload", False)
            if wish is not False:
                own = [] if wish is True else [wish]
                yield Task(role, task["name"], [*conditions(task), *own])


def changed_units(role: str) -> Iterator[dict[str, Any]]:
    """Yield the tasks that write or delete a unit."""
    for task in tasks(role):
        file = task.get("ansible.builtin.file", {})
        places = (
            file.get("path") if file.get("state") == "absent" else None,
            task.get("ansible.builtin.blockinfile", {}).get("path"),
            task.get("vars", {}).get("preflight_block_path"),
            task.get("vars", {}).get("docker_ce_files"),
        )
        if any(name in str(place) for name in UNITS for place in places if place):
            yield task


def variables(role: str) -> dict[str, str]:
    path = ROOT / "roles" / role / "vars" / "main.yml"
    found = yaml.safe_load(path.read_text()) if path.exists() else {}
    return {name: str(value) for name, value in found.items()}


def is_about_units(role: str, condition: str) -> bool:
    """Tell whether a condition is true only if a unit changes."""
    changing = list(changed_units(role))
    known = {task["register"] for task in changing if "register" in task}
    steps = {
        token["step"] or token["variable"]
        for task in changing
        for one in conditions(task)
        for token in _TOKENS.finditer(one)
    }
    tokens = list(_TOKENS.finditer(condition))
    return bool(tokens) and all(
        token["plan"] in OF_PLANS
        or token["register"] in known
        or (token["step"] or token["variable"] or "") in steps
        or (bool(token["variable"]) and is_about_units(role, variables(role)[token["variable"]]))
        for token in tokens
    )


RELOADS = list(reloads())


@pytest.mark.parametrize("path", UNITS.values())
def test_these_are_units(path: str) -> None:
    assert re.fullmatch(r"/etc/systemd/system/(\S+\.d/\S+\.conf|\S+\.(auto)?mount)", path)


@pytest.mark.parametrize("task", RELOADS, ids=[f"{one.role}: {one.name}" for one in RELOADS])
def test_units_are_read_again_only_after_a_change(task: Task) -> None:
    assert any(is_about_units(task.role, one) for one in task.conditions), task


def test_every_reload_is_found() -> None:
    files = (path for folder in ("roles", "playbooks") for path in (ROOT / folder).rglob("*.yml"))
    texts = "".join(path.read_text() for path in files)
    assert len(re.findall(r"^ *daemon_reload: ", texts, re.MULTILINE)) == len(RELOADS)
    assert "daemon-reload" not in re.sub(r"^ *#.*", "", texts, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "condition",
    [
        "'proxy_of_another' in __docker_ce_steps_to_run",
        "'restart_proxy' in __docker_ce_steps_to_run",
        "docker_ce_proxy_unit is changed or 'restart_proxy' in __docker_ce_steps_to_run",
        "true",
    ],
)
def test_other_conditions_are_seen(condition: str) -> None:
    assert not is_about_units("docker_ce", condition)
