# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import rollout

MEMBERS: Any = [
    {"host": "a", "node": "n1", "engine": None},
    {"host": "b", "node": "n2", "engine": None},
    {"host": "c", "node": "n3", "engine": None},
]


def test_findings_are_about_hosts() -> None:
    rows: Any = {"n1": {"state": "ok"}, "n2": {"state": "missing"}}
    assert {
        host: [one["code"] for one in found]
        for host, found in rollout.missing(MEMBERS, rows).items()
    } == {"b": ["NODE_NOT_IN_CLUSTER"]}
    image = {"pod": "plugin-x", "error": "ctr: ErrImagePull not found"}
    waited: Any = {"not_running": {"n2": "x", "n3": "the node has no pod"}, "seconds": 300}
    found = rollout.not_running(MEMBERS, {**waited, "without_image": {"n2": image}})
    assert {host: [one["code"] for one in rows] for host, rows in found.items()} == {
        "b": ["DEVICE_PLUGIN_IMAGE_UNAVAILABLE"],
        "c": ["ROLLOUT_STUCK"],
    }
    assert "ErrImagePull not found" in found["b"][0]["message"]
    assert "the node has no pod" in found["c"][0]["message"]
