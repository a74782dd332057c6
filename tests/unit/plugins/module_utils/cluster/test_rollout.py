# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import rollout
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    rollout as findings,
)

FOLDER = {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
MPS = {"name": "mps-root", "hostPath": {"path": "/run/nvidia/mps"}}


def pod(
    node: str | None,
    revision: str,
    *,
    ready: bool,
    volumes: tuple[dict[str, Any], ...] = (FOLDER,),
    **status: Any,
) -> dict[str, Any]:
    """A pod of the DaemonSet; without a node it is meant for gpu-9 and not scheduled yet."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-9"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec: dict[str, Any] = {"volumes": [*volumes]}
    spec |= {"nodeName": node} if node else {"affinity": {"nodeAffinity": required}}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": "plugin-x", "labels": {"controller-revision-hash": revision}},
        "spec": spec,
        "status": {"phase": "Running", "conditions": conditions, **status},
    }


PULL = {"name": "plugin", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}


@pytest.mark.parametrize(
    ("pods", "nodes", "waiting"),
    [
        pytest.param([pod("gpu-1", "2", ready=True)], ["gpu-1"], {}, id="done"),
        pytest.param(
            [], ["gpu-1"], {"gpu-1": "the node has no pod of this version yet"}, id="none"
        ),
        pytest.param(
            [pod("gpu-1", "1", ready=True)],
            ["gpu-1"],
            {"gpu-1": "the node has no pod of this version yet"},
            id="old version",
        ),
        pytest.param(
            [pod("gpu-1", "1", ready=True), pod("gpu-1", "2", ready=True)],
            ["gpu-1"],
            {},
            id="old one on its way out",
        ),
        pytest.param(
            [pod("gpu-1", "2", ready=False, containerStatuses=[PULL])],
            ["gpu-1"],
            {"gpu-1": "plugin-x is Running: plugin: ImagePullBackOff"},
            id="image",
        ),
        pytest.param(
            [pod("gpu-1", "2", ready=True), pod("gpu-2", "2", ready=False)],
            ["gpu-1"],
            {},
            id="dead node outside the play",
        ),
        pytest.param(
            [pod(None, "2", ready=False, phase="Pending")],
            ["gpu-9"],
            {"gpu-9": "plugin-x is Pending"},
            id="not scheduled",
        ),
    ],
)
def test_rollout(pods: list[dict[str, Any]], nodes: list[str], waiting: dict[str, str]) -> None:
    # The first was the template once before; that it is again gave it the higher number.
    revisions = [
        {"revision": 3, "metadata": {"labels": {"controller-revision-hash": "2"}}},
        {"revision": 2, "metadata": {"labels": {"controller-revision-hash": "1"}}},
    ]
    assert rollout.not_running(rollout.current(pods, revisions), nodes, is_any=False) == waiting


def test_adopted_plugin_counts_in_any_version() -> None:
    pods = [pod("gpu-1", "1", ready=True), pod("gpu-2", "7", ready=False)]
    assert rollout.not_running(rollout.current(pods), ["gpu-1", "gpu-2", "gpu-3"]) == {
        "gpu-2": "plugin-x is Running",
        "gpu-3": "the node has no pod",
    }


def test_other_pods_of_an_adopted_chart_do_not_count() -> None:
    """The chart's DaemonSets share one selector: its helper nvidia-device-plugin.selectorLabels."""
    pods = [
        pod("gpu-1", "1", ready=False),
        pod("gpu-1", "5", ready=True, volumes=(MPS,)),
        pod("gpu-2", "5", ready=True, volumes=(MPS,)),
    ]
    assert rollout.not_running(rollout.current(pods), ["gpu-1", "gpu-2"]) == {
        "gpu-1": "plugin-x is Running",
        "gpu-2": "the node has no pod",
    }


MEMBERS: Any = [
    {"host": "a", "node": "n1", "engine": None},
    {"host": "b", "node": "n2", "engine": None},
    {"host": "c", "node": "n3", "engine": None},
]


def test_findings_are_about_hosts() -> None:
    rows: Any = {"n1": {"state": "ok"}, "n2": {"state": "missing"}}
    assert {
        host: [one["code"] for one in found]
        for host, found in findings.missing(MEMBERS, rows).items()
    } == {"b": ["NODE_NOT_IN_CLUSTER"]}
    (stuck,) = findings.not_running(MEMBERS, {"n3": "the node has no pod"})["c"]
    assert (stuck["code"], stuck["host"]) == ("ROLLOUT_STUCK", "c")
    assert "the node has no pod" in stuck["message"]
