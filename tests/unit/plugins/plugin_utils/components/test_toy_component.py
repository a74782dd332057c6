# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A new component is new files and a line in two lists. Its role is in two playbooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES
from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.plugins.plugin_utils import components
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.tests.unit.support.playbooks import LOCAL, ROOT, run
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant
from ansible_collections.metal.gpu.tests.unit.support.toy_component import (
    added,
    observed,
    plan,
    probe,
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "toy", probe.PROBE)
    monkeypatch.setitem(sys.modules, f"{components.__name__}.toy.observed", observed)


def observe(root: Path) -> observed.Observed:
    programs = Programs(
        {
            "toyd": (0, "toyd 1.2.3\n", ""),
            "systemctl show": (0, "Id=toyd.service\nActiveState=active\n", ""),
        }
    )
    raw = node_info.run(node_info.Node(root, programs.run, programs.find), [], [])["raw"]
    return interpret(json.loads(json.dumps(raw)))  # type: ignore[return-value]


@pytest.mark.usefixtures("registered")
def test_from_the_node_to_the_plan(tmp_path: Path) -> None:
    desired = {"host": "gpu-1", "state": "present"}
    node = observe(tmp_path)
    assert node["toy"] == {"version": "1.2.3", "running": True, "configured": False}
    [step] = plan.plan(node, desired)["steps"]
    assert (step["slug"], step["reason"]) == ("configure", "/etc/toyd.conf does not exist")
    plant(tmp_path, {"/etc/toyd.conf": "play = true\n"})
    assert plan.plan(observe(tmp_path), desired)["steps"] == []


# What the command and the tags know about the toy, and what metal.gpu.site plans.
KNOWN = """
from ansible_collections.metal.gpu.plugins.plugin_utils import tags, variables
from ansible_collections.metal.gpu.plugins.plugin_utils.components import planning
from metal_gpu.playbooks import stages
assert tags.left_out(["all"], ["toy"]) == {"toy"}
assert "toy" in variables.OF_SITE and "toy" in planning.SITE
assert stages.title("metal.gpu.toy") == "Toy"
"""


def test_a_role_on_nodes_touches_few_files(tmp_path: Path) -> None:
    """Documents and tests come on top; the types of observations too, if other roles read it."""
    assert added.add(tmp_path) == 15
    path = {"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}
    subprocess.run([sys.executable, "-c", KNOWN], check=True, env={**os.environ, **path})
    plays = [{"name": "Play", "hosts": "all", "gather_facts": False, "roles": ["metal.gpu.toy"]}]
    collections = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    found = run(tmp_path, plays, {"all": {"hosts": {"gpu-1": LOCAL}}}, "--check", **collections)
    assert found.code == 0, found.output
    assert "Configure the toy (/etc/toyd.conf does not exist)" in found.words
    assert "changed: [gpu-1]" in found.output.partition("TASK [metal.gpu.toy : Configure")[2]
