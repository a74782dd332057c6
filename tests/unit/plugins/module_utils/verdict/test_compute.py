# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What verify concludes from pods that compute, on nodes that are healthy otherwise and not."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_images
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile
from ansible_collections.metal.gpu.tests.unit.support.healthy import (
    Node,
    containerd_node,
    docker_node,
)

IMAGE = cuda_images.IMAGES[0].name
FAILED = "Failed to launch vectorAdd kernel (error code {})!"
WRONG = "Result verification failed at element 4!"
LAUNCH, ECC = "unspecified launch failure", "uncorrectable ECC error encountered"
FABRIC, UNKNOWN, TOO_NEW = (
    "system not yet initialized",
    "unknown error",
    ("CUDA driver version is insufficient for CUDA runtime version"),
)
NO_CODE = "no kernel image is available for execution on the device"
BUSY = "CUDA-capable device(s) is/are busy or unavailable"
NO_DEVICE = "no CUDA-capable device is detected"


@cache
def nodes() -> tuple[Node, Node]:
    return containerd_node(), docker_node()


@pytest.fixture(params=[0, 1], ids=["two P100", "eight H100"])
def healthy(request: pytest.FixtureRequest) -> Node:
    return nodes()[request.param].copy()


def computed(
    node: Node, errors: dict[int, str], exchange: dict[str, str] | None = None, **more: Any
) -> Node:
    """Return the node with the answer of a pod on whose GPUs these errors were."""
    assert node.smoke
    results = [
        {"uuid": uuid, "ok": number not in errors, "error": errors.get(number, "")}
        for number, uuid in enumerate(node.smoke["uuids"])
    ]
    failed = bool(errors) or (exchange or {}).get("state") == "failed"
    row = {
        "state": "failed" if failed else "ok",
        "reason": "",
        "message": "; ".join(errors.values()),
        "level": "compute" if exchange is None else "exchange",
        "results": results,
        "exchange": exchange,
        "image": IMAGE,
        **more,
    }
    return node._replace(smoke={**node.smoke, **row})


def judge(node: Node, observed: dict[str, Any] | None = None) -> dict[str, Any]:
    seen = node.observed() if observed is None else observed
    return dict(reconcile("gpu-1", seen, node.declared, node.cluster, node.smoke))


def codes(verdict: dict[str, Any]) -> list[str]:
    return [one["code"] for one in verdict["findings"]]


def test_gpus_that_compute_are_proven(healthy: Node) -> None:
    verdict = judge(computed(healthy, {}))
    assert (verdict["ok"], codes(verdict)) == (True, [])
    assert verdict["layers"]["smoke"] == f"{healthy.declared}/{healthy.declared}"


@pytest.mark.parametrize(
    ("words", "code", "said", "advice"),
    [
        (FAILED.format(LAUNCH), "COMPUTE_FAILED", "(CUDA error 719)", "dmesg"),
        (FAILED.format(ECC), "COMPUTE_FAILED", "(CUDA error 214)", "field diagnostic"),
        (FAILED.format(FABRIC), "COMPUTE_FAILED", "(CUDA error 802)", "abric"),
        (FAILED.format(UNKNOWN), "COMPUTE_FAILED", "(CUDA error 999)", "CDI specifications"),
        (FAILED.format(BUSY), "COMPUTE_FAILED", "(CUDA error 46)", "dmesg"),
        (FAILED.format(TOO_NEW), "COMPUTE_FAILED", "(CUDA error 35)", "ldconfig -p"),
        ("the program exited with code 139", "COMPUTE_FAILED", "cause: not known", "by hand"),
        (WRONG, "COMPUTE_WRONG", WRONG, "replace the GPU"),
        (FAILED.format(NO_CODE), "COMPUTE_IMAGE_UNFIT", IMAGE, "verify_compute_image"),
    ],
)
def test_only_the_gpu_that_fails_is_named(
    healthy: Node, words: str, code: str, said: str, advice: str
) -> None:
    assert healthy.smoke
    verdict = judge(computed(healthy, {1: words}))
    assert codes(verdict) == [code]
    (found,) = verdict["findings"]
    assert said in found["message"]
    assert advice in found["remedy"]
    if code != "COMPUTE_IMAGE_UNFIT":  # which is not about a GPU
        (gpu,) = (one for one in healthy.observed()["nvml"]["devices"] if one["index"] == 1)
        assert f"GPU 1 ({gpu['pci_address']}, {gpu['uuid']})" in found["message"]
        assert healthy.smoke["uuids"][0] not in found["message"]
    assert verdict["layers"]["smoke"] == f"{healthy.smoke['gpus'] - 1}/{healthy.smoke['gpus']}"


def test_gpus_with_the_same_error_are_one_finding(healthy: Node) -> None:
    verdict = judge(computed(healthy, {0: FAILED.format(LAUNCH), 1: FAILED.format(LAUNCH)}))
    assert codes(verdict) == ["COMPUTE_FAILED"]
    assert "GPU 0 (" in verdict["findings"][0]["message"]
    assert ", GPU 1 (" in verdict["findings"][0]["message"]


def test_what_a_finding_about_the_node_explains_is_not_blamed_on_gpus(healthy: Node) -> None:
    errors = dict.fromkeys(range(healthy.declared or 0), FAILED.format(UNKNOWN))
    observed = healthy.observed()
    observed["kernel"]["modules"].remove("nvidia_uvm")
    assert codes(judge(computed(healthy, errors), observed)) == ["CUDA_UNAVAILABLE"]
    # It does not explain another error.
    found = codes(judge(computed(healthy, {1: FAILED.format(ECC)}), observed))
    assert found == ["CUDA_UNAVAILABLE", "COMPUTE_FAILED"]


def test_a_fabric_that_is_not_ready_explains_802() -> None:
    node = nodes()[1].copy()
    errors = dict.fromkeys(range(8), FAILED.format(FABRIC))
    observed = node.observed()
    observed["fabric"]["manager"] |= {"active": False, "state": "inactive"}
    observed["fabric"]["process"] = False
    assert codes(judge(computed(node, errors), observed)) == ["FABRIC_MANAGER_STOPPED"]


@pytest.mark.parametrize(
    ("image", "code"),
    [
        (IMAGE, "COMPUTE_FAILED"),
        (f"mirror.example/a/{IMAGE.rpartition('/')[2]}@sha256:0000", "COMPUTE_FAILED"),
        ("example/cuda13", "COMPUTE_IMAGE_UNFIT"),
    ],
)
def test_35_with_an_image_that_fits_the_driver_is_no_libcuda(
    healthy: Node, image: str, code: str
) -> None:
    errors = dict.fromkeys(range(healthy.declared or 0), FAILED.format(TOO_NEW))
    (found,) = judge(computed(healthy, errors, image=image))["findings"]
    assert found["code"] == code
    assert "got no libcuda.so.1" in found["message"]
    assert ("too old" in found["message"]) is (code == "COMPUTE_IMAGE_UNFIT")
    if code == "COMPUTE_FAILED":
        assert "NVIDIA_DRIVER_CAPABILITIES" in found["remedy"]
        assert "verify_level" not in found["remedy"]


def test_35_with_a_driver_that_is_too_old_is_the_image(healthy: Node) -> None:
    observed = healthy.observed()
    observed["nvml"]["driver_version"] = "470.256.02"
    found = judge(computed(healthy, {1: FAILED.format(TOO_NEW)}), observed)
    assert "COMPUTE_IMAGE_UNFIT" in codes(found)


def test_999_is_not_the_module_that_the_node_has_loaded(healthy: Node) -> None:
    (found,) = judge(computed(healthy, {1: FAILED.format(UNKNOWN)}))["findings"]
    assert "the pod lacks /dev/nvidia-uvm" in found["message"]
    assert "not loaded" not in found["message"]
    assert "nvidia-modprobe" not in found["remedy"]


@pytest.mark.parametrize(
    ("modes", "words", "refuted"),
    [
        ({}, "the GPU is lost", "process"),
        ({"mig": None}, "the GPU is lost", "process"),
        ({"compute_mode": "Exclusive_Process"}, "is Exclusive_Process", "MIG"),
        (
            {"mig": "Enabled", "mig_pending": "Enabled", "mig_instances": None},
            "MIG mode is on",
            "process",
        ),
        ({"compute_mode": None}, "MIG mode is on and there is no MIG instance, or", "Default"),
    ],
)
def test_46_names_only_what_the_modes_do_not_refute(
    healthy: Node, modes: dict[str, str | None], words: str, refuted: str
) -> None:
    observed = healthy.observed()
    uuid = next(one["uuid"] for one in observed["nvml"]["devices"] if one["index"] == 1)
    (gpu,) = (one for one in observed["health"]["gpus"] if one["uuid"] == uuid)
    gpu.update(modes)
    findings = judge(computed(healthy, {1: FAILED.format(BUSY)}), observed)["findings"]
    (found,) = (one for one in findings if one["code"] == "COMPUTE_FAILED")
    assert words in found["message"]
    assert refuted not in found["message"].partition("likely cause: ")[2]


@pytest.mark.parametrize("words", [BUSY, NO_DEVICE])
def test_split_gpu_that_a_pod_got_as_a_whole(healthy: Node, words: str) -> None:
    """The device plugin has no strategy for MIG, or has not started since the GPU was split."""
    observed = healthy.observed()
    uuid = next(one["uuid"] for one in observed["nvml"]["devices"] if one["index"] == 1)
    (gpu,) = (one for one in observed["health"]["gpus"] if one["uuid"] == uuid)
    gpu.update(SPLIT)
    findings = judge(computed(healthy, {1: FAILED.format(words)}), observed)["findings"]
    (found,) = (one for one in findings if one["code"] == "COMPUTE_FAILED")
    assert "the pod got the GPU instead of a MIG instance" in found["message"]
    assert "as nvidia.com/mig-PROFILE, with `--mig-strategy=mixed`" in found["remedy"]
    assert "single" not in found["remedy"]  # it takes the GPUs of nodes with whole ones, too
    assert "device files" not in found["message"]


@pytest.mark.parametrize("words", [BUSY, NO_DEVICE])
def test_split_gpu_that_a_container_of_docker_got_as_a_whole(healthy: Node, words: str) -> None:
    observed = healthy.observed()
    for gpu in observed["health"]["gpus"]:
        gpu.update(SPLIT)
    node = computed(healthy, {1: FAILED.format(words)}, without_pod=True)
    findings = judge(node, observed)["findings"]
    (found,) = (one for one in findings if one["code"] == "COMPUTE_FAILED")
    assert "the container got the GPU instead of a MIG instance" in found["message"]
    assert "with verify_docker_command, each container asks for a whole GPU" in found["message"]
    assert "--gpus device=MIG-UUID" in found["remedy"]
    for word in ("pod", "plugin", "restart Docker"):
        assert word not in f"{found['message']} {found['remedy']}"


PART = {"index": 0, "gpu_instance": 7, "compute_instance": 0, "files": []}
SPLIT = {"mig": "Enabled", "mig_pending": "Enabled", "mig_instances": [PART]}
EXCLUSIVE = {"compute_mode": "Exclusive_Process"}


@pytest.mark.parametrize(
    ("words", "first", "second", "causes"),
    [
        pytest.param(
            BUSY, EXCLUSIVE, SPLIT, (["is Exclusive_Process"], ["MIG splits"]), id="46, two causes"
        ),
        pytest.param(BUSY, {}, SPLIT, (["GPU is lost"], ["MIG splits"]), id="46, one lost"),
        pytest.param(
            BUSY, EXCLUSIVE, {}, (["is Exclusive_Process"], ["GPU is lost"]), id="46, two modes"
        ),
        pytest.param(
            BUSY, {}, {**SPLIT, **EXCLUSIVE},
            (["GPU is lost"], ["MIG splits", "is Exclusive_Process"]), id="46, both in one",
        ),
        pytest.param(
            NO_DEVICE, EXCLUSIVE, SPLIT, (["no device files"], ["MIG splits"]), id="100"
        ),
    ],
)  # fmt: skip
def test_each_gpu_has_the_cause_that_it_shows(
    healthy: Node,
    words: str,
    first: dict[str, Any],
    second: dict[str, Any],
    causes: tuple[list[str], list[str]],
) -> None:
    """They are of one run, and have the same words."""
    observed = healthy.observed()
    uuids = {one["index"]: one["uuid"] for one in observed["nvml"]["devices"]}
    gpus = {one["uuid"]: one for one in observed["health"]["gpus"]}
    gpus[uuids[0]].update(first)
    gpus[uuids[1]].update(second)
    errors = dict.fromkeys((0, 1), FAILED.format(words))
    findings = judge(computed(healthy, errors), observed)["findings"]
    found = [one["message"] for one in findings if one["code"] == "COMPUTE_FAILED"]
    known = {cause for group in causes for cause in group}
    for number, (message, group) in enumerate(zip(found, causes, strict=True)):
        assert (uuids[0] in message, uuids[1] in message) == (number == 0, number == 1)
        assert {cause for cause in known if cause in message} == {*group}


def test_802_is_not_a_fabric_manager_that_runs() -> None:
    (found,) = judge(computed(nodes()[1].copy(), {1: FAILED.format(FABRIC)}))["findings"]
    assert "Fabric Manager runs and the GPUs report Completed" in found["message"]
    assert "journalctl -u nvidia-fabricmanager" in found["remedy"]


def test_802_without_nvswitches_is_not_their_fabric() -> None:
    (found,) = judge(computed(nodes()[0].copy(), {1: FAILED.format(FABRIC)}))["findings"]
    assert "the node has no NVSwitches" in found["message"]


@pytest.mark.parametrize(
    ("values", "words", "code"),
    [
        ({"compute_mode": "Prohibited"}, BUSY, "COMPUTE_PROHIBITED"),
        ({"mig": "Enabled", "mig_pending": "Enabled", "mig_instances": []}, BUSY, "MIG_EMPTY"),
        ({"uncorrected": 2}, ECC, "GPU_UNRELIABLE"),
    ],
)
def test_what_a_gpu_reports_of_itself_explains_its_error(
    healthy: Node, values: dict[str, Any], words: str, code: str
) -> None:
    observed = healthy.observed()
    uuid = next(one["uuid"] for one in observed["nvml"]["devices"] if one["index"] == 1)
    (gpu,) = (one for one in observed["health"]["gpus"] if one["uuid"] == uuid)
    gpu.update(values)
    assert codes(judge(computed(healthy, {1: FAILED.format(words)}), observed)) == [code]
    found = codes(judge(computed(healthy, {0: FAILED.format(words)}), observed))
    assert found == [code, "COMPUTE_FAILED"]


def test_a_gpu_that_the_device_plugin_names_is_not_accused_twice(healthy: Node) -> None:
    node = computed(healthy, {1: FAILED.format(LAUNCH)})
    assert node.smoke
    assert node.cluster
    error = f"XidCriticalError: Xid=79 on Device={node.smoke['uuids'][1]}, marking it unhealthy"
    evidence = {"pod": "a/b", "namespace": "a", "name": "b", "error": error}
    cause = {"code": "GPU_UNHEALTHY", "evidence": evidence}
    fewer = (healthy.declared or 0) - 1
    node = node._replace(cluster={**node.cluster, "allocatable": fewer, "cause": cause})
    assert codes(judge(node)) == ["GPU_UNHEALTHY"]


def test_a_gpu_that_another_finding_names_is_not_accused_twice(healthy: Node) -> None:
    observed = healthy.observed()
    observed["nvml"]["devices"][1]["error"] = "[GPU requires reset]"
    assert codes(judge(computed(healthy, {1: FAILED.format(LAUNCH)}), observed)) == ["GPU_FAULTY"]
    found = codes(judge(computed(healthy, {0: FAILED.format(LAUNCH)}), observed))
    assert found == ["GPU_FAULTY", "COMPUTE_FAILED"]


@pytest.mark.parametrize(
    ("image", "failed", "code"),
    [
        pytest.param("example/cuda13", (0, 1), "COMPUTE_IMAGE_UNFIT", id="too new for Pascal"),
        pytest.param("example/cuda13", (1,), "COMPUTE_FAILED", id="one GPU only"),
        pytest.param(IMAGE, (0, 1), "COMPUTE_FAILED", id="CUDA 12 supports it"),
    ],
)
def test_46_on_old_gpus_may_be_the_image(image: str, failed: tuple[int, ...], code: str) -> None:
    node = computed(nodes()[0].copy(), dict.fromkeys(failed, FAILED.format(BUSY)), image=image)
    assert codes(judge(node)) == [code]


def test_exchange(healthy: Node) -> None:
    for state, expected in (
        ("ok", []),
        ("nothing", ["EXCHANGE_UNPROVEN"]),
        ("not_run", ["EXCHANGE_UNPROVEN"]),
        ("failed", ["EXCHANGE_FAILED"]),
    ):
        verdict = judge(computed(healthy, {}, {"state": state, "message": "why"}))
        assert codes(verdict) == expected
        assert verdict["ok"] is (state != "failed")


def test_a_gpu_without_access_to_others_fails_a_node_with_nvswitches() -> None:
    """On other nodes, GPUs of different CPUs have none."""
    exchange = {"state": "partial", "message": "GPU 1 of the pod has no access", "alone": [1]}
    without, switched = nodes()
    verdict = judge(computed(without.copy(), {}, exchange))
    assert (verdict["ok"], codes(verdict)) == (True, ["EXCHANGE_UNPROVEN"])
    verdict = judge(computed(switched.copy(), {}, exchange))
    assert (verdict["ok"], codes(verdict)) == (False, ["EXCHANGE_FAILED"])
    assert "GPU 1 of the pod has no access" in verdict["findings"][0]["message"]


def test_partitions_and_cards_beside_the_switches_may_have_no_access_to_others() -> None:
    exchange = {"state": "partial", "message": "GPU 1 of the pod has no access", "alone": [1]}
    node = computed(nodes()[1].copy(), {}, exchange)
    partitioned, mixed = node.observed(), node.observed()
    partitioned["fabric"]["mode"] = 1
    mixed["pci"][7]["device"] = "2236"
    assert codes(judge(node, partitioned)) == ["EXCHANGE_UNPROVEN"]
    assert "EXCHANGE_FAILED" not in codes(judge(node, mixed))


def test_pairs_without_access_to_each_other_are_normal_without_nvswitches() -> None:
    exchange = {"state": "partial", "message": "0 and 2 have no access", "alone": []}
    assert codes(judge(computed(nodes()[0].copy(), {}, exchange))) == []
    assert codes(judge(computed(nodes()[1].copy(), {}, exchange))) == ["EXCHANGE_UNPROVEN"]


@pytest.mark.parametrize(
    ("words", "more", "code"),
    [
        ("out of memory", {}, "SMOKE_NOT_RUN"),
        (BUSY, {"mode": "Exclusive_Process"}, "SMOKE_NOT_RUN"),
        (BUSY, {}, "COMPUTE_FAILED"),
        ("MPS server is not ready to accept new MPS client requests", {}, "SMOKE_NOT_RUN"),
        ("out of memory", {"holders": []}, "COMPUTE_FAILED"),
        ("out of memory", {"shared": False}, "COMPUTE_FAILED"),
        (ECC, {}, "COMPUTE_FAILED"),
    ],
)
def test_a_share_of_a_gpu_in_use_may_have_no_room(
    words: str, more: dict[str, Any], code: str
) -> None:
    node = computed(nodes()[0].copy(), {0: FAILED.format(words)})
    assert node.smoke
    share = {"gpus": 1, "shared": True, "holders": ["ml/training"]}
    share |= {"uuids": node.smoke["uuids"][:1], "results": node.smoke["results"][:1], **more}
    observed = node.observed()
    observed["health"]["gpus"][0]["compute_mode"] = share.pop("mode", "Default")
    verdict = judge(node._replace(smoke={**node.smoke, **share}), observed)
    (found,) = (one for one in verdict["findings"] if one["code"] != "COMPUTE_EXCLUSIVE")
    assert found["code"] == code
    assert verdict["ok"] is (code == "SMOKE_NOT_RUN")
    assert ("ml/training" in found["message"]) is verdict["ok"]


def test_no_exchange_is_expected_of_gpus_that_do_not_compute(healthy: Node) -> None:
    verdict = judge(computed(healthy, {1: WRONG}, {"state": "not_run", "message": ""}))
    assert codes(verdict) == ["COMPUTE_WRONG"]


def test_a_program_that_computed_on_fewer_gpus_than_offered_proves_too_little(
    healthy: Node,
) -> None:
    node = computed(healthy, {})
    assert node.smoke
    node.smoke["results"] = node.smoke["results"][:-1]
    assert codes(judge(node)) == ["SMOKE_MISSING"]


def test_a_gpu_that_the_pod_did_not_list_is_no_detail(healthy: Node) -> None:
    node = computed(healthy, {1: WRONG})
    assert node.smoke
    node.smoke.update(
        uuids=node.smoke["uuids"][1:],
        results=node.smoke["results"][1:],
        message="the pod requested more GPUs",
    )
    assert codes(judge(node)) == ["COMPUTE_WRONG", "SMOKE_FAILED"]


def test_a_node_that_no_known_image_fits_says_what_it_has(healthy: Node) -> None:
    cause = {"code": "COMPUTE_IMAGE_UNKNOWN", "evidence": {}}
    node = computed(healthy, {}, state="failed", uuids=[], results=[], cause=cause)
    verdict = judge(node)
    assert codes(verdict) == ["COMPUTE_IMAGE_UNKNOWN"]
    observed = healthy.observed()["nvml"]["driver_version"]
    assert f"driver {observed} " in verdict["findings"][0]["message"]
    assert ("Pascal" if healthy.declared == 2 else "Hopper") in verdict["findings"][0]["message"]
