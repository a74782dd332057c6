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

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    kube_collections,
    kube_settings,
    kube_transport,
    smoke_causes,
    smoke_evidence,
    smoke_pod,
    smoke_run,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe import process_identity
from ansible_collections.metal.gpu.plugins.modules import gpu_smoke_pod
from ansible_collections.metal.gpu.tests.unit.support import module_args
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

SCENES = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures/kubernetes/pods.yml").read_text(encoding="utf-8")
)
REFUSALS = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures/kubernetes/refusals.yml").read_text(encoding="utf-8")
)
GPU = "nvidia.com/gpu"
IMAGE = "registry.example/cuda:13"
RUN = "metal.gpu/smoke-run"


@pytest.fixture
def cluster(api):
    """Two nodes with four GPUs each, whose kubelets do nothing yet."""
    for name in ("gpu-1", "gpu-2"):
        api.put("nodes", node(name))
    return api


def node(name, gpus=4, ready="True", **spec):
    amounts = {GPU: str(gpus)}
    conditions = [{"type": "Ready", "status": ready, "reason": "NodeStatusUnknown"}]
    status = {"capacity": {GPU: "4"}, "allocatable": amounts, "conditions": conditions}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


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
    """Return the result of a pod on a healthy node: as many UUIDs as its limits request."""
    gpus = int(pod["spec"]["containers"][0]["resources"]["limits"][GPU])
    uuids = "".join(f"GPU-{wanted_node(pod)}-{number}\n" for number in range(gpus))
    return {
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": "nvidia-smi", "state": {"terminated": {"exitCode": 0, "message": uuids}}}
        ],
    }


def behave(cluster, **scenes):
    """Set the states of pods as soon as they are watched; by node, healthy by default."""
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
    assert len(cluster.made("try", "pods")) == 2
    made = [(made.verb, made.resource) for made in cluster.requests if made.verb != "try"]
    assert made == [
        ("list", "pods"),  # leftovers
        ("list", "nodes"),
        ("list", "nodes"),
        ("create", "selfsubjectaccessreviews"),  # may it delete what it creates?
        ("create", "selfsubjectaccessreviews"),
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
            "message": "other pods claim all 4 nvidia.com/gpu: team/c, team/d",
        }.items()
    )
    assert len(cluster.made("create", "pods")) == 1


def test_lack_of_gpus(cluster, smoke):
    behave(cluster, gpu_1="no_gpus")
    cluster.when_watched["events"] = lambda: cluster.put(
        "events", event(cluster.names("pods")[0], "FailedScheduling", "0/2 nodes are available")
    )
    row = smoke(["gpu-1"], 4)["nodes"]["gpu-1"]
    assert (row["state"], row["allocatable"]) == ("failed", 4)
    assert "Insufficient nvidia.com/gpu" in row["message"]
    assert row["events"] == ["FailedScheduling: 0/2 nodes are available"]
    assert cluster.names("pods") == []


@pytest.fixture
def short(cluster, smoke, monkeypatch):
    """Prove the free GPUs of a node whose scheduler finds fewer, as things happen at each watch."""
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.1)
    monkeypatch.setattr(smoke_run, "_ROUND_S", 0)
    cluster.longest_watch_s = 0

    def run(*happenings):
        left = list(happenings)
        behave(cluster, gpu_1="no_gpus")
        queue = cluster.when_watched["pods"]

        def step():
            if left:
                left.pop(0)()
                cluster.when_watched["pods"] = step
            queue()

        cluster.when_watched["pods"] = step
        return smoke(["gpu-1"], "free", report_only=True)["nodes"]["gpu-1"]

    return run


def test_gpus_that_others_take_in_between_are_busy(cluster, short):
    cluster.put("pods", busy_pod("a", "gpu-1", 1))
    row = short(lambda: cluster.put("pods", busy_pod("b", "gpu-1", 1)))
    assert (row["state"], row["gpus"], row["allocatable"]) == ("busy", 3, 4)
    assert row["holders"] == ["team/a", "team/b"]
    assert "Insufficient nvidia.com/gpu" in row["message"]
    assert row["message"].endswith("; claimed by team/a, team/b")
    assert cluster.names("pods") == ["a", "b"]


def test_a_gpu_that_dies_in_between_is_not_busy(cluster, short):
    row = short(lambda: cluster.put("nodes", node("gpu-1", gpus=3)))
    assert (row["state"], row["holders"]) == ("failed", [])
    assert row["cause"] == {
        "code": "GPUS_NOT_ALLOCATABLE",
        "evidence": {"resource": GPU, "asked": 4, "found": 3},
    }


def test_a_gpu_that_dies_in_between_is_not_busy_beside_others_either(cluster, short):
    cluster.put("pods", busy_pod("a", "gpu-1", 1))
    row = short(lambda: cluster.put("nodes", node("gpu-1", gpus=3)))
    assert (row["state"], row["gpus"]) == ("failed", 3)
    assert row["cause"]["code"] == "ALLOCATABLE_DIFFERS"
    assert (row["cause"]["evidence"]["expected"], row["cause"]["evidence"]["found"]) == (4, 3)


def test_a_lack_of_gpus_that_nothing_explains_is_not_busy(short):
    row = short()
    assert (row["state"], row["holders"], row["cause"]) == ("failed", [], None)
    assert row["message"].startswith("pods claim 0 of 4 nvidia.com/gpu, but: Pending: ")
    assert "Insufficient nvidia.com/gpu" in row["message"]


def test_a_claim_that_shows_a_moment_later_is_busy(cluster, short):
    """The scheduler counts a pod before the API server shows where it is."""

    def take():
        cluster.put("pods", busy_pod("b", "gpu-1", 4))

    def look():
        cluster.when_listed["pods"] = take

    row = short(lambda: cluster.when_listed.update(pods=look))
    assert (row["state"], row["holders"]) == ("busy", ["team/b"])


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


@pytest.fixture
def rounds(cluster, monkeypatch):
    """Return a function that lets the pod of gpu-1 come to one state after the other."""
    monkeypatch.setattr(smoke_run, "_ROUND_S", 0)
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.05)
    cluster.longest_watch_s = 0

    def begin(*scenes, last=None):
        created, statuses = [], [SCENES[scene] for scene in scenes]
        cluster.when_created = created.append

        def act():
            for pod in created:
                bound = {**pod["spec"], "nodeName": "gpu-1"}
                if statuses:
                    status, cluster.when_watched["pods"] = statuses.pop(0), act
                else:
                    status = last or output(pod)
                cluster.put("pods", {**pod, "spec": bound, "status": status})

        cluster.when_watched["pods"] = act

    return begin


def test_an_image_that_comes_at_the_second_attempt_is_no_failure(smoke, rounds):
    rounds("image_throttled", "image_back_off", "creating")
    node = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert (node["state"], node["reason"]) == ("ok", "")


@pytest.mark.parametrize("scene", ["image_throttled", "image_back_off"])
def test_an_image_that_never_comes_is_named_when_the_time_is_up(cluster, smoke, rounds, scene):
    rounds("image_throttled", last=SCENES[scene])
    queue = cluster.when_watched["pods"]

    def complain():
        queue()
        for pod in cluster.names("pods"):
            words = 'Failed to pull image "registry.example/cuda:13": pull QPS exceeded'
            cluster.put("events", event(pod, "Failed", words, second=1))
            cluster.put("events", event(pod, "Failed2", "Error: ImagePullBackOff", second=2))

    cluster.when_watched["pods"] = complain
    node = smoke(["gpu-1"], 2, wait_timeout=1)["nodes"]["gpu-1"]
    assert node["state"] == "failed"
    assert node["message"].startswith("the pod did not finish within 1 s: Pending: nvidia-smi: ")
    assert node["cause"]["code"] == "SMOKE_IMAGE_UNAVAILABLE"
    assert node["cause"]["evidence"]["error"].count("pull QPS exceeded") == 1


def test_a_kubelet_that_dies_while_it_pulls_is_named_instead_of_the_image(cluster, smoke, rounds):
    rounds("image_throttled", last=SCENES["image_back_off"])
    queue = cluster.when_watched["pods"]

    def die():
        queue()
        cluster.put("nodes", node("gpu-1", ready="Unknown"))

    cluster.when_watched["pods"] = die
    found = smoke(["gpu-1"], 2, wait_timeout=30)["nodes"]["gpu-1"]
    assert (found["state"], found["cause"]["code"]) == ("failed", "NODE_NOT_READY")
    assert found["seconds"] < 20


def test_a_plugin_that_does_not_answer_is_not_waited_for(cluster, smoke, monkeypatch):
    monkeypatch.setattr(smoke_run, "_ROUND_S", 0)
    monkeypatch.setattr(smoke_causes, "UNTOUCHED_S", 0)
    cluster.longest_watch_s = 0
    bound = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    cluster.when_created = lambda pod: cluster.put("pods", {**pod, "status": bound})
    found = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert (found["state"], found["cause"]["code"]) == ("failed", "DEVICE_PLUGIN_HANGS")
    assert found["seconds"] < 20


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
        ("mismatch", "nvidia-smi exited with code 18: Failed to initialize NVML"),
        (
            "gpu_lost",
            "the pod requested 2 GPUs, but nvidia-smi listed 1; it printed: [GPU is lost]",
        ),
    ],
)
def test_nvidia_smi_fails(cluster, smoke, scene, message):
    behave(cluster, gpu_1=scene)
    node = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert node["state"] == "failed"
    assert node["message"].startswith(message)
    assert cluster.made("list", "events") == []


@pytest.mark.parametrize(
    ("scene", "cause"),
    [
        ("runtime_class", "RUNTIME_CLASS_MISSING"),
        ("quota", "POD_OVER_QUOTA"),
        ("limit_range", "POD_OVER_QUOTA"),
        ("policy", "POD_REJECTED"),
        ("webhook_denies", "POD_REJECTED"),
        ("webhook_down", "POD_REJECTED"),
        ("namespace", "NAMESPACE_MISSING"),
    ],
)
def test_the_server_refuses_a_pod(cluster, smoke, scene, cause):
    code, text = REFUSALS[scene]["code"], REFUSALS[scene]["message"]
    cluster.refusals["create", "pods"] = Refusal(code, text)
    result = smoke(["gpu-1"], 2, runtime_class="nvidia")
    assert f"gpu-1: the API server rejected the pod: {text}" in result["msg"]
    row = result["nodes"]["gpu-1"]
    assert (row["pod"], row["cause"]["code"]) == ("", cause)


def test_no_permission_to_create_pods(cluster, smoke):
    text = 'pods is forbidden: User "eve" cannot create resource "pods" in API group ""'
    cluster.refusals["create", "pods"] = Refusal(403, text)
    result = smoke(["gpu-1"], 2)
    assert result["msg"].startswith(
        f"The API server {cluster.url} denied the request to create pods (403)"
    )
    assert "nodes" not in result


def test_no_permission_to_read_events(cluster, smoke):
    behave(cluster, gpu_1="no_image")
    cluster.refusals["list", "events"] = Refusal(403, "events is forbidden")
    row = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert row["events"] == []
    (note,) = row["notes"]
    assert note.startswith("the events could not be read: The API server ")
    assert note.endswith("or use other credentials (from the module's options).")
    assert row["cause"]["code"] == "SMOKE_IMAGE_UNAVAILABLE"


def test_missing_node(cluster, smoke):
    behave(cluster)
    result = smoke(["gpu-9", "gpu-1"], 2)
    assert (
        result["nodes"]["gpu-9"].items()
        >= {
            "state": "failed",
            "message": "the cluster has no node of this name",
        }.items()
    )
    assert result["nodes"]["gpu-1"]["state"] == "ok"


def test_another_client_deletes_the_pod(cluster, smoke):
    def drain(pod):
        cluster.take("pods", pod["metadata"]["name"], "default")
        cluster.put("events", event(pod["metadata"]["name"], "Evicted", "by a drain"))

    cluster.when_created = drain
    node = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert (node["state"], node["message"]) == ("failed", "another client deleted the pod")
    assert node["events"] == ["Evicted: by a drain"]


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Failed"])
def test_a_pod_of_higher_priority_takes_the_gpus(cluster, smoke, phase):
    """That is no fault of the node. Without a phase, the pod is gone before anybody saw why."""

    def preempt(pod):
        why = "default-scheduler: preempting to accommodate a higher priority pod"
        row = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        if phase:
            status = {"phase": phase, "conditions": [{**row, "message": why}]}
            cluster.put("pods", {**pod, "status": status})
            return
        cluster.take("pods", pod["metadata"]["name"], "default")
        words = "Preempted by pod 3b0c on node gpu-1"
        cluster.put("events", event(pod["metadata"]["name"], "Preempted", words, "Normal"))

    cluster.when_created = preempt
    result = smoke(["gpu-1"], 2)
    row = result["nodes"]["gpu-1"]
    assert "failed" not in result
    assert (row["state"], row["cause"]) == ("busy", None)
    assert ("higher priority" in row["message"]) or ("Preempted by pod" in row["message"])


@pytest.mark.parametrize(
    ("policies", "options", "words"),
    [
        ({"metal-gpu-proof": None}, {}, "no PriorityClass with name metal-gpu-proof was found"),
        ({}, {"priority_class": "absent"}, "no PriorityClass with name absent was found"),
        (
            {"urgent": "PreemptLowerPriority"},
            {"priority_class": "urgent"},
            "the PriorityClass urgent has the preemptionPolicy PreemptLowerPriority, not Never",
        ),
        # A class of ours by name only, or a webhook that sets another one.
        (
            {"metal-gpu-proof": "PreemptLowerPriority"},
            {},
            "metal-gpu-proof has the preemptionPolicy",
        ),
    ],
)
def test_no_pod_is_created_for_which_others_could_be_deleted(
    cluster, smoke, policies, options, words
):
    cluster.policies |= policies
    cluster.policies = {name: one for name, one in cluster.policies.items() if one}
    row = smoke(["gpu-1"], 2, **options)["nodes"]["gpu-1"]
    assert cluster.made("create", "pods") == []
    assert (row["state"], row["pod"], row["cause"]["code"]) == (
        "failed",
        "",
        "PRIORITY_CLASS_UNFIT",
    )
    assert words in row["cause"]["evidence"]["error"]


def test_an_admins_class_that_never_preempts_is_taken(cluster, smoke):
    behave(cluster)
    cluster.policies["mild"] = "Never"
    assert smoke(["gpu-1"], 2, priority_class="mild")["nodes"]["gpu-1"]["state"] == "ok"


def test_time_is_up(cluster, monkeypatch):
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.0)
    options = {**dict.fromkeys(kube_settings.AUTH_ARGUMENTS), "host": cluster.url}
    client = kube_settings.connect({**options, "api_key": cluster.token})
    template = smoke_pod.Template("run", "", "default", IMAGE, GPU, None, (), (), limit_s=300)
    behave(cluster, gpu_1="running")
    cluster.put("events", event("other", "Failed", "of a pod that is not ours"))
    queue, now = cluster.when_watched["pods"], [0.0]
    cluster.when_watched["pods"] = lambda: (now.append(301.0), queue())
    result = gpu_smoke_pod.run(
        client,
        {"gpu-1": 2},
        template,
        wait_for_gpus=False,
        check_mode=False,
        clock=lambda: now[-1],
    )
    node = result["nodes"]["gpu-1"]
    assert (node["state"], node["seconds"], node["events"]) == ("failed", 301.0, [])
    assert node["message"].startswith(
        "the pod did not finish within 300 s: Pending: nvidia-smi: Container"
    )
    assert cluster.names("pods") == []


def test_pods_of_a_dead_node_are_deleted_by_force(cluster, smoke, monkeypatch):
    monkeypatch.setattr(smoke_run, "_CLEANUP_S", 0.5)
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.05)
    behave(cluster, gpu_1="no_cdi_device")
    cluster.kubelets_answer = False
    smoke(["gpu-1"], 2)
    assert cluster.names("pods") == []
    graces = [
        made.body.get("gracePeriodSeconds") for made in cluster.made("deletecollection", "pods")
    ]
    assert graces == [None, 0]


def test_pods_go_by_their_names_where_a_collection_cannot_be_deleted(cluster, smoke):
    behave(cluster)
    cluster.refusals["deletecollection", "pods"] = Refusal(403, "no")
    result = smoke(["gpu-1"], 2)
    assert "failed" not in result
    assert result["left_behind"] == []
    assert cluster.names("pods") == []


def test_pods_that_cannot_be_deleted_are_named_and_change_no_verdict(cluster, smoke):
    behave(cluster, gpu_2="mismatch")
    for verb in ("deletecollection", "delete"):
        cluster.refusals[verb, "pods"] = Refusal(403, "no")
    result = smoke(["gpu-1", "gpu-2"], 2)
    rows = result["nodes"]
    assert [row["state"] for row in rows.values()] == ["ok", "failed"]
    assert result["left_behind"] == sorted(cluster.names("pods"))
    assert [row["pod"] for row in rows.values()] == result["left_behind"]
    assert "denied the request to delete pods (403): no" in rows["gpu-1"]["left_behind"]
    assert f"pod {rows['gpu-2']['pod']} may still exist: " in result["msg"]


def test_leftovers_that_cannot_be_deleted_are_named_and_stop_nothing(cluster, smoke, ended):
    behave(cluster)
    cluster.put("pods", leftover("crashed", ended))
    for verb in ("deletecollection", "delete"):
        cluster.refusals[verb, "pods"] = Refusal(403, "no", times=1)
    result = smoke(["gpu-1"], 1)
    assert result["nodes"]["gpu-1"]["state"] == "ok"
    assert (result["changed"], result["swept"]) == (False, [])
    assert result["left_behind"] == ["crashed"]


def test_pods_are_deleted_when_the_watch_fails(cluster, smoke):
    cluster.refusals["watch", "pods"] = Refusal(403, "pods is forbidden")
    assert "denied the request to watch pods" in smoke(["gpu-1"], 2)["msg"]
    assert cluster.names("pods") == []


def test_pods_that_are_left_when_the_watch_fails_are_told_too(cluster, smoke):
    for verb in ("watch", "deletecollection", "delete"):
        cluster.refusals[verb, "pods"] = Refusal(403, f"no {verb}")
    message = smoke(["gpu-1"], 2)["msg"]
    assert "denied the request to watch pods" in message
    assert f"kubectl --namespace default delete pods --selector {RUN}=" in message


@pytest.mark.parametrize(
    ("code", "retry_after"), [(429, "0"), (503, ""), (504, "")], ids=["busy", "away", "gateway"]
)
def test_a_busy_server_does_not_fail_a_node(cluster, smoke, code, retry_after):
    behave(cluster)
    cluster.refusals["create", "pods"] = Refusal(code, "wait", times=1, retry_after=retry_after)
    result = smoke(["gpu-1", "gpu-2"], 2)
    assert [row["state"] for row in result["nodes"].values()] == ["ok", "ok"]


def test_an_answer_that_got_lost_makes_no_second_pod(cluster, smoke):
    behave(cluster)
    cluster.lost["create", "pods"] = 1
    result = smoke(["gpu-1", "gpu-2"], 2)
    assert [row["state"] for row in result["nodes"].values()] == ["ok", "ok"]
    names = {made.body["metadata"]["name"] for made in cluster.made("create", "pods")}
    assert len(names) == 2


QUOTA_CHANGED = (
    'Operation cannot be fulfilled on resourcequotas "gpus": the object has been modified; please '
    "apply your changes to the latest version and try again"
)


def test_a_conflict_with_a_quota_is_no_pod_of_ours(cluster, smoke):
    """As many pods at once meet: kubernetes/kubernetes issue 67761."""
    behave(cluster)
    cluster.refusals["create", "pods"] = Refusal(409, QUOTA_CHANGED, times=2, reason="Conflict")
    result = smoke(["gpu-1", "gpu-2"], 2)
    assert [row["state"] for row in result["nodes"].values()] == ["ok", "ok"]


def test_a_conflict_that_stays_leaves_the_result_unknown(cluster, smoke, monkeypatch):
    monkeypatch.setattr(kube_transport, "_PATIENCE_S", 0.0)
    cluster.refusals["create", "pods"] = Refusal(409, QUOTA_CHANGED, reason="Conflict")
    row = smoke(["gpu-1"], 2, wait_timeout=1)["nodes"]["gpu-1"]
    assert row["state"] == "unknown"
    assert "(409): Operation cannot be fulfilled on resourcequotas" in row["message"]


def test_a_server_that_stays_busy_leaves_the_result_unknown(cluster, smoke, monkeypatch):
    monkeypatch.setattr(kube_transport, "_PATIENCE_S", 0.0)
    cluster.refusals["create", "pods"] = Refusal(429, "too many requests", retry_after="0")
    row = smoke(["gpu-1"], 2, wait_timeout=1)["nodes"]["gpu-1"]
    assert row["state"] == "unknown"
    assert "(429): too many requests (tried " in row["message"]


def test_a_server_that_falls_silent_keeps_what_was_proven(cluster, smoke, monkeypatch):
    """The other nodes become unknown, and the message has the time limit."""
    monkeypatch.setattr(smoke_run, "_CLEANUP_S", 0.1)
    monkeypatch.setattr(kube_collections, "_STALLED_S", 0.0)
    behave(cluster, gpu_2="creating")
    queue = cluster.when_watched["pods"]

    def fall_silent():
        queue()
        # Not before: a busy machine answers late.
        monkeypatch.setattr(kube_transport, "_READ_S", 0.1)
        monkeypatch.setattr(kube_transport, "_PATIENCE_S", 0.2)
        for kind in (("watch", "pods"), ("list", "pods"), ("deletecollection", "pods")):
            cluster.stalls[kind] = 999
        cluster.cut_watches()

    cluster.when_watched["pods"] = fall_silent
    result = smoke(["gpu-1", "gpu-2"], 2, wait_timeout=1)
    one, two = result["nodes"].values()
    assert (one["state"], len(one["uuids"])) == ("ok", 2)
    assert two["state"] == "unknown"
    assert "is unreachable: no answer within 1 s" in two["message"]
    assert one["left_behind"] != ""


@pytest.mark.parametrize("body", [b"\n", b"<html>\n", b"{}\n"])
def test_an_odd_answer_does_not_change_results(cluster, smoke, body):
    behave(cluster, gpu_2="creating")
    queue = cluster.when_watched["pods"]

    def turn():
        queue()
        cluster.odd["watch", "pods"] = body
        cluster.cut_watches()

    cluster.when_watched["pods"] = turn
    result = smoke(["gpu-1", "gpu-2"], 2, report_only=True)
    assert [row["state"] for row in result["nodes"].values()] == ["ok", "unknown"]
    assert "did not answer" in result["nodes"]["gpu-2"]["message"]


def test_reports_an_odd_answer(cluster, smoke):
    cluster.odd["list", "nodes"] = b'{"items": null}'
    result = smoke(["gpu-1"], 2, report_only=True)
    assert "did not answer" in result["error"]


def test_an_expired_token_does_not_change_results(cluster, smoke):
    behave(cluster, gpu_2="creating")
    queue = cluster.when_watched["pods"]

    def expire():
        queue()
        cluster.refusals["watch", "pods"] = Refusal(401, "Unauthorized")
        cluster.cut_watches()

    cluster.when_watched["pods"] = expire
    one, two = smoke(["gpu-1", "gpu-2"], 2)["nodes"].values()
    assert (one["state"], two["state"]) == ("ok", "unknown")
    assert "does not accept these credentials" in two["message"]


@pytest.mark.parametrize("kind", [("list", "events"), ("list", "nodes"), ("watch", "events")])
def test_unreadable_evidence_does_not_change_the_verdict(cluster, smoke, monkeypatch, kind):
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.1)
    behave(cluster, gpu_1="no_image")
    queue = cluster.when_watched["pods"]

    def break_down():
        queue()
        cluster.refusals[kind] = Refusal(403, "broken")

    cluster.when_watched["pods"] = break_down
    result = smoke(["gpu-1", "gpu-2"], 2)
    one, two = result["nodes"].values()
    assert (one["state"], two["state"]) == ("failed", "ok")
    assert one["cause"]["code"] == "SMOKE_IMAGE_UNAVAILABLE"
    assert any("could not be read" in note for note in one["notes"])


def lease(name, renewed):
    spec = {"renewTime": renewed, "leaseDurationSeconds": 40}
    return {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}


SLOW = "2026-01-01T00:00:00.000000Z"  # on the clock of a node that runs months behind


@pytest.fixture
def clocked(cluster, monkeypatch):
    """Prove a node whose pod does not start, on a clock that goes on with each watch."""
    monkeypatch.setattr(smoke_run, "_ROUND_S", 0)
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.1)
    cluster.longest_watch_s = 0

    def run(steps):
        """At each step, time goes on by so many seconds before the cluster does something."""
        options = {**dict.fromkeys(kube_settings.AUTH_ARGUMENTS), "host": cluster.url}
        client = kube_settings.connect({**options, "api_key": cluster.token})
        template = smoke_pod.Template("run", "", "default", IMAGE, GPU, None, (), (), limit_s=300)
        behave(cluster, gpu_1="creating")
        queue, now, left = cluster.when_watched["pods"], [0.0], list(steps)

        def step():
            queue()
            seconds, act = left.pop(0) if left else (300.0, lambda: None)
            now.append(now[-1] + seconds)
            act()
            cluster.when_watched["pods"] = step

        cluster.when_watched["pods"] = step
        flags = {"wait_for_gpus": False, "check_mode": False, "clock": lambda: now[-1]}
        result = gpu_smoke_pod.run(client, {"gpu-1": 2}, template, **flags)
        return result["nodes"]["gpu-1"]

    return run


def renew(cluster, renewed):
    return lambda: [cluster.put("leases", lease(name, renewed)) for name in ("gpu-1", "gpu-3")]


def test_a_kubelet_that_dies_meanwhile_is_named(cluster, clocked):
    """And not the image, and not at the end of the time only."""
    row = clocked([(10.0, renew(cluster, SLOW)), (30.0, lambda: None), (11.0, lambda: None)])
    assert (row["state"], row["cause"]["code"]) == ("failed", "KUBELET_SILENT")
    text = "the kubelet has not renewed its Lease for 41 s, but the Lease lasts 40 s"
    assert row["message"] == text
    assert row["seconds"] == 51.0


def test_a_node_with_a_slow_clock_is_not_silent(cluster, clocked):
    """Its kubelet renews the Lease with times that are long past for everybody else."""
    steps = [
        (seconds, renew(cluster, f"2026-01-01T00:0{minute}:00.000000Z"))
        for minute, seconds in enumerate([10.0, 39.0, 39.0, 39.0, 300.0])
    ]
    row = clocked(steps)
    assert row["message"].startswith("the pod did not finish within 300 s")
    assert row["cause"] is None


def test_a_kubelet_that_is_known_to_be_dead_is_named(cluster, clocked):
    dead = node("gpu-1", ready="Unknown")
    row = clocked([(10.0, lambda: cluster.put("nodes", dead))])
    assert (row["state"], row["cause"]["code"]) == ("failed", "NODE_NOT_READY")
    assert "NodeStatusUnknown" in row["message"]
    assert row["seconds"] == 10.0


def test_unreadable_leases_are_a_note(cluster, smoke, monkeypatch):
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.1)
    behave(cluster, gpu_1="not_started")
    cluster.refusals["list", "leases"] = Refusal(403, "no leases")
    row = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]
    assert any("no leases" in note for note in row["notes"])


def test_no_allocatable_gpu_is_a_failure_and_not_busy(cluster, smoke):
    cluster.put("nodes", node("gpu-1", gpus=0))
    row = smoke(["gpu-1"], "free")["nodes"]["gpu-1"]
    assert (row["state"], row["gpus"]) == ("failed", 0)
    assert row["message"] == "the node has no allocatable nvidia.com/gpu"
    assert row["cause"]["code"] == "GPUS_NOT_ALLOCATABLE"


def test_the_taint_that_is_not_tolerated_is_named(cluster, smoke, monkeypatch):
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.1)
    taint = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    cluster.put("nodes", node("gpu-1", taints=[taint]))
    behave(cluster, gpu_1="tainted")
    cause = smoke(["gpu-1"], 2)["nodes"]["gpu-1"]["cause"]
    assert cause["code"] == "NODE_TAINTED"
    assert cause["evidence"]["taint"] == "dedicated=ml:NoSchedule"


@pytest.mark.parametrize(
    ("names", "lists"), [(["gpu-1", "gpu-2"], 2), ([f"gpu-{n}" for n in range(1, 40)], 1)]
)
def test_a_few_nodes_are_asked_for_one_by_one(cluster, smoke, names, lists):
    smoke(names, "free", check=True)
    assert len(cluster.made("list", "nodes")) == lists


def test_only_pods_of_these_nodes_are_listed(cluster, smoke):
    behave(cluster)
    smoke(["gpu-1", "gpu-2"], "free")
    for made in cluster.made("list", "pods"):
        assert "labelSelector" in made.query or "spec.nodeName=gpu-" in made.query["fieldSelector"]


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
def test_a_killed_run(cluster, smoke, number, code, left):
    """Its pods are deleted: by itself if possible, else by the next run, however soon."""
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
        ({"nodes": ["gpu-1"], "gpus": 0}, "gpus must be an integer greater than 0"),
        ({"nodes": ["gpu-1"], "gpus": "all"}, "gpus must be an integer greater than 0 or"),
        ({"nodes": ["gpu-1"], "gpus": 1, "wait_timeout": 0}, "wait_timeout must be greater than 0"),
    ],
)
def test_invalid_options(cluster, smoke, options, message):
    assert smoke(**options)["msg"].startswith(message)
    assert cluster.requests == []


def test_a_pod_on_a_node_with_shared_gpus_asks_for_one_share(cluster, smoke):
    shared = f"{GPU}.shared"
    amounts = {shared: "40", GPU: "0"}
    conditions = [{"type": "Ready", "status": "True"}]
    cluster.put(
        "nodes",
        {
            "metadata": {"name": "gpu-1"},
            "spec": {},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
        },
    )
    limits = {}
    created = []
    cluster.when_created = created.append

    def act():
        for pod in created:
            on = wanted_node(pod)
            limits[on] = pod["spec"]["containers"][0]["resources"]["limits"]
            uuids = "".join(f"GPU-{on}-{number}\n" for number in range(4 if on == "gpu-2" else 1))
            ended = {"terminated": {"exitCode": 0, "message": uuids}}
            status = {
                "phase": "Succeeded",
                "containerStatuses": [{"name": "nvidia-smi", "state": ended}],
            }
            bound = {**pod["spec"], "nodeName": on}
            cluster.put("pods", {**pod, "spec": bound, "status": status})

    cluster.when_watched["pods"] = act
    result = smoke(["gpu-1", "gpu-2"], "free", shared={"gpu-1": shared})
    assert "failed" not in result
    assert limits == {"gpu-1": {shared: "1"}, "gpu-2": {GPU: "4"}}
    row = result["nodes"]["gpu-1"]
    assert (row["state"], row["shared"], row["allocatable"]) == ("ok", True, 40)
    assert result["nodes"]["gpu-2"]["shared"] is False


H100 = "example.com/h100"


@pytest.fixture
def renamed(cluster):
    """gpu-1 has three whole GPUs with a name that another device plugin gives them."""
    amounts = {H100: "3"}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    status |= {"capacity": amounts, "allocatable": amounts}
    cluster.put("nodes", {"metadata": {"name": "gpu-1"}, "spec": {}, "status": status})
    return {"gpu-1": H100}


def test_gpus_with_another_name_that_somebody_took_meanwhile(cluster, smoke, renamed, monkeypatch):
    """They are not missing: the node can allocate them."""
    monkeypatch.setattr(smoke_evidence, "EVENTS_S", 0.1)
    created = []
    cluster.when_created = created.append
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    condition["message"] = f"0/1 nodes are available: 1 Insufficient {H100}."

    def act():
        for pod in created:
            status = {"phase": "Pending", "conditions": [condition]}
            cluster.put("pods", {**pod, "status": status})

    cluster.when_watched["pods"] = act
    row = smoke(["gpu-1"], 3, renamed=renamed)["nodes"]["gpu-1"]
    assert row["state"] == "failed"
    assert row["cause"]["code"] == "NODE_FULL"  # not GPUS_NOT_ALLOCATABLE
    assert row["cause"]["evidence"]["error"] == f"Insufficient {H100}"


def test_a_pod_asks_for_all_gpus_by_the_name_that_they_have(cluster, smoke, renamed):
    created = []
    cluster.when_created = created.append

    def act():
        for pod in created:
            ended = {"terminated": {"exitCode": 0, "message": "GPU-a\nGPU-b\nGPU-c\n"}}
            containers = [{"name": "nvidia-smi", "state": ended}]
            status = {"phase": "Succeeded", "containerStatuses": containers}
            cluster.put("pods", {**pod, "status": status})

    cluster.when_watched["pods"] = act
    row = smoke(["gpu-1"], "free", renamed=renamed)["nodes"]["gpu-1"]
    assert created[0]["spec"]["containers"][0]["resources"]["limits"] == {H100: "3"}
    assert (row["state"], row["shared"], row["allocatable"], row["gpus"]) == ("ok", False, 3, 3)


def test_holders_come_with_the_uid_under_which_the_kubelet_knows_them(cluster, smoke):
    held = busy_pod("train-0", "gpu-1", 4)
    held["metadata"]["uid"] = "u1"
    cluster.put("pods", held)
    row = smoke(["gpu-1"], "free")["nodes"]["gpu-1"]
    assert (row["state"], row["claims"]) == ("busy", {"u1": "team/train-0"})
