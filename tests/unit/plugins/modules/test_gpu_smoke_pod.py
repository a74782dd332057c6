# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils import (
    kube_settings,
    process_identity,
    smoke_pod,
    smoke_run,
)
from ansible_collections.metal.gpu.plugins.modules import gpu_smoke_pod
from ansible_collections.metal.gpu.tests.unit.support import module_args
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

SCENES = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures/kubernetes/pods.yml").read_text(encoding="utf-8")
)
GPU = "nvidia.com/gpu"
IMAGE = "registry.example/cuda:13"
RUN = "metal.gpu/smoke-run"


@pytest.fixture
def cluster(api):
    """Two nodes with four GPUs each, whose kubelets do nothing yet."""
    for name in ("gpu-1", "gpu-2"):
        status = {"capacity": {GPU: "4"}, "allocatable": {GPU: "4"}}
        api.put("nodes", {"metadata": {"name": name}, "status": status})
    return api


@pytest.fixture
def smoke(cluster, call):
    return lambda nodes, gpus, **options: call(
        gpu_smoke_pod, nodes=nodes, gpus=gpus, image=IMAGE, **options
    )


def wanted_node(pod):
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return term["matchFields"][0]["values"][0]


def output(pod):
    """What a healthy node makes of a pod: as many UUIDs as its limits ask for."""
    gpus = int(pod["spec"]["containers"][0]["resources"]["limits"][GPU])
    uuids = "".join(f"GPU-{wanted_node(pod)}-{number}\n" for number in range(gpus))
    return {
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": "nvidia-smi", "state": {"terminated": {"exitCode": 0, "message": uuids}}}
        ],
    }


def behave(cluster, **scenes):
    """Let pods come to a state as soon as they are watched; by node, healthy by default."""
    created = []
    cluster.when_created = created.append

    def act():
        for pod in created:
            node = wanted_node(pod)
            scene = scenes.get(node.replace("-", "_"))
            for status in (SCENES["creating"], SCENES[scene] if scene else output(pod)):
                bound = {**pod["spec"], "nodeName": node}
                cluster.put("pods", {**pod, "spec": bound, "status": status})

    cluster.when_watched["pods"] = act


def event(pod, reason, message, kind="Warning", second=0):
    return {
        "metadata": {"name": f"{pod}.{reason}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": pod},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-11-20T10:00:{second:02}Z",
    }


def busy_pod(name, node, gpus, phase="Running"):
    containers = [{"name": "train", "resources": {"limits": {GPU: str(gpus)}}}]
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"nodeName": node, "containers": containers},
        "status": {"phase": phase},
    }


def test_all_nodes_at_once_then_nothing_is_left(cluster, smoke):
    behave(cluster)
    result = smoke(["gpu-1", "gpu-2"], 2)
    assert result["changed"] is False
    assert (
        result["nodes"]["gpu-1"].items()
        >= {
            "state": "ok",
            "gpus": 2,
            "uuids": ["GPU-gpu-1-0", "GPU-gpu-1-1"],
            "phase": "Succeeded",
            "message": "",
            "events": [],
        }.items()
    )
    assert len(result["nodes"]["gpu-2"]["uuids"]) == 2
    assert cluster.names("pods") == []
    assert [(made.verb, made.resource) for made in cluster.requests] == [
        ("list", "pods"),  # leftovers
        ("list", "nodes"),
        ("create", "pods"),
        ("create", "pods"),
        ("list", "pods"),
        ("watch", "pods"),
        ("deletecollection", "pods"),
        ("list", "pods"),  # gone
    ]


def test_pods_are_as_ordered(cluster, smoke):
    behave(cluster)
    smoke(
        ["gpu-1"],
        2,
        namespace="tests",
        runtime_class="nvidia",
        image_pull_secrets=["registry"],
        tolerations=[{"operator": "Exists"}],
    )
    (made,) = cluster.made("create", "pods")
    spec = made.body["spec"]
    assert made.body["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "metal.gpu"
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["image"] == IMAGE
    assert spec["containers"][0]["resources"] == {"limits": {GPU: "2"}}


def test_free_gpus(cluster, smoke):
    behave(cluster)
    cluster.put("pods", busy_pod("a", "gpu-1", 1))
    cluster.put("pods", busy_pod("b", "gpu-1", 2, phase="Succeeded"))
    cluster.put("pods", busy_pod("c", "gpu-2", 3))
    cluster.put("pods", busy_pod("d", "gpu-2", 1, phase="Pending"))
    cluster.put("pods", busy_pod("e", "gpu-3", 4))
    result = smoke(["gpu-1", "gpu-2"], "free")
    assert "failed" not in result
    assert result["nodes"]["gpu-1"].items() >= {"state": "ok", "gpus": 3}.items()
    assert result["nodes"]["gpu-1"]["holders"] == ["team/a"]
    assert (
        result["nodes"]["gpu-2"].items()
        >= {
            "state": "busy",
            "gpus": 0,
            "pod": "",
            "message": "other pods have claimed all 4 nvidia.com/gpu: team/c, team/d",
        }.items()
    )
    assert len(cluster.made("create", "pods")) == 1


@pytest.mark.parametrize(
    ("count", "options", "state"),
    [
        pytest.param(4, {}, "failed", id="told-a-number"),
        pytest.param("free", {}, "busy", id="taken-in-between"),
    ],
)
def test_lack_of_gpus(cluster, smoke, count, options, state):
    behave(cluster, gpu_1="no_gpus")
    cluster.when_watched["events"] = lambda: cluster.put(
        "events", event(cluster.names("pods")[0], "FailedScheduling", "0/2 nodes are available")
    )
    node = smoke(["gpu-1"], count, **options)["nodes"]["gpu-1"]
    assert node["state"] == state
    assert "Insufficient nvidia.com/gpu" in node["message"]
    assert node["events"] == (
        ["FailedScheduling: 0/2 nodes are available"] if state == "failed" else []
    )
    assert cluster.names("pods") == []


def test_lack_of_gpus_can_be_waited_for(cluster, smoke):
    behave(cluster, gpu_1="no_gpus")
    queue = cluster.when_watched["pods"]

    def others_finish():
        queue()
        (name,) = cluster.names("pods")
        pod = {**cluster.made("create", "pods")[0].body}
        pod["metadata"] = {**pod["metadata"], "name": name, "namespace": "default"}
        cluster.put("pods", {**pod, "status": output(pod)})

    cluster.when_watched["pods"] = others_finish
    assert smoke(["gpu-1"], 4, wait_for_gpus=True)["nodes"]["gpu-1"]["state"] == "ok"


def test_a_pod_that_can_never_run_does_not_stop_the_others(cluster, smoke):
    behave(cluster, gpu_1="no_image")
    cluster.when_watched["events"] = lambda: [
        cluster.put("events", made)
        for pod in cluster.names("pods")
        for made in (
            event(pod, "Pulling", "Pulling image", "Normal", 2),
            event(pod, "Scheduled", "assigned default/x to gpu-1", "Normal", 1),
            event(pod, "Failed", "Failed to pull image", "Warning", 3),
        )
    ]
    result = smoke(["gpu-1", "gpu-2"], 2)
    assert result["failed"] is True
    assert result["nodes"]["gpu-2"]["state"] == "ok"
    assert result["nodes"]["gpu-1"]["events"] == [
        "Scheduled: assigned default/x to gpu-1",
        "Pulling: Pulling image",
        "Failed: Failed to pull image",
    ]
    assert result["msg"].splitlines() == [
        "1 of 2 nodes failed the smoke test:",
        "gpu-1: Pending: nvidia-smi: ErrImagePull: failed to resolve image: "
        "registry.example/cuda:13: not found; Scheduled: assigned default/x to gpu-1; "
        "Pulling: Pulling image; Failed: Failed to pull image",
    ]
    assert cluster.names("pods") == []


def test_reports_what_failed(cluster, smoke):
    behave(cluster, gpu_1="no_image")
    result = smoke(["gpu-1"], 1, report_only=True)
    assert "failed" not in result
    assert result["error"] == ""
    assert result["nodes"]["gpu-1"]["reason"] == "ErrImagePull"


def test_reports_why_there_is_no_answer(cluster, smoke):
    result = smoke(["gpu-1"], 1, api_key="wrong", report_only=True)
    assert "failed" not in result
    assert result["nodes"] == {}
    assert "401" in result["error"]


def test_a_node_without_the_runtime_is_found_in_events(cluster, smoke, monkeypatch):
    monkeypatch.setattr(smoke_run, "_ROUND_S", 0)
    cluster.longest_watch_s = 0
    behave(cluster, gpu_1="creating")
    queue = cluster.when_watched["pods"]

    def complain():
        queue()
        message = 'failed to get sandbox runtime: no runtime for "nvidia" is configured'
        for pod in cluster.names("pods"):
            cluster.put("events", event(pod, "FailedCreatePodSandBox", message))

    cluster.when_watched["pods"] = complain
    node = smoke(["gpu-1"], 2, runtime_class="nvidia")["nodes"]["gpu-1"]
    assert node["state"] == "failed"
    assert node["message"].endswith('no runtime for "nvidia" is configured')
    assert cluster.names("pods") == []


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ("mismatch", "nvidia-smi ended with exit code 18: Failed to initialize NVML"),
        ("gpu_lost", "asked for 2 GPUs, but nvidia-smi sees 1; it says: [GPU is lost]"),
    ],
)
def test_nvidia_smi_fails(cluster, smoke, scene, message):
    behave(cluster, gpu_1=scene)
    node = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert node["state"] == "failed"
    assert node["message"].startswith(message)
    assert cluster.made("list", "events") == []


def test_the_server_refuses_a_pod(cluster, smoke):
    text = 'pods "x" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
    cluster.refusals["create", "pods"] = Refusal(403, text)
    result = smoke(["gpu-1"], 2, runtime_class="nvidia")
    assert f"gpu-1: the API server refuses the pod: {text}" in result["msg"]
    assert result["nodes"]["gpu-1"]["pod"] == ""


def test_no_permission_to_create_pods(cluster, smoke):
    text = 'pods is forbidden: User "eve" cannot create resource "pods" in API group ""'
    cluster.refusals["create", "pods"] = Refusal(403, text)
    result = smoke(["gpu-1"], 2)
    assert result["msg"].startswith(f"The API server {cluster.url} forbids to create pods (403)")
    assert "nodes" not in result


def test_no_permission_to_read_events(cluster, smoke):
    behave(cluster, gpu_1="no_image")
    cluster.refusals["list", "events"] = Refusal(403, "events is forbidden")
    node = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert node["events"] == ["not readable: events is forbidden"]


def test_missing_node(cluster, smoke):
    behave(cluster)
    result = smoke(["gpu-9", "gpu-1"], 2)
    assert (
        result["nodes"]["gpu-9"].items()
        >= {
            "state": "failed",
            "message": "the cluster has no such node",
        }.items()
    )
    assert result["nodes"]["gpu-1"]["state"] == "ok"


def test_someone_deletes_the_pod(cluster, smoke):
    def drain(pod):
        cluster.take("pods", pod["metadata"]["name"], "default")
        cluster.put("events", event(pod["metadata"]["name"], "Preempted", "by a pod on gpu-1"))

    cluster.when_created = drain
    node = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert (node["state"], node["message"]) == ("failed", "someone else deleted the pod")
    assert node["events"] == ["Preempted: by a pod on gpu-1"]


def test_time_is_up(cluster, monkeypatch):
    monkeypatch.setattr(smoke_run, "_EVENTS_S", 0.0)
    options = {**dict.fromkeys(kube_settings.AUTH_ARGUMENTS), "host": cluster.url}
    client = kube_settings.connect({**options, "api_key": cluster.token})
    template = smoke_pod.Template("run", "", IMAGE, GPU, None, (), (), limit_s=300)
    behave(cluster, gpu_1="running")
    cluster.put("events", event("other", "Failed", "of a pod that is not ours"))
    queue, now = cluster.when_watched["pods"], [0.0]
    cluster.when_watched["pods"] = lambda: (now.append(301.0), queue())
    result = gpu_smoke_pod.run(
        client,
        {"gpu-1": 2},
        template,
        "default",
        wait_for_gpus=False,
        check_mode=False,
        clock=lambda: now[-1],
    )
    node = result["nodes"]["gpu-1"]
    assert (node["state"], node["seconds"], node["events"]) == ("failed", 301.0, [])
    assert node["message"].startswith("no verdict within 300 s: Pending: nvidia-smi: Container")
    assert cluster.names("pods") == []


def test_pods_of_a_dead_node_are_deleted_by_force(cluster, smoke, monkeypatch):
    monkeypatch.setattr(smoke_run, "_CLEANUP_S", 0.05)
    monkeypatch.setattr(smoke_run, "_EVENTS_S", 0.05)
    behave(cluster, gpu_1="no_cdi_device")
    cluster.kubelets_answer = False
    smoke(["gpu-1"], 2)
    assert cluster.names("pods") == []
    graces = [
        made.body.get("gracePeriodSeconds") for made in cluster.made("deletecollection", "pods")
    ]
    assert graces == [None, 0]


def test_pods_that_cannot_be_deleted_are_named(cluster, smoke):
    behave(cluster)
    cluster.refusals["deletecollection", "pods"] = Refusal(403, "no")
    result = smoke(["gpu-1"], 2)
    assert "forbids to deletecollection pods (403): no. Grant the verb" in result["msg"]
    assert f"Pods with the label {RUN}=" in result["msg"]
    assert "may be left in namespace default" in result["msg"]


def test_pods_are_deleted_when_the_watch_fails(cluster, smoke):
    cluster.refusals["watch", "pods"] = Refusal(403, "pods is forbidden")
    assert "forbids to watch pods" in smoke(["gpu-1"], 2)["msg"]
    assert cluster.names("pods") == []


def test_check_mode_creates_nothing(cluster, smoke):
    cluster.put("pods", busy_pod("a", "gpu-2", 1))
    result = smoke(["gpu-1", "gpu-2"], "free", check=True)
    assert {name: (row["state"], row["gpus"]) for name, row in result["nodes"].items()} == {
        "gpu-1": ("planned", 4),
        "gpu-2": ("planned", 3),
    }
    assert {made.verb for made in cluster.requests} == {"list"}


@pytest.fixture
def ended():
    """The identity of a process that lived on this machine."""
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = process_identity.read_identity(process.pid)
        process.kill()
    return identity


def leftover(name, process, created="2026-11-20T10:00:00Z", lifetime_s=360):
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": created,
            "labels": {"app.kubernetes.io/managed-by": "metal.gpu", RUN: f"run-of-{name}"},
            "annotations": {"metal.gpu/smoke-process": process},
        },
        "spec": {"activeDeadlineSeconds": lifetime_s, "containers": []},
    }


def test_leftovers_of_dead_runs_go_and_others_stay(cluster, smoke, ended):
    behave(cluster)
    alive = process_identity.read_identity(os.getpid())
    young = "2099-01-01T00:00:00Z"
    cluster.put("pods", leftover("crashed", ended, young))
    cluster.put("pods", leftover("elsewhere-old", "boot/pid:[1] 42 7"))
    cluster.put("pods", leftover("elsewhere-young", "boot/pid:[1] 42 7", young))
    cluster.put("pods", leftover("parallel", alive, young))
    cluster.put("pods", busy_pod("not-ours", "gpu-2", 1))

    rhythm = [
        # check, swept, in the cluster afterwards
        (True, ["crashed", "elsewhere-old"], 5),
        (False, ["crashed", "elsewhere-old"], 3),
        (True, [], 3),
        (False, [], 3),
    ]
    for check, swept, pods in rhythm:
        behave(cluster)
        result = smoke(["gpu-1"], 1, check=check)
        assert result["swept"] == swept
        assert result["changed"] is bool(swept)
        assert len(cluster.names("pods")) == pods
    assert set(cluster.names("pods")) == {"elsewhere-young", "parallel", "not-ours"}


@pytest.mark.parametrize(
    ("number", "code", "left"),
    [
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, 0, id="interrupted"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, 1, id="crashed"),
    ],
)
def test_a_run_that_is_ended_from_outside(cluster, smoke, number, code, left):
    """Its pods go: by itself where it can, else with the next run, however soon that is."""
    options = {
        "nodes": ["gpu-1"],
        "gpus": 2,
        "image": IMAGE,
        "host": cluster.url,
        "api_key": cluster.token,
    }
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"from {module_args.__name__} import patch_module_args\n"
        "from ansible_collections.metal.gpu.plugins.modules import gpu_smoke_pod\n"
        f"with patch_module_args({options!r}): gpu_smoke_pod.main()"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        cluster.when_watched["pods"] = lambda: process.send_signal(number)
        assert process.wait(timeout=20) == code
    pods = cluster.names("pods")
    assert len(cluster.made("create", "pods")) == 1
    assert len(pods) == left

    behave(cluster)
    assert smoke(["gpu-1"], 2)["swept"] == pods
    assert cluster.names("pods") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": [], "gpus": 1}, "nodes is empty: name at least one node"),
        ({"nodes": ["gpu-1"], "gpus": 0}, "gpus: '0' is neither a number above 0 nor 'free'"),
        ({"nodes": ["gpu-1"], "gpus": "all"}, "gpus: 'all' is neither a number above 0 nor"),
        ({"nodes": ["gpu-1"], "gpus": 1, "wait_timeout": 0}, "wait_timeout has to be above 0"),
    ],
)
def test_invalid_options(cluster, smoke, options, message):
    assert smoke(**options)["msg"].startswith(message)
    assert cluster.requests == []
