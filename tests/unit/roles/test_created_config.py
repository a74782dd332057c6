# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role records the configuration file of the toolkit's package as node_info observes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs

from .test_tasks import ROOT, tasks

PRESENT = ROOT / "roles/nvidia_container_runtime/tasks/present.yml"
CONFIG = "etc/nvidia-container-runtime/config.toml"
RECORD = "var/lib/metal-gpu/packages/nvidia_container_runtime.json"
NAMES = (
    "Read the configuration that the package created",
    "Record the configuration that the package created",
)
INSTALL = "install"
BEFORE = {"nvidia-container-toolkit-base": {"version": "1.20.1-1", "before": None}}


@pytest.mark.parametrize(
    ("content", "steps", "is_created", "is_recorded"),
    [
        pytest.param('[a]\nb = "\u00fc"\n', [INSTALL], True, True, id="created"),
        pytest.param("a", [INSTALL], False, False, id="there before"),
        pytest.param("a", [], True, False, id="not installed"),
        pytest.param(None, [INSTALL], True, False, id="an older package creates none"),
    ],
)
def test_created_configuration_is_recorded(
    tmp_path: Path, content: str | None, steps: list[str], is_created: bool, is_recorded: bool
) -> None:
    (tmp_path / RECORD).parent.mkdir(parents=True)
    (tmp_path / RECORD).write_text(json.dumps(BEFORE))
    if content is not None:
        (tmp_path / CONFIG).parent.mkdir(parents=True)
        (tmp_path / CONFIG).write_text(content)
    data = {
        "created_config": str(tmp_path / CONFIG) if is_created else None,
        "packages_record": {"path": str(tmp_path / RECORD)},
    }
    play: dict[str, Any] = {
        "hosts": "localhost",
        "gather_facts": False,
        "module_defaults": {
            "metal.gpu.config_document": {"history_dir": str(tmp_path / "history")},
        },
        "vars": {
            "ansible_python_interpreter": sys.executable,
            "nvidia_container_runtime_plan": {"data": data},
            "__nvidia_container_runtime_steps_to_run": steps,
        },
        "tasks": [task for task in tasks(PRESENT) if task["name"] in NAMES],
    }
    assert len(play["tasks"]) == len(NAMES)
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        (str(program), "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")),
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    programs = Programs({})
    node = node_info.Node(tmp_path, programs.run, programs.find)
    observed = interpret(json.loads(json.dumps(node_info.run(node, [], [])["raw"])))
    recorded = observed["ours"]["packages"]["nvidia_container_runtime"]["packages"]
    if is_recorded:
        assert observed["toolkit"]["config_sha256"] is not None
        expected = {"config_sha256": observed["toolkit"]["config_sha256"]}
        assert recorded == {name: {**row, **expected} for name, row in BEFORE.items()}
    else:
        assert recorded == BEFORE
