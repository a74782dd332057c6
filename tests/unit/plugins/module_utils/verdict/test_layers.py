# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A GPU disappears at one layer, and the verdict names it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.verdict.layers import NAMES, Layer
from ansible_collections.metal.gpu.plugins.module_utils.verdict.losses import explain_losses
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile
from ansible_collections.metal.gpu.tests.unit.support.healthy import (
    Node,
    containerd_node,
    docker_node,
)

DOCKER, CONTAINERD = docker_node(), containerd_node()
CHECKPOINT = {"registered": {}, "holdings": []}


class Scene:
    """An observed node with eight GPUs that all layers have, and the answers about it."""

    def __init__(self, made: Node = DOCKER) -> None:
        self.node: Any = copy.deepcopy(made.observed())
        self.cluster: Any = copy.deepcopy(made.cluster)
        self.smoke: Any = copy.deepcopy(made.smoke)
        self.declared: int | None = len(self.node["pci"])
        self.uuids = [gpu["uuid"] for gpu in self.node["nvml"]["devices"]]
        self.addresses = [gpu["address"] for gpu in self.node["pci"]]
        registered = {"registered": {"nvidia.com/gpu": list(self.uuids)}, "holdings": []}
        self.node["kubelet"]["devices"] = registered
        self.node["cdi"]["devices"] = [f"nvidia.com/gpu={uuid}" for uuid in self.uuids]

    def verdict(self) -> dict[str, Any]:
        found: Any = reconcile("n1", self.node, self.declared, self.cluster, self.smoke)
        return found

    def lose_registration(self, number: int) -> None:
        self.node["kubelet"]["devices"]["registered"]["nvidia.com/gpu"].pop(number)
        self.cluster["allocatable"] -= 1


def of_bus(scene: Scene) -> None:
    address = scene.addresses[2]
    scene.node["pci"] = [gpu for gpu in scene.node["pci"] if gpu["address"] != address]


def of_device_files(scene: Scene) -> None:
    files = scene.node["device_files"]
    files[:] = [file for file in files if file["path"] != "/dev/nvidia2"]
    scene.smoke = None


def of_kernel(scene: Scene) -> None:
    del scene.node["nvml"]["bound"][scene.addresses[2]]
    scene.node["kernel_log"]["uuids"] = {scene.addresses[2]: scene.uuids[2]}
    scene.node["nvml"]["devices"].pop(2)
    scene.smoke["uuids"].remove(scene.uuids[2])


def of_nvml(scene: Scene) -> None:
    scene.node["nvml"]["devices"][2] |= {"error": "[GPU is lost]", "uuid": None}
    scene.smoke["uuids"].remove(scene.uuids[2])


def of_fabric(scene: Scene) -> None:
    states = scene.node["fabric"]["states"]
    states[2] |= {"state": "In Progress", "status": "N/A", "good": False}
    scene.smoke = None


def of_cdi(scene: Scene) -> None:
    scene.node["cdi"]["devices"].pop(2)
    scene.smoke["uuids"].remove(scene.uuids[2])


def of_plugin(scene: Scene) -> None:
    scene.lose_registration(2)
    scene.smoke["uuids"].remove(scene.uuids[2])
    scene.smoke["gpus"] -= 1


def of_pods(scene: Scene) -> None:
    scene.smoke["uuids"].remove(scene.uuids[2])


@pytest.mark.parametrize(
    ("lose", "layer", "line"),
    [
        pytest.param(
            of_bus, "pci", "not on the PCI bus: see NVML_CONTRADICTS", id="pci"
        ),
        pytest.param(
            of_device_files, "device_files",
            "on the PCI bus, but not among the device files: see CUDA_UNAVAILABLE",
            id="device files",
        ),
        pytest.param(
            of_kernel, "kernel",
            "on the PCI bus, but not in the kernel module: see NVML_COUNT_DIFFERS",
            id="kernel",
        ),
        pytest.param(
            of_nvml, "nvml",
            "in the kernel module, but not in nvidia-smi: see GPU_FAULTY",
            id="nvml",
        ),
        pytest.param(
            of_fabric, "fabric",
            "in nvidia-smi, but not in the fabric: see FABRIC_NOT_READY",
            id="fabric",
        ),
        pytest.param(
            of_cdi, "cdi", "in the fabric, but not in the CDI specification", id="cdi"
        ),
        pytest.param(
            of_plugin, "plugin",
            "in the CDI specification, but not registered by the device plugin: see "
            "ALLOCATABLE_DIFFERS",
            id="plugin",
        ),
        pytest.param(
            of_pods, "computed",
            "registered by the device plugin, but not proven by a pod: see SMOKE_MISSING",
            id="computed",
        ),
    ],
)  # fmt: skip
def test_first_layer_that_lacks_a_gpu(lose: Callable[[Scene], None], layer: str, line: str) -> None:
    scene = Scene()
    lose(scene)
    verdict = scene.verdict()
    assert not verdict["ok"]
    lost = {gpu["address"]: gpu["lost_at"] for gpu in verdict["gpus"] if gpu["lost_at"]}
    assert lost == {scene.addresses[2]: layer}
    text = verdict["lost"][-1]
    assert text.startswith(f"GPU {scene.addresses[2]} ({scene.uuids[2]}): {line}"), text


@pytest.mark.parametrize("made", [DOCKER, CONTAINERD], ids=["docker", "containerd"])
def test_a_healthy_node_loses_nothing(made: Node) -> None:
    for scene in (Scene(made), Scene(made)):
        verdict = scene.verdict()
        assert verdict["ok"]
        assert verdict["lost"] == []
        assert [gpu["lost_at"] for gpu in verdict["gpus"]] == [None] * len(scene.uuids)
        assert [gpu["uuid"] for gpu in verdict["gpus"]] == scene.uuids
        assert all(gpu["computed"] for gpu in verdict["gpus"])
        scene.node["kubelet"]["devices"] = None  # an internal file of the kubelet may be absent
        scene.node["cdi"]["devices"] = ["nvidia.com/gpu=all"]


def test_layers_are_in_order_and_say_what_they_have() -> None:
    scene = Scene(CONTAINERD)
    scene.cluster["labels"] = {"nvidia.com/gpu.count": "2"}
    seen = scene.verdict()["seen"]
    assert list(seen) == list(NAMES)
    unknown = [name for name, layer in seen.items() if layer["number"] is None]
    assert unknown == ["fabric"]  # this node has none
    of_numbers = [name for name, layer in seen.items() if layer["gpus"] is None]
    assert of_numbers == ["declared", "fabric", "capacity", "allocatable", "label"]
    assert {layer["number"] for layer in seen.values()} == {2, None}


def test_only_a_number_is_known_of_a_missing_card() -> None:
    scene = Scene(CONTAINERD)
    scene.declared = 3
    verdict = scene.verdict()
    assert verdict["lost"] == ["1 of 3 GPUs: not on the PCI bus: see GPU_COUNT_DIFFERS"]
    assert [gpu["lost_at"] for gpu in verdict["gpus"]] == [None, None]


def test_a_driver_that_is_down_is_one_line() -> None:
    scene = Scene()
    failure = {"code": "driver_not_loaded", "exit_code": 9, "message": "no driver"}
    scene.node["nvml"] |= {"devices": [], "bound": {}, "complete": False, "failure": failure}
    verdict = scene.verdict()
    (line,) = verdict["lost"]
    assert line.startswith("all 8 GPUs: on the PCI bus, but not in the kernel module: see ")
    assert "NVML_UNAVAILABLE" in line


def test_a_program_that_cannot_start_on_the_node_explains_that_none_did_in_a_pod() -> None:
    gpu: Any = {"address": "a", "uuid": "u", "lost_at": "computed", "computed": False, "busy": None}
    found = [{"code": "CUDA_UNAVAILABLE", "severity": "failure", "message": "no /dev/nvidia-uvm"}]
    (line,) = explain_losses([gpu], {name: Layer() for name in NAMES}, found)
    assert line.endswith(": see CUDA_UNAVAILABLE")


def test_a_node_that_the_run_left_out_has_its_reason() -> None:
    scene = Scene()
    of_nvml(scene)
    known = [{"code": "REBOOT_NEEDED", "severity": "stop", "message": "x", "host": "n1"}]
    found = reconcile("n1", scene.node, 8, None, None, known)
    assert found["lost"] == []


def hold(scene: Scene, number: int, pod: str = "u1") -> None:
    """Have a pod hold a GPU, as the kubelet and the API server know it."""
    scene.node["kubelet"]["devices"]["holdings"].append(
        {
            "pod": pod,
            "container": "c",
            "resource": "nvidia.com/gpu",
            "devices": [scene.uuids[number]],
        }
    )
    scene.smoke["uuids"].remove(scene.uuids[number])
    scene.smoke |= {"holders": ["ml/train-0"], "claims": {"u1": "ml/train-0"}, "allocatable": 8}
    scene.smoke["gpus"] -= 1


def test_a_busy_gpu_is_neither_lost_nor_computed() -> None:
    scene = Scene()
    hold(scene, 2)
    verdict = scene.verdict()
    assert verdict["ok"]
    busy = verdict["gpus"][2]
    assert (busy["busy"], busy["computed"], busy["lost_at"]) == ("ml/train-0", None, None)
    assert [gpu["busy"] for gpu in verdict["gpus"]].count(None) == 7
    (found,) = verdict["findings"]
    assert found["code"] == "SMOKE_PARTIAL"
    assert f"{scene.uuids[2]} (ml/train-0)" in found["message"]


def test_a_busy_node_names_each_gpu_with_its_pod() -> None:
    scene = Scene(CONTAINERD)
    hold(scene, 0)
    scene.node["kubelet"]["devices"]["holdings"][0]["devices"] = list(scene.uuids)
    scene.smoke |= {"state": "busy", "gpus": 0, "uuids": [], "message": "all claimed"}
    verdict = scene.verdict()
    assert verdict["ok"]
    assert {gpu["busy"] for gpu in verdict["gpus"]} == {"ml/train-0"}
    assert {gpu["computed"] for gpu in verdict["gpus"]} == {None}
    (found,) = verdict["findings"]
    assert found["code"] == "SMOKE_NOT_RUN"
    assert all(f"{uuid} (ml/train-0)" in found["message"] for uuid in scene.uuids)


def test_of_many_busy_gpus_each_pod_has_a_number() -> None:
    """The UUIDs of eight GPUs on 200 nodes would bury the table. The verdict has them."""
    scene = Scene()
    for number, pod in enumerate(["u1"] * 4 + ["u2"]):
        hold(scene, number, pod)
    scene.smoke["claims"] = {"u1": "ml/train-0", "u2": "ml/train-1"}
    verdict = scene.verdict()
    (found,) = verdict["findings"]
    assert found["code"] == "SMOKE_PARTIAL"
    words = "but not 5 others (ml/train-0: 4, ml/train-1: 1), because"
    assert words in found["message"]
    assert [gpu["busy"] for gpu in verdict["gpus"]].count("ml/train-0") == 4
    scene.smoke |= {"state": "busy", "gpus": 0, "uuids": [], "message": "all claimed"}
    (found,) = scene.verdict()["findings"]
    assert found["message"].endswith("all claimed; ml/train-0: 4, ml/train-1: 1")


def test_of_many_shared_gpus_a_notice_has_the_number() -> None:
    scene = Scene()
    wanted = {"resources": {"nvidia.com/gpu": 80}, "gpus": 8, "source": "time-slicing"}
    wanted |= {"resource": "nvidia.com/gpu", "shared": True, "mps": False}
    amount = {"nvidia.com/gpu": {"capacity": 80, "allocatable": 80}}
    scene.cluster |= {"wanted": wanted, "resources": amount, "capacity": 80, "allocatable": 80}
    scene.smoke |= {"shared": True, "uuids": scene.uuids[:1], "gpus": 1, "allocatable": 80}
    (found,) = scene.verdict()["findings"]
    assert found["code"] == "SMOKE_SHARED"
    assert f"proved {scene.uuids[0]}, but not 7 other GPUs: the GPUs are shared" in found["message"]


def test_a_pod_that_the_kubelet_does_not_know_yet_holds_some_gpu() -> None:
    scene = Scene()
    hold(scene, 2, pod="u2")
    verdict = scene.verdict()
    assert verdict["ok"]
    assert verdict["gpus"][2]["busy"] is None
    (found,) = verdict["findings"]
    assert found["code"] == "SMOKE_PARTIAL"


@pytest.mark.parametrize(
    "kubelet",
    [
        pytest.param(None, id="no checkpoint"),
        pytest.param(CHECKPOINT, id="no pod in the checkpoint"),
        pytest.param(
            {
                "registered": {},
                "holdings": [
                    {
                        "pod": "u2",
                        "container": "c",
                        "resource": "nvidia.com/gpu",
                        "devices": [DOCKER.observed()["nvml"]["devices"][1]["uuid"]],
                    }
                ],
            },
            id="one of two pods",
        ),
    ],
)
def test_gpus_are_not_lost_where_nothing_shows_which_of_them_a_pod_holds(kubelet: Any) -> None:
    scene = Scene()
    for number in (1, 2, 3):
        hold(scene, number)
    scene.smoke |= {"holders": ["ml/a", "ml/b"], "claims": {"u1": "ml/a", "u2": "ml/b"}}
    if kubelet is not None:
        registered = scene.node["kubelet"]["devices"]["registered"]
        kubelet = {**kubelet, "registered": registered}
    scene.node["kubelet"]["devices"] = kubelet
    scene.node["health"]["gpus"][0]["remap_failed"] = True
    verdict = scene.verdict()
    assert not verdict["ok"]  # the first GPU has a fault, which says nothing about the others
    assert verdict["lost"] == []
    assert [gpu["computed"] for gpu in verdict["gpus"]] == [True, None, None, None] + [True] * 4


def test_gpus_are_lost_where_every_pod_is_placed() -> None:
    scene = Scene()
    hold(scene, 1)
    scene.smoke["uuids"].remove(scene.uuids[2])
    verdict = scene.verdict()
    assert [gpu["computed"] for gpu in verdict["gpus"]] == [True, None, False] + [True] * 5
    assert verdict["gpus"][2]["lost_at"] == "computed"


PARTS = [f"MIG-0b9d8c53-2d3a-5f5e-9a3c-7d1f8e6a4b2{number}" for number in range(2)]


def split(scene: Scene) -> None:
    """Have the first GPU be two parts of another resource, as with the MIG strategy mixed."""
    resources = {"nvidia.com/gpu": 7, "nvidia.com/mig-1g.10gb": 2}
    amounts = {name: {"capacity": one, "allocatable": one} for name, one in resources.items()}
    scene.node["kubelet"]["devices"]["registered"] = {
        "nvidia.com/gpu": scene.uuids[1:],
        "nvidia.com/mig-1g.10gb": PARTS,
    }
    scene.cluster |= {"capacity": 7, "allocatable": 7, "resources": amounts}
    scene.cluster["wanted"] = {
        "resources": resources,
        "gpus": 8,
        "source": "the configuration",
        "resource": "nvidia.com/gpu",
        "shared": True,
        "mps": False,
    }
    scene.smoke |= {"shared": True, "gpus": 1, "uuids": [scene.uuids[1]]}


@pytest.mark.parametrize(
    ("names", "number", "lacking"),
    [
        pytest.param(["1", "2", "0:0", "0:1"], 3, 5, id="by index"),
        pytest.param(["gpu1", "gpu2", "mig0:0", "mig0:1"], 3, 5, id="by type and index"),
        pytest.param(["GPU 1", "GPU 2", *PARTS], 4, None, id="by UUID"),
        pytest.param(["1", "GPU 1", "0:0", *PARTS[:1]], 2, 6, id="by both"),
        pytest.param(["1", "GPU 1", "0:0", *PARTS], 3, None, id="by both, one only by UUID"),
        pytest.param(PARTS, None, None, id="only parts"),
    ],
)
def test_a_split_gpu_is_not_lost(names: list[str], number: int | None, lacking: int | None) -> None:
    """The UUID of a part does not say of which GPU it is."""
    scene = Scene()
    split(scene)
    uuids = {f"GPU {number}": uuid for number, uuid in enumerate(scene.uuids)}
    scene.node["cdi"]["devices"] = [f"nvidia.com/gpu={uuids.get(name, name)}" for name in names]
    verdict = scene.verdict()
    assert verdict["seen"]["plugin"] == {"number": 9, "gpus": None}
    assert verdict["seen"]["cdi"]["number"] == number
    lost = [gpu["lost_at"] for gpu in verdict["gpus"]]
    assert lost.count("cdi") == (lacking or 0)
    assert "plugin" not in lost
    assert lost[0] is None


def test_a_finding_that_lists_every_gpu_explains_none() -> None:
    scene = Scene()
    of_plugin(scene)
    scene.declared = 9
    verdict = scene.verdict()
    codes = [one["code"] for one in verdict["findings"]]
    assert "GPU_COUNT_DIFFERS" in codes
    line = verdict["lost"][-1]
    assert line.endswith("not registered by the device plugin: see CAPACITY_DIFFERS"), line


def test_a_gpu_that_a_pod_only_listed_has_not_computed() -> None:
    """Not even if the pod did not list it: the layer "computed" then lacks it all the same."""
    scene = Scene()
    scene.smoke["level"] = "list"
    scene.smoke.pop("results", None)
    of_pods(scene)
    verdict = scene.verdict()
    assert {gpu["computed"] for gpu in verdict["gpus"]} == {None}
    assert [gpu["lost_at"] for gpu in verdict["gpus"]].count("computed") == 1
    assert verdict["level"] == "list"


def test_results_of_single_gpus_count() -> None:
    scene = Scene(CONTAINERD)
    scene.smoke |= {
        "state": "failed",
        "message": "719",
        "results": [
            {"uuid": scene.uuids[0], "ok": True, "error": ""},
            {"uuid": scene.uuids[1], "ok": False, "error": "719"},
        ],
    }
    verdict = scene.verdict()
    assert [gpu["computed"] for gpu in verdict["gpus"]] == [True, False]
    assert [gpu["lost_at"] for gpu in verdict["gpus"]] == [None, "computed"]
