# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    proof_pod,
    smoke_output,
    smoke_pod,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import Request, Template

SCENES = yaml.safe_load(
    (Path(__file__).parents[3] / "fixtures/kubernetes/pods.yml").read_text(encoding="utf-8")
)
GPU = "nvidia.com/gpu"
UUIDS = (
    "GPU-0f5a7b7e-1c9e-4a54-9e0f-3c3c1c6d2f10",
    "GPU-5c1f2a34-7d0b-4a0e-8a55-0e6a9b1f4c21",
)
TEMPLATE = Template(
    run="0a1b2c3d4e5f",
    process="boot/pid:[1] 42 7",
    namespace="default",
    image="registry.example/cuda@sha256:0000",
    resource=GPU,
    runtime_class=None,
    pull_secrets=(),
    tolerations=({"key": GPU, "operator": "Exists", "effect": "NoSchedule"},),
    limit_s=300,
)


def judge(scene, gpus=2, shortage="failed"):
    return smoke_pod.judge({"status": SCENES[scene]}, Request("gpu-1", gpus, shortage), GPU)


@pytest.mark.parametrize(
    "scene", ["new", "creating", "running", "image_throttled", "image_back_off"]
)
def test_judge_leaves_open(scene):
    assert judge(scene).state == ""


@pytest.mark.parametrize(
    ("scene", "phase", "ran", "message"),
    [
        ("tainted", "Pending", False, "Pending: Unschedulable: 0/2 nodes are available: 1 node"),
        ("no_gpus", "Pending", False, "Pending: Unschedulable: 0/2 nodes are available: 1 Insuf"),
        ("no_image", "Pending", False, "Pending: nvidia-smi: ErrImagePull: failed to resolve"),
        ("bad_image_name", "Pending", False, "Pending: nvidia-smi: InvalidImageName: couldn't"),
        ("no_cdi_device", "Pending", False, "Pending: nvidia-smi: CreateContainerError: failed"),
        ("not_admitted", "Failed", False, "Failed: UnexpectedAdmissionError: Pod was rejected"),
        ("too_long", "Failed", False, "Failed: DeadlineExceeded: Pod was active on the node"),
        ("not_started", "Failed", False, "Failed: nvidia-smi: exit code 128: StartError: nvidia"),
        ("mismatch", "Failed", True, "nvidia-smi exited with code 18: Failed to initialize"),
        ("silent", "Succeeded", True, "the pod requested 2 GPUs, but nvidia-smi listed 0"),
        (
            "gpu_lost",
            "Succeeded",
            True,
            "the pod requested 2 GPUs, but nvidia-smi listed 1; it printed",
        ),
        (
            "one_gpu_twice",
            "Succeeded",
            True,
            "the pod requested 2 GPUs, but nvidia-smi listed 1, some",
        ),
    ],
)
def test_judge_fails(scene, phase, ran, message):
    verdict = judge(scene)
    assert (verdict.state, verdict.phase, verdict.ran) == ("failed", phase, ran)
    assert verdict.message.startswith(message)


@pytest.mark.parametrize(
    ("gpus", "state", "message"),
    [
        (2, "ok", ""),
        (1, "failed", "the pod requested 1 GPUs, but nvidia-smi listed 2"),
        (3, "failed", "the pod requested 3 GPUs, but nvidia-smi listed 2"),
    ],
)
def test_judge_counts_the_uuids(gpus, state, message):
    verdict = judge("two_gpus", gpus)
    assert (verdict.state, verdict.message, verdict.uuids) == (state, message, UUIDS)


@pytest.mark.parametrize(
    ("scene", "shortage", "state"),
    [
        ("no_gpus", "wait", ""),
        ("no_gpus", "busy", "busy"),
        ("no_gpus", "failed", "failed"),
        ("tainted", "wait", "failed"),
        ("tainted", "busy", "failed"),
    ],
)
def test_judge_takes_only_a_lack_of_gpus_for_a_shortage(scene, shortage, state):
    assert judge(scene, shortage=shortage).state == state


@pytest.mark.parametrize(
    ("text", "uuids", "rest"),
    [
        pytest.param("", (), (), id="nothing"),
        pytest.param(f"{UUIDS[0]}\r\n{UUIDS[1]}\n\n", UUIDS, (), id="line-ends"),
        pytest.param(
            "MIG-2c1d7a4e-0c5c-5f0a-9b7e-0a5b7d5a3c11\n",
            ("MIG-2c1d7a4e-0c5c-5f0a-9b7e-0a5b7d5a3c11",),
            (),
            id="mig",
        ),
        pytest.param(
            "[GPU is lost]\nNo devices were found\n",
            (),
            ("[GPU is lost]", "No devices were found"),
            id="other-text",
        ),
    ],
)
def test_parse_uuids(text, uuids, rest):
    assert smoke_output.parse_uuids(text) == (uuids, rest)


def test_manifest_asks_for_gpus_by_limits_on_one_node_through_the_scheduler():
    spec = smoke_pod.manifest(TEMPLATE, Request("gpu-1", 2, "failed"))["spec"]
    (container,) = spec["containers"]
    assert container["resources"] == {"limits": {GPU: "2"}}
    assert "nodeName" not in spec
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"][0]["values"] == ["gpu-1"]


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"runtime_class": "nvidia"}, {"runtimeClassName": "nvidia"}, id="runtime"),
        pytest.param(
            {"pull_secrets": ["a", "b"]},
            {"imagePullSecrets": [{"name": "a"}, {"name": "b"}]},
            id="secrets",
        ),
        pytest.param({"limit_s": 10}, {"activeDeadlineSeconds": 70}, id="outlives-its-run"),
        pytest.param(
            {"tolerations": [{"operator": "Exists"}]},
            {"tolerations": [{"operator": "Exists"}]},
            id="tolerations",
        ),
    ],
)
def test_manifest_options(options, changes):
    request = Request("gpu-1", 2, "failed")
    plain = smoke_pod.manifest(TEMPLATE, request)["spec"]
    spec = smoke_pod.manifest(TEMPLATE._replace(**options), request)["spec"]
    assert {key: value for key, value in spec.items() if plain.get(key) != value} == changes


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ('failed to get sandbox runtime: no runtime for "nvidia" is configured', True),
        (r"failed to get sandbox runtime: no runtime for \"nvidia\" is configured", True),
        ('RuntimeHandler "nvidia" not supported', True),
        ("failed to find runtime handler nvidia from runtime list map[crun:0xc0 runc:0xc1]", True),
        # cri-dockerd 0.4.1, core/sandbox_run.go, for a runtime that Docker has just lost.
        (
            'failed to create a sandbox for pod "p": Error response from daemon: unknown or '
            "invalid runtime name: nvidia",
            True,
        ),
        ('failed to setup network for sandbox: plugin type="bridge" failed (add)', False),
        (None, False),
    ],
)
def test_no_runtime(message, answer):
    assert smoke_pod.no_runtime({"message": message}) is answer


def test_leftover_is_what_the_manifest_says():
    pod = smoke_pod.manifest(TEMPLATE, Request("gpu-1", 2, "failed"))
    pod["metadata"]["creationTimestamp"] = "2026-11-20T10:00:00Z"
    assert proof_pod.parse_leftover(pod) == (
        TEMPLATE.run,
        TEMPLATE.process,
        "2026-11-20T10:00:00Z",
        360,
    )
