# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A new component is new files and one line in the registry. Nothing else is edited."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES
from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.plugins.plugin_utils import components
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant
from ansible_collections.metal.gpu.tests.unit.support.toy_component import observed, plan, probe


@pytest.fixture(autouse=True)
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


def test_from_the_node_to_the_plan(tmp_path: Path) -> None:
    node = observe(tmp_path)
    assert node["toy"] == {"version": "1.2.3", "running": True, "configured": False}
    [step] = plan.plan(node, {"host": "gpu-1"})["steps"]
    assert (step["slug"], step["reason"]) == ("configure", "/etc/toyd.conf does not exist")
    plant(tmp_path, {"/etc/toyd.conf": "play = true\n"})
    assert plan.plan(observe(tmp_path), {"host": "gpu-1"})["steps"] == []
