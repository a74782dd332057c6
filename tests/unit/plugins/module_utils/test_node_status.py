# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils import node_status

SCENES = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures/kubernetes/nodes.yml").read_text(encoding="utf-8")
)
GPU = "nvidia.com/gpu"


LABELS = {"nvidia.com/gpu.present": "true"}


def parse(scene, resource=GPU):
    node = {"metadata": {"labels": LABELS}, "status": SCENES[scene]}
    return node_status.parse_node(node, resource)


@pytest.mark.parametrize(
    ("scene", "resource", "capacity", "allocatable", "troubles"),
    [
        ("healthy", GPU, 4, 4, ()),
        ("healthy", "cpu", 64, Decimal("63.8"), ()),
        ("one_unhealthy", GPU, 4, 3, ()),
        ("bare", GPU, None, None, ()),
        ("empty", GPU, None, None, ()),
        (
            "not_ready",
            GPU,
            4,
            0,
            (
                "condition DiskPressure is True: KubeletHasDiskPressure",
                "condition Ready is Unknown: NodeStatusUnknown: "
                "Kubelet stopped posting node status.",
            ),
        ),
    ],
)
def test_parse_node(scene, resource, capacity, allocatable, troubles):
    assert parse(scene, resource) == (capacity, allocatable, troubles, LABELS)


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
            "expected 4, capacity is 4, allocatable is 3: 1 not healthy",
        ),
        ("one_unhealthy", 3, "differs", "expected 3, capacity is 4, allocatable is 3: 1 not"),
        ("plugin_gone", 4, "differs", "expected 4, capacity is 0, allocatable is 0"),
        ("plugin_gone", 0, "ok", ""),
        ("bare", 4, "differs", "expected 4, but the node does not know nvidia.com/gpu: no device"),
        ("bare", 0, "ok", ""),
        ("bare", None, "ok", ""),
    ],
)
def test_judge(scene, expected, state, message):
    wanted = None if expected is None else Decimal(expected)
    judgement = node_status.judge(parse(scene), wanted, GPU)
    assert judgement.state == state
    assert judgement.message.startswith(message)


@pytest.mark.parametrize("expected", [Decimal(0), Decimal(4), None])
def test_judge_misses_a_node_whatever_was_expected(expected):
    judgement = node_status.judge(None, expected, GPU)
    assert judgement == ("missing", "the cluster has no such node")
