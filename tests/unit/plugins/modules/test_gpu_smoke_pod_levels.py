# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""gpu_smoke_pod at the levels compute and exchange, and what its pods get besides GPUs."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import smoke_evidence
from ansible_collections.metal.gpu.plugins.modules import gpu_smoke_pod

GPU = "nvidia.com/gpu"
IMAGE, OTHER, EXCHANGE = "registry.example/vectoradd", "registry.example/old", "registry.example/nv"
ALL_WELL = "GPU-a\nGPU-b\n1 ok\n2 ok\n"
ONE_FAILS = "GPU-a\nGPU-b\n2 1 Failed (error code unspecified launch failure)!\n1 ok\n"
MATRIX = "           0         1\n 0      N/A     24.10\n 1    24.07       N/A\n"


@pytest.fixture
def smoke(api, call, monkeypatch):
    """Prove two GPUs of gpu-1; its pod then has a status."""
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.1)

    def run(status=None, gpus=2, level="compute", **options):
        amounts = {GPU: str(gpus)}
        conditions = [{"type": "Ready", "status": "True"}]
        states = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
        api.put("nodes", {"metadata": {"name": "gpu-1"}, "spec": {}, "status": states})
        created = []
        api.when_created = created.append
        api.when_watched["pods"] = lambda: [
            api.put("pods", {**pod, "status": status or {}}) for pod in created
        ]
        options = {"image": IMAGE, "exchange_image": EXCHANGE, **options}
        return call(gpu_smoke_pod, nodes=["gpu-1"], gpus=gpus, level=level, **options)

    return run


def ended(name, message, code=0, reason="Completed"):
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"name": name, "state": state}


def waiting(name, reason, message=""):
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def computed(message=ALL_WELL, code=0):
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, "containerStatuses": [ended("compute", message, code)]}


def exchanged(message=MATRIX, code=0):
    return {
        "phase": "Failed" if code else "Succeeded",
        "initContainerStatuses": [ended("compute", ALL_WELL)],
        "containerStatuses": [ended("exchange", message, code)],
    }


def made(api):
    (request,) = api.made("create", "pods")
    return request.body["spec"]


def test_each_gpu_has_a_result(api, smoke):
    result = smoke(computed())
    row = result["nodes"]["gpu-1"]
    assert (row["state"], row["level"], row["exchange"], row["image"]) == (
        *("ok", "compute", None),
        IMAGE,
    )
    assert row["uuids"] == ["GPU-a", "GPU-b"]
    assert row["results"] == [{"uuid": uuid, "ok": True, "error": ""} for uuid in row["uuids"]]
    (container,) = made(api)["containers"]
    assert (container["name"], container["image"]) == ("compute", IMAGE)
    assert "initContainers" not in made(api)


def test_no_program_of_cuda_on_nodes_with_mps(api, smoke):
    row = smoke(
        level="exchange", listed=["gpu-1"], exchange_command=["nvbandwidth"], wait_timeout=1
    )
    (container,) = made(api)["containers"]
    assert (container["name"], container["image"]) == ("nvidia-smi", IMAGE)
    found = row["nodes"]["gpu-1"]
    assert (found["level"], found["exchange"]) == ("list", None)


def test_one_gpu_that_does_not_compute_fails_the_node(smoke):
    result = smoke(computed(ONE_FAILS, 1))
    row = result["nodes"]["gpu-1"]
    assert (row["state"], row["cause"]) == ("failed", None)
    assert [one["ok"] for one in row["results"]] == [True, False]
    assert row["message"] == "GPU-b: Failed (error code unspecified launch failure)!"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        pytest.param(
            "GPU-a\n1 ok\n", "the pod requested 2 GPUs, but nvidia-smi listed 1", id="one"
        ),
        pytest.param(
            "GPU-a\nGPU-a\n1 ok\n2 ok\n", "the pod requested 2 GPUs, but nvidia-smi listed 1, some",
            id="twice",
        ),
        pytest.param("GPU-a\nGPU-b\n1 ok\n", "GPU-b: the program gave no result", id="cut"),
    ],
)  # fmt: skip
def test_a_set_that_is_not_complete_is_no_success(smoke, message, words):
    row = smoke(computed(message))["nodes"]["gpu-1"]
    assert row["state"] == "failed"
    assert row["message"].startswith(words)


INFOROM = "WARNING: infoROM is corrupted at gpu 0000:83:00.0"


@pytest.mark.parametrize(
    ("level", "message", "state"),
    [
        ("compute", f"{ALL_WELL}! 14 {INFOROM}\n", "ok"),
        ("compute", f"{ONE_FAILS}! 14 {INFOROM}\n", "failed"),
        ("list", f"GPU-a\nGPU-b\n{INFOROM}\n", "ok"),
        ("list", f"GPU-a\n{INFOROM}\n", "failed"),
        ("list", f"GPU-a\nGPU-b\n{INFOROM}\n[GPU is lost]\n", "failed"),
    ],
)
def test_a_corrupted_inforom_alone_fails_no_gpu(smoke, level, message, state):
    name = "nvidia-smi" if level == "list" else "compute"
    status = {"phase": "Failed", "containerStatuses": [ended(name, message, 14, "Error")]}
    assert smoke(status, level=level)["nodes"]["gpu-1"]["state"] == state


def test_nvbandwidth_that_prints_no_matrix_has_proven_nothing(smoke):
    row = smoke(exchanged("hello\n"), level="exchange")["nodes"]["gpu-1"]
    assert row["message"].endswith("the program printed no matrix: hello")
    row = smoke(exchanged("hello\n"), level="exchange", exchange_command=["other"])
    assert row["nodes"]["gpu-1"]["exchange"]["state"] == "ok"


def test_an_image_without_the_program_is_a_cause(smoke):
    row = smoke(computed("GPU-a\nGPU-b\nno program\n", 1))["nodes"]["gpu-1"]
    assert row["cause"] == {"code": "COMPUTE_PROGRAM_MISSING", "evidence": {"image": IMAGE}}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ('exec: "sh": executable file not found in $PATH', "COMPUTE_PROGRAM_MISSING"),
        ("requirement error: unsatisfied condition: cuda>=12.5", "COMPUTE_IMAGE_UNFIT"),
    ],
)
def test_an_image_that_cannot_start_is_a_cause(smoke, words, code):
    status = {
        "phase": "Failed",
        "containerStatuses": [ended("compute", words, 128, "StartError")],
    }
    cause = smoke(status)["nodes"]["gpu-1"]["cause"]
    assert cause["code"] == code
    assert cause["evidence"]["image"] == IMAGE


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("! 255 Unable to determine it\n", "nvidia-smi exited with code 255: Unable"),
        ("", "the container compute exited with code 1"),
    ],
)
def test_the_exit_code_of_the_script_is_not_that_of_nvidia_smi(smoke, message, text):
    row = smoke(computed(message, 1))["nodes"]["gpu-1"]
    assert row["state"] == "failed"
    assert row["message"].startswith(text)
    assert "!" not in row["message"]


def test_too_little_memory_is_named(smoke):
    status = {
        "phase": "Failed",
        "containerStatuses": [ended("compute", "GPU-a\nGPU-b\n", 137, "OOMKilled")],
    }
    row = smoke(status)["nodes"]["gpu-1"]
    assert (row["state"], row["results"]) == ("failed", [])
    assert "more memory than its limit allows" in row["message"]


def test_exchange_is_in_the_same_pod_after_the_computation(api, smoke):
    row = smoke(exchanged(), level="exchange")["nodes"]["gpu-1"]
    assert (row["state"], row["exchange"]) == ("ok", {"state": "ok", "message": "", "alone": []})
    assert [one["ok"] for one in row["results"]] == [True, True]
    (first,), (second,) = made(api)["initContainers"], made(api)["containers"]
    assert (first["image"], second["image"]) == (IMAGE, EXCHANGE)
    assert second["command"][4:] == ["nvbandwidth", "-t", "device_to_device_memcpy_read_ce"]
    assert first["resources"] == second["resources"] == {"limits": {GPU: "2"}}


def test_exchange_that_fails(smoke):
    words = "[CUDA_ERROR_SYSTEM_NOT_READY] system not yet initialized"
    row = smoke(exchanged(words, 1), level="exchange")["nodes"]["gpu-1"]
    assert row["state"] == "failed"
    assert row["exchange"] == {"state": "failed", "message": words, "alone": []}
    assert [one["ok"] for one in row["results"]] == [True, True]
    assert row["message"] == f"the GPUs do not exchange data: {words}"


def test_exchange_waits_for_the_computation(smoke):
    status = {
        "phase": "Failed",
        "initContainerStatuses": [ended("compute", ONE_FAILS, 1, "Error")],
        "containerStatuses": [waiting("exchange", "PodInitializing")],
    }
    row = smoke(status, level="exchange")["nodes"]["gpu-1"]
    assert (row["state"], row["exchange"]["state"]) == ("failed", "not_run")
    assert [one["ok"] for one in row["results"]] == [True, False]


def test_exchange_without_its_image_keeps_the_computation(smoke):
    status = {
        "phase": "Pending",
        "initContainerStatuses": [ended("compute", ALL_WELL)],
        "containerStatuses": [waiting("exchange", "ErrImagePull", f"{EXCHANGE}: not found")],
    }
    row = smoke(status, level="exchange")["nodes"]["gpu-1"]
    assert (row["state"], row["exchange"]["state"]) == ("failed", "not_run")
    assert [one["ok"] for one in row["results"]] == [True, True]
    assert row["cause"]["code"] == "SMOKE_IMAGE_UNAVAILABLE"
    assert row["cause"]["evidence"]["setting"] == "verify_exchange_image"


def test_one_gpu_has_nobody_to_exchange_data_with(api, smoke):
    row = smoke(computed("GPU-a\n1 ok\n"), gpus=1, level="exchange")["nodes"]["gpu-1"]
    assert row["state"] == "ok"
    assert row["exchange"] == {"state": "nothing", "message": "the pod has one GPU", "alone": []}
    assert "initContainers" not in made(api)


def test_each_node_has_its_image(api, smoke):
    row = smoke(computed(), images={"gpu-1": OTHER, "gpu-9": ""})["nodes"]["gpu-1"]
    assert row["image"] == OTHER
    assert made(api)["containers"][0]["image"] == OTHER


def test_a_node_that_no_image_fits_gets_no_pod(api, smoke):
    row = smoke(images={"gpu-1": ""})["nodes"]["gpu-1"]
    assert (row["state"], row["pod"]) == ("failed", "")
    assert row["cause"] == {"code": "COMPUTE_IMAGE_UNKNOWN", "evidence": {}}
    assert api.made("create", "pods") == []


def test_pods_get_what_a_quota_demands(api, smoke):
    amounts = {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}
    api.policies["low"] = "Never"
    smoke(exchanged(), level="exchange", resources=amounts, priority_class="low")
    assert made(api)["priorityClassName"] == "low"
    for container in (*made(api)["initContainers"], *made(api)["containers"]):
        limits = {"cpu": "2", GPU: "2"}
        assert container["resources"] == {"limits": limits, "requests": {"memory": "1Gi"}}


def test_without_a_permission_to_delete_pods_none_is_made(api, smoke):
    api.denied = {("delete", "pods"), ("deletecollection", "pods")}
    result = smoke(computed())
    assert 'cannot delete resource "pods"' in result["msg"]
    assert api.made("create", "pods") == []


@pytest.mark.parametrize("verb", ["delete", "deletecollection"])
def test_one_permission_to_delete_pods_is_enough(api, smoke, verb):
    api.denied = {(verb, "pods")}
    assert smoke(computed())["nodes"]["gpu-1"]["state"] == "ok"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": ""}, "image is empty, and images does not have gpu-1"),
        ({"level": "exchange", "exchange_image": ""}, "level is exchange, but exchange_image is"),
        ({"level": "exchange", "exchange_command": []}, "level is exchange, but exchange_command"),
        ({"resources": {"limits": {GPU: 1}}}, f"resources.limits has {GPU}, which gpus decides"),
    ],
)
def test_invalid_options(api, smoke, options, message):
    assert smoke(computed(), **options)["msg"].startswith(message)
    assert api.requests == []
