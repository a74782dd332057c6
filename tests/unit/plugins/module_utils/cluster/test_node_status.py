# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import node_status

SCENES = yaml.safe_load(
    (Path(__file__).parents[3] / "fixtures/kubernetes/nodes.yml").read_text(encoding="utf-8")
)
GPU = "nvidia.com/gpu"


LABELS = {"nvidia.com/gpu.present": "true"}


def parse(scene, resource=GPU):
    node = {"metadata": {"labels": LABELS}, "status": SCENES[scene]}
    return node_status.parse_node(node, resource)


@pytest.mark.parametrize(
    ("scene", "resource", "capacity", "allocatable", "ready", "troubles"),
    [
        ("healthy", GPU, 4, 4, True, []),
        ("healthy", "cpu", 64, Decimal("63.8"), True, []),
        ("one_unhealthy", GPU, 4, 3, True, []),
        ("bare", GPU, None, None, True, []),
        (
            "empty",
            GPU,
            None,
            None,
            None,
            ["condition Ready is Unknown: the kubelet has not reported yet"],
        ),
        (
            "no_network",
            GPU,
            4,
            4,
            False,
            ["condition Ready is False: KubeletNotReady: cni plugin not initialized"],
        ),
        (
            "not_ready",
            GPU,
            4,
            0,
            None,
            [
                "condition DiskPressure is True: KubeletHasDiskPressure",
                "condition Ready is Unknown: NodeStatusUnknown: "
                "Kubelet stopped posting node status.",
            ],
        ),
    ],
)
def test_parse_node(scene, resource, capacity, allocatable, ready, troubles):
    found = parse(scene, resource)
    assert found[:3] == (capacity, allocatable, ready)
    assert list(found.troubles.values()) == troubles
    assert found.labels == LABELS
    assert found.readiness == ("" if ready else troubles[-1])


@pytest.mark.parametrize(
    ("taint", "ready", "readiness"),
    [
        ("nvidia.com/gpu", True, ""),
        ("node.kubernetes.io/unschedulable", True, ""),
        (
            "node.kubernetes.io/not-ready",
            False,
            "the node still has the taint node.kubernetes.io/not-ready",
        ),
    ],
)
def test_node_is_ready_once_pods_come(taint, ready, readiness):
    spec = {"taints": [{"key": taint, "effect": "NoSchedule"}]}
    node = {"metadata": {}, "spec": spec, "status": SCENES["healthy"]}
    found = node_status.parse_node(node, GPU)
    assert (found.ready, found.readiness) == (ready, readiness)


@pytest.mark.parametrize(
    ("scene", "expected", "state", "message"),
    [
        ("healthy", 4, "ok", ""),
        ("healthy", None, "ok", ""),
        ("healthy", 3, "differs", "expected 3, capacity is 4, allocatable is 4"),
        ("healthy", 8, "differs", "expected 8, capacity is 4, allocatable is 4"),
        (
            "one_unhealthy",
            4,
            "differs",
            "expected 4, capacity is 4, allocatable is 3: 1 unhealthy",
        ),
        ("one_unhealthy", 3, "differs", "expected 3, capacity is 4, allocatable is 3: 1 unhealthy"),
        ("plugin_gone", 4, "differs", "expected 4, capacity is 0, allocatable is 0"),
        ("plugin_gone", 0, "ok", ""),
        (
            "bare",
            4,
            "differs",
            "expected 4, but the node's capacity has no nvidia.com/gpu: no device",
        ),
        ("bare", 0, "ok", ""),
        ("bare", None, "ok", ""),
    ],
)
def test_judge(scene, expected, state, message):
    wanted = None if expected is None else Decimal(expected)
    judgement = node_status.judge(parse(scene), wanted, GPU)
    assert judgement.state == state
    assert judgement.message.startswith(message)


@pytest.mark.parametrize(
    ("scene", "expected", "state"),
    [
        ("healthy", 4, "ok"),
        ("no_network", 4, "differs"),
        ("silent", 4, "differs"),
        ("silent", None, "ok"),
    ],
)
def test_judge_whether_a_node_is_ready(scene, expected, state):
    wanted = None if expected is None else Decimal(expected)
    assert node_status.judge(parse(scene), wanted, GPU).state == "ok"
    message = "" if state == "ok" else "the node is not ready"
    assert node_status.judge(parse(scene), wanted, GPU, ready=True) == (state, message)


@pytest.mark.parametrize("expected", [Decimal(0), Decimal(4), None])
def test_judge_misses_a_node_whatever_was_expected(expected):
    judgement = node_status.judge(None, expected, GPU)
    assert judgement == ("missing", "the cluster has no node of this name")


def test_annotations_of_this_collection_are_kept_and_no_others():
    ours = {"metal.gpu/labelled": "gpu"}
    node = {"metadata": {"annotations": {**ours, "volumes.kubernetes.io/x": "true"}}}
    assert node_status.parse_node(node, GPU).annotations == ours


@pytest.mark.parametrize(
    ("value", "amount", "odd"),
    [
        ("4x", None, True),
        ("", None, True),
        ([], None, True),
        ({"a": 1}, None, True),
        (True, None, True),
        ("x" * 10_000, None, True),
        (None, None, False),
        ("-1", -1, False),
        (4, 4, False),
        ("1e1000", 2**63 - 1, False),
        ("1e999999999", 2**63 - 1, False),
    ],
)
def test_amounts_that_no_kubelet_reports(value, amount, odd):
    """They come from a proxy, or from a tool that writes the status."""
    node = {"metadata": {}, "status": {"capacity": {GPU: value}, "allocatable": {GPU: "4"}}}
    found = node_status.parse_node(node, GPU)
    assert (found.capacity, found.allocatable) == (amount, 4)
    assert ("capacity" in found.troubles) is odd
    assert len(found.troubles.get("capacity", "")) < 150
    assert node_status.judge(found, Decimal(4), GPU).state == ("ok" if value == 4 else "differs")


@pytest.mark.parametrize(
    "node",
    [
        {"metadata": {"labels": None, "annotations": None}, "status": None},
        {"metadata": {}, "status": {"capacity": None, "allocatable": [], "conditions": None}},
        {"metadata": {"labels": []}, "status": {"capacity": "4"}, "spec": None},
    ],
)
def test_parts_that_are_null_or_of_another_kind(node):
    found = node_status.parse_node(node, GPU)
    assert (found.capacity, found.allocatable, found.ready, dict(found.labels)) == (
        None,
        None,
        None,
        {},
    )
