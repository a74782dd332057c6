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
    (stuck,) = rollout.not_running(MEMBERS, {"n3": "the node has no pod"}, 300)["c"]
    assert (stuck["code"], stuck["host"]) == ("ROLLOUT_STUCK", "c")
    assert "the node has no pod" in stuck["message"]
