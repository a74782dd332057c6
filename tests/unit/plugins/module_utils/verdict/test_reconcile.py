# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import no_answer
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import question, reconcile
from ansible_collections.metal.gpu.tests.unit.support import done, smi_xml

SLOTS = [f"0000:0{number}:00.0" for number in range(4)]
UUIDS = [f"GPU-{number}" for number in range(4)]


def device(index: int, error: str | None = None) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": UUIDS[index],
        "pci_address": SLOTS[index],
        "minor": index,
        "error": error,
    }


def node(
    slots: int = 4, devices: list[dict[str, Any]] | None = None, failure: Any = None
) -> dict[str, Any]:
    found = [device(index) for index in range(slots)] if devices is None else devices
    return {
        **done.node(),
        "pci": done.bus(SLOTS[:slots], "20b0"),
        "nvml": {
            "driver_version": "580.178.04",
            "devices": [{"name": "NVIDIA A100-PCIE-40GB", **one} for one in found],
            "bound": {
                SLOTS[number]: {"uuid": UUIDS[number], "minor": number} for number in range(slots)
            },
            "failure": failure,
            "complete": failure is None,
        },
        "cdi": {"devices": [], "names": {}},
        "fabric": {"switches": [], "ports": [], "states": [], "states_error": None},
        "boot_id": "b1",
        "machine_id": "m1",
        "health": {"gpus": [smi_xml.parsed(address) for address in SLOTS[:slots]], "error": None},
        "device_files": [
            {"path": f"/dev/nvidia{name}", "major": 195}
            for name in ("ctl", "-uvm", *range(len(found)))
        ],
        "device_obstacles": [],
        "device_majors": {},
        "kernel": {"release": "6.1.0-26-amd64", "modules": ["nvidia", "nvidia_uvm"]},
        "kernel_log": {
            "sources": ["dmesg"],
            "error": None,
            "events": [],
            "unlisted": 0,
            "recovery": {},
            "uuids": {},
            "words": {},
        },
        "systemd": {"unknown": [], "error": None},
        "package_manager": {"error": None},
        "engines": {
            "containerd": {"installed": True, "running": True, "socket": None, "home": None},
            "docker": {"installed": False, "running": False, "cri_dockerd": {}},
            "crio": {"installed": False, "running": False},
        },
        "kubelet": {
            "node_name": "n1",
            "installed": True,
            "running": True,
            "unit_state": {"active": "active", "sub": "running", "result": "success"},
            "last_error": None,
            "distribution": None,
            "endpoint": "unix:///run/containerd/containerd.sock",
            "devices": None,
        },
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
            4, cluster(4, 3), smoke(UUIDS[:3], 3),
            ["NVML_COUNT_DIFFERS", "NVML_TROUBLE", "ALLOCATABLE_DIFFERS"], id="lost by the driver",
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
    verdict = reconcile(
        "gpu-1", seen, declared, counted, ran, asked=["cluster"] + ["smoke"] * bool(ran)
    )
    assert [found["code"] for found in verdict["findings"]] == codes
    assert verdict["ok"] is (not codes)


@pytest.mark.parametrize(
    ("counted", "message"),
    [
        pytest.param(
            cluster(None, None, state="missing", ready=None),
            "the cluster has no node n1",
            id="missing",
        ),
        pytest.param(
            cluster(**SILENT),
            "the Kubernetes node n1 is not ready: condition Ready is Unknown: NodeStatusUnknown",
            id="silent",
        ),
    ],
)
def test_findings_name_the_kubernetes_node(counted: dict[str, Any], message: str) -> None:
    (found,) = reconcile("gpu-1", node(), 4, counted, None, asked=["cluster"])["findings"]
    assert found["message"] == f"gpu-1: {message}"


def test_machine() -> None:
    verdict = reconcile("gpu-1", node(), 4, None, None, asked=())
    assert verdict["machine"] == {"gpu": "A100-PCIE-40GB", "driver": "580.178.04"}
    found = [device(0), {**device(1), "name": "Tesla T4"}]
    verdict = reconcile("gpu-1", node(2, found), 2, None, None, asked=())
    assert verdict["machine"]["gpu"] == "A100-PCIE-40GB, Tesla T4"
    lost = node()
    lost["nvml"]["driver_version"] = None
    verdict = reconcile(
        "gpu-1", {**lost, "driver": {"module_version": "580.1"}}, 4, None, None, asked=()
    )
    assert verdict["machine"]["driver"] == "580.1"
    unknown = {"gpu": None, "driver": None}
    assert reconcile("gpu-1", None, 4, None, None, asked=())["machine"] == unknown


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
    text = "other pods claim all 4"
    busy = smoke([], gpus=0, state="busy", message=text, holders=["ml/a"], allocatable=4)
    verdict = reconcile("gpu-1", node(), 4, cluster(), busy)
    assert verdict["ok"]
    assert verdict["busy"]
    assert verdict["layers"]["smoke"] == "busy"
    assert [found["code"] for found in verdict["findings"]] == ["SMOKE_NOT_RUN"]


def test_node_that_became_busy_in_between_is_busy() -> None:
    busy = smoke([], gpus=2, state="busy", holders=["ml/a"])
    verdict = reconcile("gpu-1", node(), 4, cluster(), busy)
    assert verdict["ok"]
    assert verdict["layers"]["smoke"] == "busy"


def test_the_node_of_the_cluster_is_another_machine() -> None:
    row = cluster(state="missing", ready=None, another="boot id b9, machine id m9")
    verdict = reconcile("gpu-1", node(), 4, row, None)
    (found,) = verdict["findings"]
    assert found["code"] == "NODE_IS_ANOTHER"
    assert "this host has boot id b1, machine id m1" in found["message"]


def test_gpus_that_only_the_inventory_lacks_are_told_once() -> None:
    verdict = reconcile("gpu-1", node(), 3, cluster(), smoke(UUIDS))
    assert [one["code"] for one in verdict["findings"]] == ["GPU_COUNT_DIFFERS"]


def test_busy_without_anybody_who_has_the_gpus_is_no_excuse() -> None:
    busy = smoke([], gpus=4, state="busy", message="Insufficient nvidia.com/gpu")
    verdict = reconcile("gpu-1", node(), 4, cluster(), busy)
    assert not verdict["ok"]
    assert [found["code"] for found in verdict["findings"]] == ["SMOKE_FAILED"]
    verdict = reconcile("gpu-1", node(), 4, cluster(), {**busy, "reason": "preempted"})
    assert verdict["ok"]
    assert verdict["busy"]
    assert [found["code"] for found in verdict["findings"]] == ["SMOKE_NOT_RUN"]


@pytest.mark.parametrize(
    ("row", "codes"),
    [
        pytest.param(
            smoke([], 0, "busy", holders=["ml/a"], allocatable=3),
            ["SMOKE_NOT_RUN", "ALLOCATABLE_DIFFERS"], id="the others are busy",
        ),
        pytest.param(
            smoke(UUIDS[:2], 2, holders=["ml/a"], allocatable=3),
            ["SMOKE_PARTIAL", "ALLOCATABLE_DIFFERS"], id="one of the others is busy",
        ),
        pytest.param(
            smoke(UUIDS[:3], 3, allocatable=3), ["ALLOCATABLE_DIFFERS"], id="the others are proven"
        ),
    ],
)  # fmt: skip
def test_a_gpu_that_dies_after_the_count_is_told(row: dict[str, Any], codes: list[str]) -> None:
    verdict = reconcile("gpu-1", node(), 4, cluster(), row)
    assert not verdict["ok"]
    assert [found["code"] for found in verdict["findings"]] == codes


def test_a_gpu_that_was_missed_before_is_told_once() -> None:
    row = smoke(UUIDS[:2], 2, holders=["ml/a"], allocatable=3)
    verdict = reconcile("gpu-1", node(), 4, cluster(4, 3), row)
    codes = [found["code"] for found in verdict["findings"]]
    assert codes == ["ALLOCATABLE_DIFFERS", "SMOKE_PARTIAL"]


def test_partly_busy_node_says_what_was_not_proven() -> None:
    part = smoke(UUIDS[:3], 3, holders=["default/a", "ml/b"])
    verdict = reconcile("gpu-1", node(), 4, cluster(), part)
    assert (verdict["ok"], verdict["busy"]) == (True, False)
    (found,) = verdict["findings"]
    assert found["code"] == "SMOKE_PARTIAL"
    assert found["message"] == (
        "gpu-1: a smoke pod proved 3 GPUs, but not GPU-3, because pods have claimed them: "
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
    assert findings["SMOKE_PARTIAL"].endswith(
        f"but not {name}, because pods have claimed them: default/a"
    )
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
        pytest.param(node(devices=[], failure=DOWN), 4, [], (4, False, False), id="no answer"),
        pytest.param(
            node(devices=[device(0)], failure={**DOWN, "code": "timeout"}), 4, [],
            (4, False, False), id="hangs after the first GPU",
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


def test_an_image_is_chosen_although_nvidia_smi_prints_no_row() -> None:
    """As driver 550 does if it cannot reach one of the GPUs."""
    seen = node()
    seen["nvml"]["driver_version"] = None
    seen["driver"] = {"module_version": "550.163.01"}
    assert question("gpu-1", seen, 4)["image"]
    seen["driver"] = {"module_version": None}
    assert question("gpu-1", seen, 4)["image"] == ""


def test_notice_about_the_hardware_does_not_end_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    notice = {**STOPPED, "severity": "notice"}
    module = "ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile"
    monkeypatch.setattr(f"{module}.judge_hardware", lambda *_args: iter([notice]))
    assert question("gpu-1", node(), 4, [])["awaited"]


def test_what_surrounds_a_node_is_a_finding_beside_right_amounts() -> None:
    """And hides none of the others: a notice about a clock explains no GPU that is missing."""
    clock = {"code": "NODE_CLOCK_OFF", "evidence": {"seconds": "300", "way": "behind"}}
    beside = {"code": "DRA_DRIVER_BESIDE", "evidence": {"plugin": "a/b", "driver": "c/d"}}
    for around, is_ok in (([clock], True), ([clock, beside], False)):
        counted = cluster(surroundings=around)
        verdict = reconcile("gpu-1", node(), 4, counted, smoke(UUIDS))
        assert [one["code"] for one in verdict["findings"]] == [one["code"] for one in around]
        assert verdict["ok"] is is_ok
    lost = reconcile("gpu-1", node(), 4, cluster(surroundings=[clock]), smoke(UUIDS, allocatable=3))
    assert "ALLOCATABLE_DIFFERS" in [one["code"] for one in lost["findings"]]


def test_without_an_answer_of_the_driver_no_pod_is_missed() -> None:
    seen = node(devices=[], failure=DOWN)
    verdict = reconcile("gpu-1", seen, 4, cluster(), None)
    assert [one["code"] for one in verdict["findings"]] == ["NVML_UNAVAILABLE"]


def test_unobserved_node_is_a_failure() -> None:
    known = [finding("NODE_UNREACHABLE", "gpu-1", error="timed out")]
    verdict = reconcile("gpu-1", None, 4, None, None, known)
    assert not verdict["ok"]
    assert verdict["layers"]["pci"] is None


def test_the_log_of_the_plugin_is_quoted() -> None:
    said = cluster(4, 3, evidence=["pod x is Running, and logged last: Xid=79"])
    (found,) = reconcile("gpu-1", node(), 4, said, None, asked=["cluster"])["findings"]
    assert found["message"] == (
        "gpu-1: the node has 4 GPUs, but the cluster can allocate 3; pod x is Running, and logged "
        "last: Xid=79"
    )


# --- what is not known is not ok --------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "counted", "ran", "asked", "codes"),
    [
        pytest.param(None, None, None, ["cluster", "smoke"], ["NODE_NOT_OBSERVED"], id="nothing"),
        pytest.param(None, None, None, [], ["NODE_NOT_OBSERVED"], id="nothing, and nothing asked"),
        pytest.param(
            node(), None, None, ["cluster", "smoke"], ["CLUSTER_UNKNOWN"], id="node alone"
        ),
        pytest.param(node(), cluster(), None, ["cluster", "smoke"], ["SMOKE_MISSING"], id="no pod"),
        pytest.param(
            node(), None, smoke(UUIDS), ["cluster", "smoke"], ["CLUSTER_UNKNOWN"], id="pods alone"
        ),
        pytest.param(
            node(), cluster(), smoke(UUIDS[:3]), ["cluster", "smoke"], ["SMOKE_MISSING"],
            id="three of four proven",
        ),
        pytest.param(
            node(), cluster(), smoke([*UUIDS[:3], UUIDS[2]]), ["cluster", "smoke"],
            ["SMOKE_MISSING"], id="one twice",
        ),
        pytest.param(
            node(), cluster(**SILENT), None, ["cluster", "smoke"], ["NODE_NOT_READY"],
            id="no pod for a node that is not ready",
        ),
        pytest.param(node(), cluster(), None, ["cluster"], [], id="pods were not asked"),
        pytest.param(node(), None, None, [], [], id="the cluster was not asked"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_ok(
    seen: Any, counted: Any, ran: Any, asked: list[str], codes: list[str]
) -> None:
    verdict = reconcile("gpu-1", seen, 4, counted, ran, asked=asked)
    assert [found["code"] for found in verdict["findings"]] == codes
    assert verdict["ok"] is (not codes)


NO_CLUSTER = no_answer("x")
AWAY = finding("NODE_UNREACHABLE", "gpu-1", error="timed out")


@pytest.mark.parametrize(
    ("seen", "known", "ran", "codes"),
    [
        pytest.param(node(), [], None, ["CLUSTER_UNUSABLE"], id="nothing else is wrong"),
        pytest.param(
            None, [AWAY], None, ["NODE_UNREACHABLE", "CLUSTER_UNUSABLE"], id="the node is away, too"
        ),
        pytest.param(
            node(devices=[*map(device, range(3)), device(3, "[GPU is lost]")]), [], None,
            ["GPU_FAULTY", "CLUSTER_UNUSABLE"], id="a GPU is lost",
        ),
        pytest.param(
            node(), [], smoke([], state="failed"), ["SMOKE_FAILED", "CLUSTER_UNUSABLE"],
            id="a pod has failed before",
        ),
    ],
)  # fmt: skip
def test_a_silent_cluster_hides_nothing(seen: Any, known: Any, ran: Any, codes: list[str]) -> None:
    verdict = reconcile("gpu-1", seen, 4, None, ran, known, unanswered=[NO_CLUSTER])
    assert [found["code"] for found in verdict["findings"]] == codes
    assert not verdict["ok"]


def test_a_lost_gpu_does_not_follow_from_a_stopped_run() -> None:
    seen = node(3, devices=[device(0), device(1), device(2, "[GPU is lost]")])
    seen["device_files"] = []
    verdict = reconcile("gpu-1", seen, 4, cluster(0, 0), None, [STOPPED])
    codes = ["RUN_STOPPED", "GPU_COUNT_DIFFERS", "GPU_FAULTY"]
    assert [found["code"] for found in verdict["findings"]] == codes


def test_findings_of_preflight_are_not_repeated() -> None:
    refused = finding("NO_GPU", "gpu-1")
    verdict = reconcile("gpu-1", node(0, devices=[], failure=DOWN), None, None, None, [refused])
    assert verdict["findings"] == [refused]


# --- services ---------------------------------------------------------------------------------


def without(service: str, socket: str | None = None, **kubelet: Any) -> dict[str, Any]:
    """Return a node on which a service does not run. `socket` is where containerd listens."""
    seen = node()
    seen["engines"]["containerd"]["socket"] = socket
    if service == "kubelet":
        seen["kubelet"] |= {"running": False, **kubelet}
        return seen
    seen["engines"]["docker"] = {
        "installed": True,
        "running": True,
        "cri_dockerd": {"installed": True, "running": True},
    }
    seen["engines"]["crio"]["installed"] = True
    engines = {**seen["engines"], "cri-docker": seen["engines"]["docker"]["cri_dockerd"]}
    engines[service]["running"] = False
    seen["kubelet"] |= kubelet
    return seen


CRI_DOCKERD = {"endpoint": "unix:///run/cri-dockerd.sock"}


@pytest.mark.parametrize(
    ("seen", "codes", "words"),
    [
        pytest.param(
            without("kubelet", last_error="unknown flag: --x"), ["KUBELET_STOPPED"],
            "the kubelet is not running: unknown flag: --x", id="kubelet, by its own words",
        ),
        pytest.param(
            without("kubelet", unit_state={"active": "failed", "sub": "dead", "result": "signal"}),
            ["KUBELET_STOPPED"], "its unit is failed (dead, signal)", id="kubelet, by its unit",
        ),
        pytest.param(
            without("containerd"), ["ENGINE_STOPPED"], "containerd.service is not running",
            id="containerd",
        ),
        pytest.param(
            without("docker", **CRI_DOCKERD), ["ENGINE_STOPPED"], "docker.service", id="docker"
        ),
        pytest.param(
            without("cri-docker", **CRI_DOCKERD), ["ENGINE_STOPPED"], "cri-docker.service",
            id="cri-dockerd",
        ),
        pytest.param(
            without("crio", endpoint="unix:///var/run/crio/crio.sock"), ["ENGINE_STOPPED"],
            "crio.service", id="CRI-O",
        ),
        pytest.param(
            without("containerd", endpoint="unix:///var/run/containerd/containerd.sock"),
            ["ENGINE_STOPPED"], "containerd.service is not running",
            id="containerd, as kubeadm writes its socket",
        ),
        pytest.param(
            without("containerd", "/var/run/containerd/containerd.sock"), ["ENGINE_STOPPED"],
            "containerd.service is not running", id="containerd, which writes its socket so",
        ),
        pytest.param(without("docker"), [], "", id="an engine that the kubelet does not use"),
        pytest.param(
            without("containerd", endpoint="unix:///run/k3s/containerd/containerd.sock"), [], "",
            id="an engine beside that of k3s",
        ),
        pytest.param(without("kubelet", installed=False), [], "", id="no kubelet of its own"),
        pytest.param(without("kubelet", running=None), [], "", id="no systemd"),
    ],
)  # fmt: skip
def test_services(seen: dict[str, Any], codes: list[str], words: str) -> None:
    """The cluster's values for such a node are outdated, and a failed pod is only a consequence."""
    counted, ran = cluster(**SILENT), smoke([], state="failed", message="Pending for 112 s")
    findings = reconcile("gpu-1", seen, 4, counted, ran)["findings"]
    assert [found["code"] for found in findings] == (codes or ["NODE_NOT_READY", "SMOKE_FAILED"])
    assert words in findings[0]["message"]
    asked = question("gpu-1", seen, 4)
    assert (asked["awaited"], asked["smoke"]) == (not codes, not codes)


def test_a_node_that_has_not_joined_is_named_in_any_case() -> None:
    counted = cluster(None, None, state="missing", ready=None)
    findings = reconcile("gpu-1", without("kubelet"), 4, counted, None)["findings"]
    assert [found["code"] for found in findings] == ["KUBELET_STOPPED", "NODE_NOT_IN_CLUSTER"]


# --- drift ------------------------------------------------------------------------------------


def plan(*steps: tuple[str, str], refusals: Any = (), notices: Any = ()) -> dict[str, Any]:
    return {
        "steps": [{"name": name, "reason": reason} for name, reason in steps],
        "refusals": list(refusals),
        "notices": list(notices),
    }


REGISTER = ("Register the NVIDIA runtime", "containerd has no runtime nvidia")
CDI = ("Generate the CDI specification", "there is none")
INVALID = finding("CONTAINERD_CONFIG_INVALID", "gpu-1", error="line 1")
KEPT = finding("DRIVER_KEPT", "gpu-1", found="1", expected="2")


@pytest.mark.parametrize(
    ("plans", "messages"),
    [
        pytest.param(None, [], id="not asked"),
        pytest.param({"driver": plan(notices=[KEPT])}, [], id="a notice"),
        pytest.param(
            {"driver": plan(), "container_toolkit": plan(REGISTER, CDI)},
            [
                "gpu-1: container_toolkit has drifted; steps to correct it: Register the NVIDIA "
                "runtime (containerd has no runtime nvidia); Generate the CDI specification "
                "(there is none)"
            ],
            id="one finding for a component",
        ),
        pytest.param(
            {"containerd": plan(refusals=[INVALID]),
             "container_toolkit": plan(refusals=[INVALID])},
            [INVALID["message"]], id="a refusal, once",
        ),
    ],
)  # fmt: skip
def test_drift(plans: Any, messages: list[str]) -> None:
    verdict = reconcile("gpu-1", node(), 4, cluster(), smoke(UUIDS), plans=plans)
    assert [found["message"] for found in verdict["findings"]] == messages
    assert verdict["ok"] is (not messages)


def test_a_kernel_without_a_module_is_named_and_no_failure() -> None:
    """The node is well, and loses its GPUs at the next boot."""
    evidence = {"kernel": "6.1.0-28-amd64", "why": "no headers", "way": "install them"}
    pending = finding("KERNEL_PENDING", "gpu-1", **evidence)
    plans = {"driver": plan(notices=[KEPT, pending])}
    verdict = reconcile("gpu-1", node(), 4, cluster(), smoke(UUIDS), plans=plans)
    assert (verdict["findings"], verdict["ok"]) == ([pending], True)


@pytest.mark.parametrize(
    ("code", "evidence"),
    [
        ("REPOSITORY_UNUSED", {"names": "nvidia_driver_repository_url"}),
        ("REPOSITORY_KEPT", {"paths": "/x.sources", "way": "run `rm -f /x.sources`"}),
        ("ENGINE_NOT_STARTABLE", {"engine": "containerd", "evidence": "x"}),
    ],
)
def test_what_has_no_effect_yet_is_no_failure(code: str, evidence: dict[str, str]) -> None:
    found = finding(code, "gpu-1", role="nvidia_driver", **evidence)
    plans = {"driver": plan(notices=[KEPT, found])}
    verdict = reconcile("gpu-1", node(), 4, cluster(), smoke(UUIDS), plans=plans)
    assert (verdict["findings"], verdict["ok"]) == ([found], True)


def test_drift_says_how_to_look_at_it() -> None:
    (found,) = reconcile(
        "gpu-1", node(), 4, cluster(), smoke(UUIDS), plans={"containerd": plan(CDI)}
    )["findings"]
    assert "ansible-playbook metal.gpu.site --check --diff --limit gpu-1" in found["remedy"]


def test_a_service_that_does_not_run_is_no_drift_besides() -> None:
    restart = ("Restart the kubelet", "it is not running")
    edit = ("Correct the DevicePlugins gate in the kubelet flags", "x")
    for steps, codes in (
        ([restart], ["KUBELET_STOPPED"]),
        ([edit, restart], ["KUBELET_STOPPED", "DRIFTED"]),
    ):
        plans = {"kubelet": plan(*steps)}
        verdict = reconcile("gpu-1", without("kubelet"), 4, cluster(), None, plans=plans)
        assert [found["code"] for found in verdict["findings"]] == codes


# --- causes -----------------------------------------------------------------------------------


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
            id="no answers",
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
    layers = {"cluster": counted, "smoke": ran}
    asked = [name for name, row in layers.items() if row is not None]
    verdict = reconcile("gpu-1", node(), 4, counted, ran, asked=asked)
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
        pytest.param((None, None), "capacity is 0 of 4 GPUs", id="capacity"),
        pytest.param((4, 3), "allocatable is 3 of 4 GPUs", id="allocatable"),
    ],
)
def test_a_cause_says_which_layer_differs(layer: tuple[int | None, ...], counted: str) -> None:
    counted_row = cluster(*layer, cause=MISSING)
    (found,) = reconcile("gpu-1", node(), 4, counted_row, None, asked=["cluster"])["findings"]
    assert found["message"].startswith(f"gpu-1: {counted}; ")


def test_a_lost_gpu_is_explained_by_the_plugin_too() -> None:
    """As README shows it: the driver names the GPU, and the plugin why one is not handed out."""
    lost = node(devices=[*map(device, range(3)), device(3, "[GPU is lost]")])
    said = cluster(4, 3, evidence=["pod x"], cause=UNHEALTHY)
    verdict = reconcile("gpu-1", lost, 4, said, smoke(UUIDS[:3], 3))
    faulty, unhealthy = verdict["findings"]
    assert faulty["code"] == "GPU_FAULTY"
    assert unhealthy["message"] == (
        "gpu-1: allocatable is 3 of 4 GPUs; the device plugin kube-system/nvdp-x logged: "
        "device marked unhealthy: GPU-3"
    )
    assert "only after that, run `kubectl --namespace" in unhealthy["remedy"]
    place = "in the kernel module, but not in nvidia-smi"
    assert verdict["lost"] == [f"GPU {SLOTS[3]} (GPU-3): {place}: see GPU_FAULTY, GPU_UNHEALTHY"]


def test_without_a_cause_the_remedy_claims_none() -> None:
    said = cluster(4, 3, evidence=["pod x is Running"])
    (found,) = reconcile("gpu-1", node(), 4, said, None, asked=["cluster"])["findings"]
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


def test_a_pod_that_is_left_behind_hides_no_other_finding() -> None:
    left = smoke(UUIDS[:3], pod="p", namespace="tests", left_behind="forbidden")
    codes = [found["code"] for found in reconcile("gpu-1", node(), 4, cluster(), left)["findings"]]
    assert codes == ["SMOKE_POD_LEFT", "SMOKE_MISSING"]


XID = {
    "source": "xid",
    "address": SLOTS[1],
    "number": 79,
    "count": 1,
    "first": 600,
    "last": 600,
    "last_date": "2026-11-22T14:03Z",
    "line": "GPU has fallen off the bus.",
}


@pytest.mark.parametrize(
    "known",
    [[], [finding("REBOOT_NEEDED", "gpu-1", evidence="x", reboot_ok=False)]],
    ids=["judged", "left out by the run"],
)
def test_a_gpu_that_only_the_kernel_log_shows(known: list[dict[str, str]]) -> None:
    seen = node()
    seen["kernel_log"]["events"] = [XID]
    verdict = reconcile("gpu-1", seen, 4, cluster(), smoke(UUIDS), known)
    assert "GPU_ERROR_LOGGED" in [one["code"] for one in verdict["findings"]]
    assert not verdict["ok"]


def test_a_silent_kernel_log_is_no_finding_of_a_healthy_node() -> None:
    seen = node()
    seen["kernel_log"].update(sources=[], error="dmesg: Operation not permitted")
    assert reconcile("gpu-1", seen, 4, cluster(), smoke(UUIDS))["ok"]
    assert reconcile("gpu-1", seen, 4, cluster(), smoke(UUIDS))["findings"] == []
    lost = node(devices=[device(index) for index in range(3)])
    lost["kernel_log"] = seen["kernel_log"]
    codes = [one["code"] for one in reconcile("gpu-1", lost, 4, None, None, asked=())["findings"]]
    assert codes == ["NVML_COUNT_DIFFERS", "KERNEL_LOG_UNREADABLE"]


@pytest.mark.parametrize(
    ("event", "awaited"),
    [
        pytest.param(XID, False, id="withdrawn"),
        pytest.param({**XID, "number": 119}, False, id="withdrawn until a reset"),
        pytest.param({**XID, "number": 109}, True, id="ignored by the device plugin"),
        pytest.param({**XID, "number": 31}, True, id="program"),
        pytest.param(
            {**XID, "source": "sxid", "number": 22003, "line": "Fatal, Link 30"},
            True,
            id="NVSwitch",
        ),
    ],
)
def test_a_gpu_that_the_device_plugin_has_withdrawn_is_not_waited_for(
    event: dict[str, Any], awaited: bool
) -> None:
    seen = node()
    seen["kernel_log"]["events"] = [event]
    assert question("gpu-1", seen, 4)["awaited"] is awaited
    assert seen["kernel_log"]["events"] == [event]


# --- shared GPUs ------------------------------------------------------------------------------

SOURCE = "20 replicas of each GPU by time-slicing, says gpu_expected"


def sharing(resources: dict[str, int] | None, source: str = SOURCE) -> dict[str, Any]:
    name = next(iter(resources or ()), "nvidia.com/gpu")
    wanted = {"gpus": 4, "source": source, "resource": name, "shared": bool(source), "mps": False}
    wanted |= {"known": {}, "least": 4}
    return {"resources": resources, **wanted}


def amounts(**found: tuple[int, int]) -> dict[str, Any]:
    return {
        f"nvidia.com/{name.replace('_', '.')}": {"capacity": one, "allocatable": other}
        for name, (one, other) in found.items()
    }


def shared(state: str, wanted: dict[str, Any] | None, **found: tuple[int, int]) -> dict[str, Any]:
    plain = found.get("gpu", (None, None))
    more = {"state": state, "wanted": wanted, "resources": amounts(**found)}
    return cluster(*plain, **more)


EIGHTY = {"nvidia.com/gpu": 80}


@pytest.mark.parametrize(
    ("counted", "codes"),
    [
        pytest.param(shared("ok", sharing(EIGHTY), gpu=(80, 80)), [], id="shared"),
        pytest.param(
            shared("ok", sharing({"nvidia.com/gpu.shared": 80}), gpu_shared=(80, 80)), [],
            id="renamed",
        ),
        pytest.param(
            shared("ok", sharing(None), gpu=(28, 28)), [], id="parts, of which nobody has a number"
        ),
        pytest.param(
            shared("differs", sharing(EIGHTY), gpu=(80, 60)), ["GPU_RESOURCES_DIFFER"],
            id="a GPU of the shared ones is unhealthy",
        ),
        pytest.param(
            {**shared("differs", sharing(EIGHTY), gpu=(80, 60)), "cause": UNHEALTHY},
            ["GPU_UNHEALTHY"], id="its cause is known",
        ),
        pytest.param(
            shared("differs", sharing({"nvidia.com/gpu": 4}, ""), gpu_shared=(80, 80)),
            ["GPU_RESOURCES_DIFFER"], id="another name, and nothing says why",
        ),
        pytest.param(
            {**shared("differs", sharing(EIGHTY), gpu=(80, 80)), "ready": False,
             "readiness": "x"}, ["NODE_NOT_READY"], id="not ready, and nothing else",
        ),
        pytest.param(
            {**shared("differs", sharing(None), gpu=(28, 28)), "ready": False, "readiness": "x"},
            ["NODE_NOT_READY"], id="parts on a node that is not ready",
        ),
        pytest.param(
            shared("differs", sharing(EIGHTY)), ["GPU_RESOURCES_DIFFER"], id="nothing registered"
        ),
    ],
)  # fmt: skip
def test_a_node_with_shared_gpus(counted: dict[str, Any], codes: list[str]) -> None:
    verdict = reconcile("gpu-1", node(), 4, counted, None, asked=["cluster"])
    assert [found["code"] for found in verdict["findings"]] == codes
    assert verdict["ok"] is (not codes)


def test_the_finding_says_what_there_must_be_and_what_there_is() -> None:
    counted = shared("differs", sharing(EIGHTY), gpu=(80, 60))
    (found,) = reconcile("gpu-1", node(), 4, counted, None, asked=["cluster"])["findings"]
    assert found["message"] == (
        f"gpu-1: the node must have 80 nvidia.com/gpu ({SOURCE}), but it has 80 nvidia.com/gpu "
        "(60 allocatable)"
    )
    other = shared("differs", sharing({"nvidia.com/gpu": 4}, ""), gpu_shared=(80, 80))
    (found,) = reconcile("gpu-1", node(), 4, other, None, asked=["cluster"])["findings"]
    assert found["message"] == (
        "gpu-1: the node must have 4 nvidia.com/gpu, but it has 80 nvidia.com/gpu.shared"
    )
    assert "gpu_expected: {nvidia.com/gpu: 40}" in found["remedy"]


def test_the_table_counts_shares() -> None:
    counted = shared("ok", sharing({"nvidia.com/gpu.shared": 80}), gpu_shared=(80, 80))
    layers = reconcile("gpu-1", node(), 4, counted, None, asked=["cluster"])["layers"]
    assert (layers["capacity"], layers["allocatable"]) == (80, 80)
    former = shared("ok", sharing({"nvidia.com/gpu.shared": 80}), gpu_shared=(80, 80), gpu=(4, 0))
    layers = reconcile("gpu-1", node(), 4, former, None, asked=["cluster"])["layers"]
    assert (layers["capacity"], layers["allocatable"]) == (80, 80)


def test_a_pod_with_a_share_proves_one_gpu_and_says_so() -> None:
    counted = shared("ok", sharing(EIGHTY), gpu=(80, 80))
    results = [{"uuid": UUIDS[2], "ok": True, "error": ""}]
    more = {"shared": True, "allocatable": 80, "level": "compute", "results": results}
    verdict = reconcile("gpu-1", node(), 4, counted, smoke([UUIDS[2]], 1, **more))
    assert verdict["ok"]
    (found,) = verdict["findings"]
    assert (found["code"], found["severity"]) == ("SMOKE_SHARED", "notice")
    assert f"proved {UUIDS[2]}, but not {UUIDS[0]}, {UUIDS[1]}, {UUIDS[3]}" in found["message"]
    assert [gpu["computed"] for gpu in verdict["gpus"]] == [None, None, True, None]
    assert [gpu["lost_at"] for gpu in verdict["gpus"]] == [None] * 4


def test_no_program_computes_beside_those_of_mps() -> None:
    """The daemon of MPS itself sets the mode in which one program has the GPU."""
    wanted = {**sharing(EIGHTY), "mps": True}
    counted = shared("ok", wanted, gpu=(80, 80))
    seen = node()
    seen["health"]["gpus"][0]["compute_mode"] = "Exclusive_Process"
    more = {"shared": True, "allocatable": 80, "level": "list"}
    verdict = reconcile("gpu-1", seen, 4, counted, smoke([UUIDS[2]], 1, **more))
    assert [one["code"] for one in verdict["findings"]] == ["COMPUTE_NOT_RUN"]
    assert [gpu["computed"] for gpu in verdict["gpus"]] == [None] * 4


def test_a_share_in_which_the_pod_saw_nothing_proves_nothing() -> None:
    counted = shared("ok", sharing(EIGHTY), gpu=(80, 80))
    verdict = reconcile("gpu-1", node(), 4, counted, smoke([], 1, shared=True))
    assert "SMOKE_MISSING" in [one["code"] for one in verdict["findings"]]


def test_a_pod_may_see_a_part_of_a_gpu() -> None:
    counted = shared("ok", sharing(None), gpu=(28, 28))
    ran = smoke(["MIG-0b9d8c53-2d3a-5f5e-9a3c-7d1f8e6a4b21"], 1, shared=True)
    verdict = reconcile("gpu-1", node(), 4, counted, ran)
    assert [one["code"] for one in verdict["findings"]] == ["SMOKE_SHARED"]


@pytest.mark.parametrize(
    ("modes", "error", "split"),
    [
        (["Disabled"] * 4, None, 0),
        (["Enabled", "Disabled", "Enabled", "Disabled"], None, 2),
        ([None] * 4, None, 0),  # GPUs that cannot be split
        (["Enabled"] * 3, None, None),
        (["Enabled"] * 4, "`nvidia-smi -q -x` printed nothing", None),
    ],
)
def test_how_many_gpus_are_split(
    modes: list[str | None], error: str | None, split: int | None
) -> None:
    gpus = [smi_xml.parsed(SLOTS[place], mig=mode) for place, mode in enumerate(modes)]
    seen = {**node(), "health": {"gpus": gpus, "error": error}}
    assert question("gpu-1", seen, 4)["split"] == split


PARTS = {"nvidia.com/mig-1g.5gb": 14}
PARTLY = {**sharing(None), "known": {"nvidia.com/gpu": 2}, "least": 2}


@pytest.mark.parametrize(
    ("counted", "message"),
    [
        pytest.param(
            shared("differs", PARTLY, gpu=(1, 1)),
            f"must have 2 nvidia.com/gpu, at least 2 parts of GPUs ({SOURCE}), but it has 1 nvidia",
            id="whole GPUs beside parts without a number",
        ),
        pytest.param(
            {
                **shared("differs", sharing(PARTS), gpu=(2, 1)),
                "resources": {
                    "nvidia.com/mig-1g.5gb": {"capacity": 14, "allocatable": 14},
                    "nvidia.com/gpu": {"capacity": 2, "allocatable": 1},
                },
            },
            f"must have 14 nvidia.com/mig-1g.5gb ({SOURCE}), but it has 14 nvidia.com/mig-1g.5gb, "
            "2 nvidia.com/gpu (1 allocatable)",
            id="a whole GPU is unhealthy",
        ),
    ],
)
def test_whole_gpus_beside_parts(counted: dict[str, Any], message: str) -> None:
    (found,) = reconcile("gpu-1", node(), 4, counted, None, asked=["cluster"])["findings"]
    assert found["code"] == "GPU_RESOURCES_DIFFER"
    assert message in found["message"]


def test_whole_gpus_beside_parts_of_a_node_that_is_not_ready() -> None:
    counted = shared("differs", sharing(PARTS), gpu=(2, 2))
    counted["resources"]["nvidia.com/mig-1g.5gb"] = {"capacity": 14, "allocatable": 14}
    counted |= {"ready": False, "readiness": "x"}
    findings = reconcile("gpu-1", node(), 4, counted, None, asked=["cluster"])["findings"]
    assert [found["code"] for found in findings] == ["NODE_NOT_READY"]


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "example.com/h100"])
def test_whole_gpus_that_the_admin_names_are_all_proven(name: str) -> None:
    """They may be fewer than the GPUs, and have another name."""
    wanted = {**sharing({name: 3}, "gpu_expected"), "shared": False}
    amounts_ = {name: {"capacity": 3, "allocatable": 3}}
    plain = (3, 3) if name == "nvidia.com/gpu" else (None, None)
    counted = cluster(*plain, state="ok", wanted=wanted, resources=amounts_)
    ran = smoke(UUIDS[:3], 3, shared=False, allocatable=3)
    assert reconcile("gpu-1", node(), 4, counted, ran)["findings"] == []
    less = smoke(UUIDS[:1], 1, shared=False, allocatable=3)
    codes = [one["code"] for one in reconcile("gpu-1", node(), 4, counted, less)["findings"]]
    assert codes == ["SMOKE_MISSING"]
