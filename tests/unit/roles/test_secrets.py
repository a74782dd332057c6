# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tasks of roles print, where an address of a repository has credentials."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DOCKER,
    VIRGIN,
    merge,
)

from .test_tasks import ROOT, tasks, with_nested

SECRET = "https://me:CANARY@mirror.example/"
NO_ENGINE = {"engines": {"containerd": {"installed": False}, "docker": {"installed": False}}}
NODES = {
    "nvidia_driver": VIRGIN,
    "containerd": merge(VIRGIN, NO_ENGINE),
    "docker_ce": {**merge(DOCKER, NO_ENGINE), "packages": {}},
    "nvidia_container_runtime": VIRGIN,
}
PRINTING = ("apt", "dnf", "deb822_repository", "yum_repository", "get_url")


def run(folder: Path, play: dict[str, Any]) -> str:
    """Return what a play prints at -vvv, where all addresses of repositories have credentials."""
    variables: dict[str, Any] = {"nodes": NODES, "docker_ce_cri_dockerd_checksum": "sha256:0"}
    for role in NODES:
        variables |= {f"{role}_repository_url": SECRET, f"{role}_repository_key": f"{SECRET}key"}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    (folder / "vars.yml").write_text(yaml.safe_dump(variables))
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        (str(program), "-i", "localhost,", "-c", "local", "-vvv", str(folder / "play.yml")),
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_credentials_are_used_and_not_printed(tmp_path: Path) -> None:
    """At -vvv, facts that are set and arguments of modules are printed, too."""
    plans: list[dict[str, Any]] = [
        task
        for role in NODES
        for task in (
            {"ansible.builtin.set_fact": {"metal_gpu": {"node": f"{{{{ nodes.{role} }}}}"}}},
            {
                "metal.gpu.plan": {"roles": [role]},
                "vars": {"metal_gpu_observation_is_fresh": True},
                "register": f"made_{role}",
            },
        )
    ]
    made = {role: f"made_{role}.plans.{role}" for role in NODES}
    announced = " + ".join(f"{plan}.steps + {plan}.refusals" for plan in made.values())
    used = [f"'CANARY' in {plan}.data.repository.url" for plan in made.values()]
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": ["vars.yml"],
        "tasks": [
            *plans,
            {"ansible.builtin.debug": {"msg": f"{{{{ ({announced}) | metal.gpu.explain }}}}"}},
            {"ansible.builtin.assert": {"that": used}},
        ],
    }
    printed = run(tmp_path, play).replace("'CANARY' in", "")
    for step in ("Add the repository of the driver", "Add the Docker repository", "Install Docker"):
        assert step in printed
    assert "CANARY" not in printed


def test_what_may_have_the_credentials_of_a_proxy_is_not_printed() -> None:
    """Files that the kubelet's flags are in, and the last words of an engine."""
    carrying = ("slurp", "copy", "replace")
    shown = [
        (path.parts[-3], path.name, task["name"])
        for path in sorted(ROOT.glob("roles/*/tasks/*.yml"))
        for task in with_nested(tasks(path))
        if (path.parts[-3] == "kubelet_device_plugins" and carries(task, carrying))
        or "journalctl" in str(task.get("ansible.builtin.command"))
        if not task.get("no_log") and task.get("diff") is not False
    ]
    assert shown == []


def test_package_managers_run_only_where_their_words_are_redacted() -> None:
    """From ansible-core 2.19 on, no_log does not hide the message and the warnings of a task."""
    told = [
        (path.parts[-3], path.name, task["name"])
        for path in sorted(ROOT.glob("roles/*/tasks/**/*.yml"))
        for task in with_nested(tasks(path))
        if carries(task, PRINTING)
    ]
    assert told == []


def test_environments_of_engines_and_the_kubelet_are_not_printed() -> None:
    """Of a unit that is started, the module returns all settings: also the variables of a proxy."""
    shown = [
        (path.parts[-3], path.name, task["name"])
        for path in sorted(ROOT.glob("roles/*/tasks/*.yml"))
        for task in with_nested(tasks(path))
        if (unit := task.get("ansible.builtin.systemd_service"))
        if "name" in unit
        and not unit["name"].startswith("nvidia-")
        and not task.get("no_log")
        # Mounts have no environment, and systemd's reason not to stop one must be seen.
        and "nfs_mounts_" not in unit["name"]
    ]
    assert shown == []


def carries(task: dict[str, Any], modules: tuple[str, ...]) -> bool:
    return any(f"ansible.builtin.{module}" in task for module in modules)
