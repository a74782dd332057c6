# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.modules import gpu_drain
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

NODES = ["gpu-1", "gpu-2"]


def node(name, gpus="4", ready="True", **spec):
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "allocatable": {"nvidia.com/gpu": gpus, "cpu": "8"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(name, on="gpu-1", gpus=1, owner="ReplicaSet"):
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "ownerReferences": [{"kind": owner, "controller": True}] if owner else [],
        },
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def cluster(api):
    for name in NODES:
        api.put("nodes", node(name))
    for found in (pod("a"), pod("b", on="gpu-2"), pod("web", gpus=0), pod("c", on="gpu-3")):
        api.put("pods", found)
    return api


def state(api):
    """Return which nodes are cordoned, by whom, and the pods that are left."""
    nodes = {
        name: (
            bool(found["spec"].get("unschedulable")),
            gpu_drain.CORDONED in found["metadata"].get("annotations", {}),
        )
        for (kind, _namespace, name), found in api.objects().items()
        if kind == "nodes"
    }
    return nodes, sorted(api.names("pods"))


def test_check_real_check_real(cluster, call):
    for check, changed in [(True, True), (False, True), (True, False), (False, False)]:
        found = state(cluster)
        result = call(gpu_drain, nodes=NODES, check=check)
        assert result["changed"] is changed
        assert (state(cluster) == found) is (check or not changed)
    assert state(cluster) == (dict.fromkeys(NODES, (True, True)), ["c", "web"])


def test_release_waits_for_the_gpus_to_go(cluster, call):
    call(gpu_drain, nodes=NODES)

    def leave():
        for name in NODES:
            cluster.patch("nodes", name, {"status": {"allocatable": {"nvidia.com/gpu": "0"}}})

    cluster.when_watched["nodes"] = leave
    for check, changed in [(True, True), (False, True), (True, False), (False, False)]:
        result = call(gpu_drain, nodes=NODES, state="released", check=check)
        assert result["changed"] is changed
    assert state(cluster)[0] == dict.fromkeys(NODES, (False, False))


def test_release_does_not_wait_for_a_node_that_is_not_ready(cluster, call):
    call(gpu_drain, nodes=NODES)
    for name in NODES:
        status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        cluster.patch("nodes", name, {"status": status})
    assert "failed" not in call(gpu_drain, nodes=NODES, state="released", wait_timeout=0)


def test_gpus_that_do_not_go_keep_the_node_cordoned(cluster, call):
    call(gpu_drain, nodes=NODES)
    result = call(gpu_drain, nodes=NODES, state="released", wait_timeout=0)
    assert result["msg"] == (
        "The cluster goes on handing out GPUs of gpu-1, gpu-2, so these stay cordoned"
    )
    assert state(cluster)[0] == dict.fromkeys(NODES, (True, True))


def test_a_node_that_somebody_else_cordoned_stays_so(api, call):
    api.put("nodes", node("gpu-1", gpus="0", unschedulable=True))
    assert call(gpu_drain, nodes=["gpu-1"])["changed"] is False
    assert call(gpu_drain, nodes=["gpu-1"], state="released")["changed"] is False
    assert state(api)[0] == {"gpu-1": (True, False)}


def test_what_is_found_is_told(cluster, call):
    cluster.put("pods", pod("d", gpus=2, owner=None))
    found = state(cluster)
    result = call(gpu_drain, nodes=[*NODES, "gone"], report_only=True)
    assert (result["changed"], result["error"]) == (False, "")
    assert state(cluster) == found
    assert result["nodes"] == {
        "gpu-1": {
            "state": "ok",
            "cordoned": False,
            "pods": [
                {"name": "ml/a", "gpus": 1, "stays": None},
                {"name": "ml/d", "gpus": 2, "stays": "nothing would start it again"},
            ],
        },
        "gpu-2": {
            "state": "ok",
            "cordoned": False,
            "pods": [{"name": "ml/b", "gpus": 1, "stays": None}],
        },
        "gone": {"state": "missing", "cordoned": False, "pods": []},
    }


def test_no_answer_is_told_too(cluster, call):
    cluster.refusals["list", "pods"] = Refusal(403, "no")
    result = call(gpu_drain, nodes=NODES, report_only=True)
    assert result["nodes"] == {}
    assert "forbids to list pods" in result["error"]


@pytest.mark.parametrize("owner", ["DaemonSet", "Node", None])
def test_nothing_is_evicted_where_a_pod_would_be_lost_or_come_back(cluster, call, owner):
    cluster.put("pods", pod("d", owner=owner))
    found = state(cluster)
    result = call(gpu_drain, nodes=NODES)
    assert (result["failed"], result["changed"]) == (True, False)
    assert "ml/d: " in result["msg"]
    assert state(cluster) == found


def test_a_budget_is_asked_again_until_it_allows(cluster, call, monkeypatch):
    monkeypatch.setattr(gpu_drain, "RETRY_S", 0.01)
    refusals = []

    def allow():
        refusals.append("a")
        if len(refusals) == 2:
            del cluster.budgets["a"]

    cluster.budgets["a"] = allow
    assert "failed" not in call(gpu_drain, nodes=NODES)
    assert len(refusals) == 2
    assert state(cluster)[1] == ["c", "web"]


def test_a_budget_that_never_allows_is_named_and_the_nodes_are_open_again(cluster, call):
    cluster.budgets["a"] = lambda: None
    result = call(gpu_drain, nodes=["gpu-1"], wait_timeout=0)
    assert result["msg"].splitlines() == [
        "Pods still hold GPUs:",
        "ml/a on gpu-1: Cannot evict pod as it would violate the pod's disruption budget.",
    ]
    assert state(cluster)[0] == dict.fromkeys(NODES, (False, False))


def test_a_missing_permission_is_named_and_the_nodes_are_open_again(cluster, call):
    cluster.refusals["evict", "pods"] = Refusal(403, "no")
    result = call(gpu_drain, nodes=NODES)
    assert "forbids to create pods/eviction" in result["msg"]
    assert state(cluster)[0] == dict.fromkeys(NODES, (False, False))


def test_a_pod_that_has_gone_by_itself_is_gone(cluster, call):
    cluster.refusals["evict", "pods"] = Refusal(404, "not found")

    def end():
        for name in ("a", "b"):
            cluster.take("pods", name, "ml")

    cluster.when_watched["pods"] = end
    assert "failed" not in call(gpu_drain, nodes=NODES)
