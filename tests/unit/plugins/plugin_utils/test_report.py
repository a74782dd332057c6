# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.report import explain, refusals, table

LAYERS = {"declared": 4, "pci": 4, "nvml": 4, "capacity": 4, "allocatable": 4, "smoke": "4/4"}
NO_GPU = finding("NO_GPU", "b")


def report(node_name: str | None, *found: dict[str, str]) -> dict[str, Any]:
    return {"node_name": node_name, "kubelet_running": True, "refusals": list(found)}


def test_a_kubelet_that_does_not_run_may_still_join() -> None:
    stopped = {**report("n1"), "kubelet_running": False}
    cluster = {"nodes": {"n1": {"state": "missing"}}}
    assert refusals({"a": stopped}, cluster) == []
    assert [one["code"] for one in refusals({"a": report("n1")}, cluster)] == [
        "NODE_NOT_IN_CLUSTER"
    ]


def test_table_is_aligned() -> None:
    unknown = {**dict.fromkeys(LAYERS), "declared": 8}
    lost = finding("NODE_UNREACHABLE", "node-10", error="x")
    assert table(
        [
            {"host": "gpu-1", "layers": LAYERS, "findings": [], "ok": True},
            {"host": "node-10", "layers": unknown, "findings": [lost, lost], "ok": False},
        ]
    ) == [
        "node     declared  PCI  NVML  capacity  allocatable  smoke  verdict",
        "gpu-1           4    4     4         4            4    4/4  ok",
        "node-10         8    -     -         -            -      -  NODE_UNREACHABLE",
    ]


def test_findings_and_steps_in_words() -> None:
    step = {"name": "Install the driver", "reason": "there is none"}
    lines = explain([step, finding("KUBELET_MISSING", "gpu-1")])
    assert lines[0] == "Install the driver (there is none)"
    assert lines[1] == "KUBELET_MISSING gpu-1: has no kubelet"
    assert lines[2].endswith("(docs/troubleshooting.md#kubelet_missing)")


def test_every_refusal_once_and_none_left_out() -> None:
    cluster = {"nodes": {"n1": {"state": "ok"}, "n2": {"state": "missing"}}}
    found = refusals(
        {
            "a": report("n1"),
            "b": report("n2", NO_GPU, dict(NO_GPU)),
            "c": report("n1"),
            "d": report(None, finding("NODE_UNREACHABLE", "d", error="x")),
        },
        cluster,
    )
    assert [(one["host"], one["code"]) for one in found] == [
        ("b", "NO_GPU"),
        ("b", "NODE_NOT_IN_CLUSTER"),
        ("d", "NODE_UNREACHABLE"),
        ("a", "NODE_NAME_TWICE"),
        ("c", "NODE_NAME_TWICE"),
    ]


def test_api_server_without_an_answer_comes_first() -> None:
    found = refusals({"b": report("n1", NO_GPU)}, {"msg": "connection refused"})
    assert [one["code"] for one in found] == ["CLUSTER_UNUSABLE", "NO_GPU"]
    assert "connection refused" in found[0]["message"]
