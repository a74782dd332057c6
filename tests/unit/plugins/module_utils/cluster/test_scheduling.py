# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import scheduling
from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import Taint

ML = Taint("dedicated", "ml", "NoSchedule")


@pytest.mark.parametrize(
    ("taint", "text"),
    [(ML, "dedicated=ml:NoSchedule"), (Taint("gpu", "", "NoExecute"), "gpu:NoExecute")],
)
def test_taint_is_written_as_kubectl_writes_it(taint: Taint, text: str) -> None:
    assert str(taint) == text


@pytest.mark.parametrize(
    "node",
    [
        pytest.param({}, id="no spec"),
        pytest.param({"spec": {}}, id="none"),
        pytest.param({"spec": {"taints": None}}, id="null"),
    ],
)
def test_node_without_taints(node: dict[str, Any]) -> None:
    assert scheduling.parse_taints(node) == ()


@pytest.mark.parametrize(
    ("taint", "toleration", "left"),
    [
        pytest.param(ML, None, True, id="none"),
        pytest.param(ML, {"operator": "Exists"}, False, id="everything"),
        pytest.param(ML, {"key": "dedicated", "operator": "Exists"}, False, id="key"),
        pytest.param(ML, {"key": "dedicated", "value": "ml"}, False, id="value"),
        pytest.param(ML, {"key": "dedicated", "value": "web"}, True, id="other value"),
        pytest.param(ML, {"key": "dedicated"}, True, id="no value"),
        pytest.param(
            ML, {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}, True,
            id="other effect",
        ),
        pytest.param(ML, {"key": "", "value": "ml"}, True, id="no key"),
        pytest.param(Taint("a", "", "PreferNoSchedule"), None, False, id="only preferred"),
        pytest.param(Taint("a", "", "NoSchedule"), {"key": "a"}, False, id="without value"),
    ],
)  # fmt: skip
def test_untolerated(taint: Taint, toleration: dict[str, Any] | None, left: bool) -> None:
    found = scheduling.untolerated([taint], [toleration] if toleration else [])
    assert found == ((taint,) if left else ())


@pytest.mark.parametrize(
    ("labels", "missing"),
    [
        ({"gpu": "true", "x": "y"}, {}),
        ({"gpu": "false"}, {"gpu": "true"}),
        ({}, {"gpu": "true"}),
    ],
)
def test_missing_labels(labels: dict[str, str], missing: dict[str, str]) -> None:
    assert scheduling.missing_labels(labels, {"nodeSelector": {"gpu": "true"}}) == missing
    assert scheduling.missing_labels(labels, {}) == {}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def rule(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-2"]}]}


@pytest.mark.parametrize(
    ("spec", "unmet"),
    [
        pytest.param({}, "", id="none"),
        pytest.param(
            affinity(rule("model", "In", "h100", "h200")), "model In (h100, h200)", id="in"
        ),
        pytest.param(affinity(rule("model", "In", "p100")), "", id="is in"),
        pytest.param(affinity(rule("model", "NotIn", "p100")), "model NotIn (p100)", id="not in"),
        pytest.param(affinity(rule("zone", "Exists")), "zone Exists", id="exists"),
        pytest.param(affinity(rule("model", "DoesNotExist")), "model DoesNotExist", id="not there"),
        pytest.param(affinity(rule("cores", "Gt", "4")), "", id="not looked at"),
        pytest.param(affinity(NAMED), "metadata.name In (gpu-2)", id="name"),
        pytest.param(
            affinity(rule("zone", "Exists"), rule("model", "In", "p100")), "", id="one is enough"
        ),
        pytest.param(
            affinity(rule("zone", "Exists"), rule("rack", "Exists")), "zone Exists", id="none fits"
        ),
    ],
)
def test_unmet_affinity(spec: dict[str, Any], unmet: str) -> None:
    assert scheduling.unmet_affinity("gpu-1", {"model": "p100"}, spec) == unmet


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"matchLabels": {"a": "b", "c": "d"}}, "a=b,c=d"),
        (
            {
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["b", "c"]},
                    {"key": "d", "operator": "NotIn", "values": ["e"]},
                    {"key": "f", "operator": "Exists"},
                    {"key": "g", "operator": "DoesNotExist"},
                ]
            },
            "a in (b,c),d notin (e),f,!g",
        ),
    ],
)
def test_selector_text(selector: dict[str, Any], text: str) -> None:
    assert scheduling.selector_text(selector) == text


def node_taint(name: str, effect: str) -> Taint:
    return Taint(f"node.kubernetes.io/{name}", "", effect)


# Tried with kube-controller-manager 1.37.1: a node with the second taint got no pod.
@pytest.mark.parametrize(
    ("taint", "spec", "left"),
    [
        (node_taint("unreachable", "NoExecute"), {}, False),
        (node_taint("unreachable", "NoSchedule"), {}, True),
        (node_taint("disk-pressure", "NoSchedule"), {}, False),
        (node_taint("network-unavailable", "NoSchedule"), {}, True),
        (node_taint("network-unavailable", "NoSchedule"), {"hostNetwork": True}, False),
        (ML, {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}, False),
        (ML, {"tolerations": None}, True),
    ],
)
def test_what_pods_of_a_daemonset_tolerate(taint: Taint, spec: dict[str, Any], left: bool) -> None:
    found = scheduling.untolerated([taint], scheduling.daemon_tolerations(spec))
    assert bool(found) is left
