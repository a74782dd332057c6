# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the roles do on nodes of k3s, RKE2 and k0s, written down to be read in a review.

The nodes are observed: planted processes and files (tests/unit/support/distributions.py), with GPUs
and packages of a virgin node. The texts are in texts_of_distributions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import PLANNERS
from ansible_collections.metal.gpu.tests.unit.golden import render
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.containerd.test_embedded import (  # noqa: E501
    EDIT,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    VIRGIN,
    merge,
    plan,
)
from ansible_collections.metal.gpu.tests.unit.support.distributions import (
    K0S,
    K3S,
    RKE2,
    Scene,
    install_toolkit,
    plant_node,
    programs,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

TEXTS = Path(__file__).parent / "texts_of_distributions"
WITHOUT = recording("containerd/dump-2.2.0-k3s-virgin.toml")
WITH = recording("containerd/dump-2.2.0-k3s-nvidia.toml")
ROLES = ("preflight", "containerd", "nvidia_container_runtime", "kubelet_device_plugins")


def observed(root: Path, scene: Scene, dump: str, base: Any, **planted: Any) -> Any:
    plant_node(root, scene, **planted)
    printed = dump
    if scene is K0S:  # it sets no cgroup manager
        printed = dump.replace("SystemdCgroup = true", "SystemdCgroup = false")
    asked = programs(scene, printed)
    raw = node_info.run(node_info.Node(root, asked.run, asked.find), [], [])["raw"]
    found = interpret(json.loads(json.dumps(raw)))
    node = merge(base, {"kubelet": found["kubelet"], "cgroup": found["cgroup"]})
    node["engines"]["containerd"] = found["engines"]["containerd"]
    drop_in = f"{node['engines']['containerd']['home']['watched']}/99-metal-gpu.toml"
    node["ours"]["edits"] = [{**EDIT, "path": drop_in}] if scene is K0S and dump != WITHOUT else []
    return node


def text(root: Path, scene: Scene) -> str:
    before = observed(root / "before", scene, WITHOUT, VIRGIN)
    after = observed(root / "after", scene, WITH, DONE)
    install_toolkit(root / "blind")
    blind = observed(root / "blind", scene, WITHOUT, DONE, started_s_ago=-60, path="/opt/bin")
    sections = [
        *((f"virgin node: {role}", before, role, {}) for role in ROLES),
        ("virgin node, restart permitted", before, ROLES[2], {"restart_ok": True}),
        ("prepared node", after, ROLES[2], {}),
        ("prepared node, nvidia as default runtime", after, ROLES[2], {"default": True}),
        (
            "prepared node, the same, permitted",
            after,
            ROLES[2],
            {"default": True, "restart_ok": True},
        ),
        ("toolkit not found at the start, permitted", blind, ROLES[2], {"restart_ok": True}),
        ("teardown", after, ROLES[2], {"state": "absent"}),
        ("teardown, restart permitted", after, ROLES[2], {"state": "absent", "restart_ok": True}),
    ]
    assert set(ROLES) <= PLANNERS.keys()
    parts = [
        f"{f'== {heading} '.ljust(96, '=')}\n"
        + (render.plan(plan(role, node, **desired), "debian").strip() or "nothing")
        + "\n"
        for heading, node, role, desired in sections
    ]
    return "\n".join(parts)


@pytest.mark.parametrize("scene", [K3S, RKE2, K0S], ids=lambda one: one.name)
def test_what_is_put_on_a_node(tmp_path: Path, scene: Scene, is_update: bool) -> None:
    path = TEXTS / f"{scene.name}.txt"
    found = text(tmp_path, scene)
    if is_update:
        path.write_text(found)
    assert found == path.read_text()
