# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.reconcile import question, reconcile

SLOTS = [f"0000:0{number}:00.0" for number in range(4)]
UUIDS = [f"GPU-{number}" for number in range(4)]


def device(index: int, error: str | None = None) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": UUIDS[index],
        "pci_address": SLOTS[index],
        "error": error,
    }


def node(
    slots: int = 4, devices: list[dict[str, Any]] | None = None, failure: Any = None
) -> dict[str, Any]:
    found = [device(index) for index in range(slots)] if devices is None else devices
    return {
        "pci": [{"address": address} for address in SLOTS[:slots]],
        "nvml": {"devices": found, "failure": failure},
        "kubelet": {"node_name": "n1"},
    }


def cluster(capacity: int | None = 4, allocatable: int | None = 4, **more: Any) -> dict[str, Any]:
    return {
        "state": "ok",
        "capacity": capacity,
        "allocatable": allocatable,
        "ready": True,
        "readiness": "",
        "evidence": [],
        **more,
    }


def smoke(uuids: list[str], gpus: int = 4, state: str = "ok", **more: Any) -> dict[str, Any]:
    row = {"message": "", "reason": "", "events": [], "holders": []}
    return {"state": state, "gpus": gpus, "uuids": uuids, **row, **more}


SILENT = {"ready": None, "readiness": "condition Ready is Unknown: NodeStatusUnknown"}
LOST = {"code": "gpu_lost", "exit_code": 15, "message": "GPU is lost"}
DOWN = {"code": "driver_not_loaded", "exit_code": 9, "message": "no driver"}


@pytest.mark.parametrize(
    ("seen", "declared", "counted", "ran", "codes"),
    [
        pytest.param(node(), 4, cluster(), smoke(UUIDS), [], id="healthy"),
        pytest.param(node(), None, cluster(), smoke(UUIDS), [], id="healthy, not declared"),
        pytest.param(node(), None, cluster(), None, [], id="no smoke pods wanted"),
        pytest.param(
            node(3), 4, cluster(3, 3), smoke(UUIDS[:3], 3),
            ["GPU_COUNT_DIFFERS", "CAPACITY_DIFFERS"], id="card missing",
        ),
        pytest.param(
            node(devices=[device(0), device(1), device(2)], failure=LOST),
            4, cluster(4, 3), smoke(UUIDS[:3], 3), ["NVML_COUNT_DIFFERS", "ALLOCATABLE_DIFFERS"],
            id="lost by the driver",
        ),
        pytest.param(
            node(devices=[device(0), device(1), device(2), device(3, "[GPU is lost]")]),
            4, cluster(), smoke(UUIDS), ["GPU_FAULTY"], id="error in a cell",
        ),
        pytest.param(
            node(devices=[], failure=DOWN), 4, cluster(0, 0), None,
            ["NVML_UNAVAILABLE", "CAPACITY_DIFFERS"], id="driver down",
        ),
        pytest.param(
            node(0), None, cluster(None, None), None, ["NO_GPU", "CAPACITY_DIFFERS"], id="no GPU",
        ),
        pytest.param(node(), 4, cluster(None, None), None, ["CAPACITY_DIFFERS"], id="no plugin"),
        pytest.param(node(), 4, cluster(4, 3), None, ["ALLOCATABLE_DIFFERS"], id="unhealthy"),
        pytest.param(
            node(), 4, cluster(None, None, state="missing"), None, ["NODE_NOT_IN_CLUSTER"],
            id="not joined",
        ),
        pytest.param(node(), 4, cluster(**SILENT), None, ["NODE_NOT_READY"], id="silent"),
        pytest.param(
            node(), 4, cluster(4, 0, ready=False, readiness="no CNI"), None,
            ["NODE_NOT_READY", "ALLOCATABLE_DIFFERS"], id="not ready, and unhealthy",
        ),
        pytest.param(
            node(), 4, cluster(), smoke([], state="failed", message="RunContainerError"),
            ["SMOKE_FAILED"], id="smoke pod failed",
        ),
        pytest.param(
            node(), 4, cluster(), smoke([], state="failed", reason="ErrImagePull"),
            ["SMOKE_IMAGE_UNAVAILABLE"], id="no image",
        ),
        pytest.param(
            node(), 4, cluster(), smoke([*UUIDS[:3], "GPU-x"]), ["SMOKE_DIFFERS"], id="stranger"
        ),
    ],
)  # fmt: skip
def test_differences(
    seen: dict[str, Any],
    declared: int | None,
    counted: dict[str, Any],
    ran: dict[str, Any] | None,
    codes: list[str],
) -> None:
    verdict = reconcile("gpu-1", seen, declared, counted, ran)
    assert [found["code"] for found in verdict["findings"]] == codes
    assert verdict["ok"] is (not codes)


@pytest.mark.parametrize(
    ("counted", "message"),
    [
        pytest.param(
            cluster(None, None, state="missing", ready=None),
            "is no node of the cluster: the API server does not know n1",
            id="missing",
        ),
        pytest.param(
            cluster(**SILENT),
            "its Kubernetes node n1 is not ready: condition Ready is Unknown: NodeStatusUnknown",
            id="silent",
        ),
    ],
)
def test_node_has_the_name_that_the_cluster_knows(counted: dict[str, Any], message: str) -> None:
    (found,) = reconcile("gpu-1", node(), 4, counted, None)["findings"]
    assert found["message"] == f"gpu-1: {message}"


def test_layers() -> None:
    verdict = reconcile("gpu-1", node(), 4, cluster(4, 3), smoke(UUIDS[:2], 3))
    assert verdict["layers"] == {
        "declared": 4,
        "pci": 4,
        "nvml": 4,
        "capacity": 4,
        "allocatable": 3,
        "smoke": "2/3",
    }


def test_busy_node_is_no_failure() -> None:
    busy = smoke([], gpus=0, state="busy", message="other pods have claimed all 4")
    verdict = reconcile("gpu-1", node(), 4, cluster(), busy)
    assert verdict["ok"]
    assert verdict["layers"]["smoke"] == "busy"
    assert [found["code"] for found in verdict["findings"]] == ["SMOKE_NOT_RUN"]


def test_node_that_became_busy_in_between_is_busy() -> None:
    verdict = reconcile("gpu-1", node(), 4, cluster(), smoke([], gpus=2, state="busy"))
    assert verdict["layers"]["smoke"] == "busy"


def test_partly_busy_node_says_what_was_not_proven() -> None:
    part = smoke(UUIDS[:3], 3, holders=["default/a", "ml/b"])
    verdict = reconcile("gpu-1", node(), 4, cluster(), part)
    assert verdict["ok"]
    (found,) = verdict["findings"]
    assert found["code"] == "SMOKE_PARTIAL"
    assert found["message"] == (
        "gpu-1: proved 3 GPUs by a smoke pod, and not GPU-3, which pods have claimed: "
        "default/a, ml/b"
    )


def unreadable(index: int, address: str | None) -> dict[str, Any]:
    gpu = device(index, "[GPU is lost]")
    return {**gpu, "uuid": None, "pci_address": address}


@pytest.mark.parametrize(
    ("address", "names", "name"),
    [(SLOTS[3], f" ({SLOTS[3]})", SLOTS[3]), (None, "", "GPU 3")],
    ids=["address", "nothing"],
)
def test_gpu_without_a_uuid_is_named_by_what_can_be_read(
    address: str | None, names: str, name: str
) -> None:
    seen = node(devices=[*map(device, range(3)), unreadable(3, address)])
    part = smoke(UUIDS[:3], 3, holders=["default/a"])
    findings = {
        found["code"]: found["message"]
        for found in reconcile("gpu-1", seen, 4, cluster(), part)["findings"]
    }
    assert findings["GPU_FAULTY"] == f"gpu-1: GPU 3{names} reports: [GPU is lost]"
    assert findings["SMOKE_PARTIAL"].endswith(f"and not {name}, which pods have claimed: default/a")
    assert "SMOKE_DIFFERS" not in findings


STOPPED = finding("RUN_STOPPED", "gpu-1", task="x", error="y")


def test_what_follows_from_a_known_failure_is_no_finding_of_its_own() -> None:
    verdict = reconcile("gpu-1", node(devices=[], failure=DOWN), 4, cluster(0, 0), None, [STOPPED])
    assert verdict["findings"] == [STOPPED]
    assert verdict["layers"] | {"nvml": 0, "capacity": 0} == verdict["layers"]


@pytest.mark.parametrize(
    ("seen", "declared", "known", "expected"),
    [
        pytest.param(node(), 4, [], (4, True, True), id="healthy"),
        pytest.param(node(), None, [], (4, True, True), id="not declared"),
        pytest.param(
            node(devices=[device(0), device(1), device(2)], failure=LOST), 4, [],
            (4, False, True), id="lost by the driver",
        ),
        pytest.param(node(3), 4, [], (4, False, True), id="card missing"),
        pytest.param(
            node(devices=[*map(device, range(3)), device(3, "[GPU is lost]")]), 4, [],
            (4, False, True), id="error in a cell",
        ),
        pytest.param(node(), 4, [STOPPED], (4, False, False), id="left out"),
    ],
)  # fmt: skip
def test_what_the_cluster_is_asked(
    seen: dict[str, Any], declared: int | None, known: list[Any], expected: tuple[int, bool, bool]
) -> None:
    asked = question("gpu-1", seen, declared, known)
    assert asked.pop("node") == "n1"
    assert tuple(asked[key] for key in ("expected", "awaited", "smoke")) == expected


def test_unobserved_node_is_a_failure() -> None:
    known = [finding("NODE_UNREACHABLE", "gpu-1", error="timed out")]
    verdict = reconcile("gpu-1", None, 4, None, None, known)
    assert not verdict["ok"]
    assert verdict["layers"]["pci"] is None


def test_what_the_plugin_said_is_named() -> None:
    said = cluster(4, 3, evidence=["pod x is Running, and logged last: Xid=79"])
    (found,) = reconcile("gpu-1", node(), 4, said, None)["findings"]
    assert found["message"] == (
        "gpu-1: has 4 GPUs, the cluster can hand out 3; pod x is Running, and logged last: Xid=79"
    )


def cause(code: str, **evidence: str) -> dict[str, Any]:
    return {"code": code, "evidence": evidence}


POD = {"pod": "kube-system/nvdp-x", "namespace": "kube-system", "name": "nvdp-x"}
UNHEALTHY = cause("GPU_UNHEALTHY", **POD, error="device marked unhealthy: GPU-3")
MISSING = cause("DEVICE_PLUGIN_MISSING")
NO_GPUS = cause("GPUS_NOT_ALLOCATABLE", resource="nvidia.com/gpu", asked="1", found="0")
TAINTED = cause(
    "NODE_TAINTED", what="the smoke pod", taint="a:NoSchedule", command="x", setting="y"
)
SILENT_NODE = cause("NODE_NOT_READY", node="n1", error="NodeStatusUnknown")
FAILED = {"state": "failed", "message": "Pending"}


@pytest.mark.parametrize(
    ("counted", "ran", "codes"),
    [
        pytest.param(cluster(4, 3, cause=UNHEALTHY), None, ["GPU_UNHEALTHY"], id="unhealthy"),
        pytest.param(cluster(None, None, cause=MISSING), None, [MISSING["code"]], id="none"),
        pytest.param(
            cluster(0, 0, cause=MISSING), smoke([], 0, **FAILED, cause=NO_GPUS),
            ["DEVICE_PLUGIN_MISSING"], id="what follows is no news",
        ),
        pytest.param(
            None, smoke([], 0, **FAILED, cause=NO_GPUS), ["GPUS_NOT_ALLOCATABLE"],
            id="nobody has counted",
        ),
        pytest.param(cluster(), smoke([], **FAILED, cause=TAINTED), ["NODE_TAINTED"], id="taint"),
        pytest.param(
            cluster(4, 0, **SILENT, cause=SILENT_NODE), smoke([], **FAILED, cause=SILENT_NODE),
            ["NODE_NOT_READY"], id="a dead kubelet once",
        ),
        pytest.param(
            cluster(), smoke([], state="unknown", message="no answer"), ["SMOKE_UNKNOWN"],
            id="unknown",
        ),
        pytest.param(
            cluster(),
            smoke(UUIDS, pod="metal-gpu-smoke-x", namespace="tests", left_behind="forbidden"),
            ["SMOKE_POD_LEFT"], id="left behind",
        ),
    ],
)  # fmt: skip
def test_one_finding_for_each_cause(
    counted: dict[str, Any] | None, ran: dict[str, Any] | None, codes: list[str]
) -> None:
    verdict = reconcile("gpu-1", node(), 4, counted, ran)
    assert [found["code"] for found in verdict["findings"]] == codes
    assert verdict["ok"] is (codes == ["SMOKE_POD_LEFT"])


def test_a_pod_that_is_left_behind_comes_with_the_command() -> None:
    left = smoke(UUIDS, pod="metal-gpu-smoke-x", namespace="tests", left_behind="forbidden")
    (found,) = reconcile("gpu-1", node(), 4, cluster(), left)["findings"]
    assert "`kubectl --namespace tests delete pod metal-gpu-smoke-x`" in found["remedy"]


def test_no_allocatable_gpu_is_not_busy_in_the_table() -> None:
    none = smoke([], 0, **FAILED, cause=NO_GPUS)
    assert reconcile("gpu-1", node(), 4, cluster(0, 0), none)["layers"]["smoke"] == "0/0"


@pytest.mark.parametrize(
    ("layer", "counted"),
    [
        pytest.param((None, None), "the cluster counts 0 of 4 GPUs", id="capacity"),
        pytest.param((4, 3), "the cluster can hand out 3 of 4 GPUs", id="allocatable"),
    ],
)
def test_a_cause_says_which_layer_differs(layer: tuple[int | None, ...], counted: str) -> None:
    (found,) = reconcile("gpu-1", node(), 4, cluster(*layer, cause=MISSING), None)["findings"]
    assert found["message"].startswith(f"gpu-1: {counted}; ")


def test_a_lost_gpu_is_explained_by_the_plugin_too() -> None:
    """As README shows it: the driver names the GPU, and the plugin why one is not handed out."""
    lost = node(devices=[*map(device, range(3)), device(3, "[GPU is lost]")])
    said = cluster(4, 3, evidence=["pod x"], cause=UNHEALTHY)
    verdict = reconcile("gpu-1", lost, 4, said, smoke(UUIDS[:3], 3))
    faulty, unhealthy = verdict["findings"]
    assert faulty["code"] == "GPU_FAULTY"
    assert unhealthy["message"] == (
        "gpu-1: the cluster can hand out 3 of 4 GPUs; the device plugin kube-system/nvdp-x logged: "
        "device marked unhealthy: GPU-3"
    )
    assert "once the GPU is well, and not before, `kubectl --namespace" in unhealthy["remedy"]


def test_without_a_cause_the_remedy_claims_none() -> None:
    said = cluster(4, 3, evidence=["pod x is Running"])
    (found,) = reconcile("gpu-1", node(), 4, said, None)["findings"]
    assert found["code"] == "ALLOCATABLE_DIFFERS"
    assert "Xid" not in found["remedy"]


@pytest.mark.parametrize(
    ("message", "events", "told"),
    [
        pytest.param("Pending", ["Failed: b", "Failed: c"], "Pending; Failed: c", id="newest"),
        pytest.param(
            "failed to pull x", ["Failed: failed to pull x"], "failed to pull x", id="once"
        ),
        pytest.param("x" * 1470, [], "…", id="short"),
    ],
)
def test_a_failure_quotes_once_and_in_short(message: str, events: list[str], told: str) -> None:
    ran = smoke([], state="failed", message=message, events=events)
    (found,) = reconcile("gpu-1", node(), 4, cluster(), ran)["findings"]
    assert told in found["message"]
    assert found["message"].count(message) <= 1
    assert len(found["message"]) < 400
