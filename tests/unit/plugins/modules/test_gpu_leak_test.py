# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    leak_pods,
    leak_run,
    leak_verdict,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe import process_identity
from ansible_collections.metal.gpu.plugins.modules import gpu_leak_test
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

GPU = "nvidia.com/gpu"
PLAIN, CUDA = "registry.example/busybox:1", "registry.example/cuda:13"
CLEAN = "variable set\nseen 0\n"
UNSET = "variable \nseen 0\n"
FOUND = "device /dev/nvidia0\ndevice /dev/nvidiactl\nmount /usr/lib/libcuda.so.580\nseen 3\n"
LEAKS = {"image_variable", "pod_variable"}


def node(name, capacity, allocatable=None):
    """Return a node; pods that hold its GPUs change neither amount."""

    def texts(amounts):
        return {name: str(amount) for name, amount in amounts.items()}

    given = capacity if allocatable is None else allocatable
    status = {"capacity": texts(capacity), "allocatable": texts(given)}
    return {"metadata": {"name": name}, "status": status}


@pytest.fixture
def cluster(api):
    for name in ("gpu-1", "gpu-2"):
        api.put("nodes", node(name, {GPU: 4}))
    return api


@pytest.fixture
def leak(cluster, call):
    def run(*nodes, fails=False, **options):
        result = call(gpu_leak_test, nodes=nodes, image=PLAIN, cuda_image=CUDA, **options)
        assert result.get("failed", False) is fails
        return result

    return run


def node_of(pod):
    affinity = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return term["matchFields"][0]["values"][0]


def attempt_of(pod):
    name = pod["metadata"]["name"].removeprefix("metal-gpu-leak-").rpartition("-")[0]
    return name.replace("-", "_")


def ended(name, output, code=0):
    return {"name": name, "state": {"terminated": {"exitCode": code, "message": output}}}


def status_of(pod, output):
    """Return the status of a pod whose container under test has written something."""
    attempt = attempt_of(pod)
    kinds = {"init_container": "initContainerStatuses"}
    return {"phase": "Succeeded", kinds.get(attempt, "containerStatuses"): [ended("look", output)]}


def behave(cluster, sees=lambda node, attempt: attempt == "privileged", statuses=()):
    """Run each pod as soon as it is watched: the container sees GPUs if `sees` says so."""
    created = []
    cluster.when_created = created.append
    waiting = []

    done = []

    def act():
        cluster.when_watched["pods"] = act  # the privileged pods come later
        news = [pod for pod in created if pod not in done]
        done.extend(news)
        for pod in news:
            attempt = attempt_of(pod)
            output = FOUND if sees(node_of(pod), attempt) else CLEAN
            if attempt in dict(statuses):
                cluster.put("pods", {**pod, "status": dict(statuses)[attempt]})
            elif attempt == "ephemeral_container":
                waiting.append((pod["metadata"]["name"], output))
                running = {"name": "other", "ready": True, "state": {"running": {}}}
                status = {"phase": "Running", "containerStatuses": [running]}
                cluster.put("pods", {**pod, "status": status})
            else:
                cluster.put("pods", {**pod, "status": status_of(pod, output)})

    def finish():
        for name, output in waiting:
            pod = cluster.objects()["pods", "default", name]
            if pod["spec"].get("ephemeralContainers"):
                more = {"ephemeralContainerStatuses": [ended("look", output)]}
                cluster.put("pods", {**pod, "status": {**pod["status"], **more}})

    cluster.when_watched["pods"] = act
    patch = cluster.patch

    def patched(*words):
        answer = patch(*words)
        finish()
        return answer

    cluster.patch = patched
    return created


def reject(cluster, refusal, *attempts):
    """Run each pod, but let the API server reject those of these attempts."""
    behave(cluster)
    create = cluster.create

    def created(resource, namespace, body, **options):
        if resource == "pods" and attempt_of(body) in attempts:
            raise refusal
        return create(resource, namespace, body, **options)

    cluster.create = created


# The controls are tried whatever the attempts are.
CONTROLLED = {"plain": "nothing", "privileged": "by_design"}


def states(result, node="gpu-1"):
    return {name: row["state"] for name, row in result["nodes"][node]["attempts"].items()}


def test_every_attempt_that_sees_nothing(cluster, leak):
    behave(cluster)
    result = leak("gpu-1", "gpu-2")
    for node in ("gpu-1", "gpu-2"):
        expected = dict.fromkeys(leak_pods.ATTEMPTS, "nothing") | {"privileged": "by_design"}
        assert states(result, node) == expected
        assert result["nodes"][node]["state"] == "ok"
    assert (result["changed"], result["findings"], result["left_behind"]) == (False, [], [])
    assert cluster.names("pods") == []


def test_what_leaks_is_named_with_what_was_seen(cluster, leak):
    behave(
        cluster,
        lambda node, attempt: attempt == "privileged" or (node == "gpu-1" and attempt in LEAKS),
    )
    result = leak("gpu-1", "gpu-2", fails=True)
    assert {name for name, state in states(result).items() if state == "leaked"} == LEAKS
    assert result["nodes"]["gpu-2"]["state"] == "ok"
    (found,) = result["findings"]
    assert (found["code"], found["host"]) == ("GPU_LEAKED", "gpu-1")
    words = "an image with NVIDIA_VISIBLE_DEVICES=all (/dev/nvidia0, /dev/nvidiactl and 1 more)"
    assert words in found["message"]
    assert "device_plugin_guard: enforce" in found["remedy"]
    assert result["summary"][0].startswith("gpu-1: leaked: image_variable, pod_variable; nothing:")
    assert result["summary"][2].startswith("1 of 2 tested nodes gave no pod a GPU")
    assert cluster.names("pods") == []


def test_gpus_in_every_container_are_nothing_that_a_policy_stops(cluster, leak):
    behave(cluster, lambda node, attempt: True)
    (found,) = leak("gpu-1", attempts=["plain"], fails=True)["findings"]
    assert "device_plugin_guard" not in found["remedy"]
    assert "hook" in found["remedy"]


def test_a_pod_that_the_api_server_rejects_is_as_good_as_one_that_sees_nothing(cluster, leak):
    text = "pods is forbidden: ValidatingAdmissionPolicy 'metal-gpu-guard' denied request: no"
    reject(cluster, Refusal(403, text), "pod_variable")
    result = leak("gpu-1", attempts=["pod_variable"])
    assert states(result) == {**CONTROLLED, "pod_variable": "refused"}
    row = result["nodes"]["gpu-1"]["attempts"]["pod_variable"]
    assert (row["state"], row["message"]) == ("refused", text)
    assert result["nodes"]["gpu-1"]["state"] == "ok"


def test_the_privileged_pod_has_a_namespace_of_its_own(cluster, leak):
    pods = behave(cluster)
    leak("gpu-1", "gpu-2", batch=1, attempts=["image_variable"])
    places = {}
    for pod in pods:
        places.setdefault(attempt_of(pod), []).append(pod["metadata"]["namespace"])
    mine = places.pop("privileged")
    assert {*mine}.isdisjoint({"default"})
    assert len({*mine}) == 2
    assert {place for some in places.values() for place in some} == {"default"}
    assert cluster.names("namespaces") == []
    made = cluster.made("create", "namespaces")[0].body["metadata"]
    assert made["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert made["labels"]["app.kubernetes.io/managed-by"] == "metal.gpu"


def test_without_the_permission_for_a_namespace_nothing_privileged_runs(cluster, leak):
    behave(cluster)
    text = 'namespaces is forbidden: User "eve" cannot create resource "namespaces" in API group ""'
    cluster.refusals["create", "namespaces"] = Refusal(403, text)
    result = leak("gpu-1", attempts=["plain"], fails=True)
    assert states(result) == {"plain": "nothing", "privileged": "unproven"}
    assert text in result["findings"][0]["message"]


def test_no_pod_runs_on_another_machine_of_the_same_name(cluster, leak):
    other = node("gpu-1", {GPU: 4})
    other["status"]["nodeInfo"] = {"bootID": "b9", "machineID": "m9"}
    cluster.put("nodes", other)
    ours = {"gpu-1": {"boot_id": "b1", "machine_id": "m1"}}
    result = leak("gpu-1", machines=ours, fails=True)
    assert {*states(result).values()} == {"unproven"}
    assert cluster.made("create", "pods") == []


def test_a_namespace_that_a_killed_run_left_behind(cluster, leak):
    process = subprocess.Popen(["sleep", "60"])
    identity = process_identity.read_identity(process.pid)
    process.kill()
    process.wait()
    for name, mark in (("old", identity), ("of-another-machine", "elsewhere 1 1")):
        labels = {"app.kubernetes.io/managed-by": "metal.gpu", "metal.gpu/smoke-run": name}
        marks = {"metal.gpu/smoke-process": mark}
        cluster.put(
            "namespaces", {"metadata": {"name": name, "labels": labels, "annotations": marks}}
        )
    behave(cluster)
    assert leak("gpu-1", attempts=["plain"])["swept"] == ["old"]
    assert cluster.names("namespaces") == ["of-another-machine"]


def test_no_pod_of_it_displaces_another(cluster, leak):
    cluster.policies["metal-gpu-proof"] = "PreemptLowerPriority"
    (found,) = leak("gpu-1", fails=True)["findings"]
    assert "has the preemptionPolicy PreemptLowerPriority, not Never" in found["message"]
    assert cluster.made("create", "pods") == []


FORBIDDEN = 'pods "metal-gpu-leak-x-1" is forbidden: {}'
POLICY = "ValidatingAdmissionPolicy 'ours' with binding 'ours' denied request: no GPUs"
PASSING = [
    pytest.param(404, 'namespaces "tema-a" not found', id="no namespace"),
    pytest.param(403, FORBIDDEN.format("exceeded quota: q, requested: pods=1"), id="quota"),
    pytest.param(403, FORBIDDEN.format("failed quota: q: must specify cpu"), id="quota of cpu"),
    pytest.param(403, FORBIDDEN.format("it is being terminated"), id="namespace ends"),
    pytest.param(
        403,
        FORBIDDEN.format('error looking up service account a/d: serviceaccount "d" not found'),
        id="no service account",
    ),
    pytest.param(403, FORBIDDEN.format("no PriorityClass with name a was found"), id="no class"),
    pytest.param(422, 'Pod "metal-gpu-leak-x-1" is invalid: spec.containers', id="invalid"),
    pytest.param(
        500,
        'Internal error occurred: failed calling webhook "w": connection refused',
        id="webhook",
    ),
]


@pytest.mark.parametrize(("status", "text"), PASSING)
def test_a_rejection_that_has_nothing_to_do_with_gpus_proves_nothing(cluster, leak, status, text):
    cluster.refusals["create", "pods"] = Refusal(status, text)
    result = leak("gpu-1", attempts=["pod_variable", "volume_mount"], fails=True)
    assert {*states(result).values()} == {"unproven"}
    (found,) = result["findings"]
    reason = text.replace(' "metal-gpu-leak-x-1"', "")
    assert f"pod_variable, plain, volume_mount, privileged: {reason}" in found["message"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        *PASSING,
        pytest.param(403, FORBIDDEN.format('violates PodSecurity "restricted:latest"'), id="pss"),
        pytest.param(422, POLICY, id="policy"),
    ],
)
def test_nothing_is_proven_where_every_pod_is_rejected(cluster, leak, status, text):
    cluster.refusals["create", "pods"] = Refusal(status, text)
    result = leak("gpu-1", fails=True)
    assert {*states(result).values()} == {"unproven"}
    assert result["nodes"]["gpu-1"]["state"] == "unproven"
    assert [one["code"] for one in result["findings"]] == ["LEAK_UNPROVEN"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        pytest.param(422, f'pods "x" is invalid: {POLICY}', id="policy without a reason"),
        pytest.param(400, 'admission webhook "w" denied the request: no GPUs', id="webhook"),
        pytest.param(403, FORBIDDEN.format('violates PodSecurity "baseline:latest"'), id="pss"),
        pytest.param(403, FORBIDDEN.format('pod rejected: RuntimeClass "x" not found'), id="class"),
    ],
)
def test_what_admission_denies_is_refused(cluster, leak, status, text):
    reject(cluster, Refusal(status, text), "volume_mount")
    found = states(leak("gpu-1", attempts=["volume_mount"]))
    assert found == {**CONTROLLED, "volume_mount": "refused"}


def test_an_attempt_alone_is_not_ok_where_nothing_ran(cluster, leak):
    """The controls are not in `attempts`. A policy that rejects every pod is no protection."""
    cluster.refusals["create", "pods"] = Refusal(422, f'pods "x" is invalid: {POLICY}')
    result = leak("gpu-1", attempts=["volume_mount"], fails=True)
    assert result["nodes"]["gpu-1"]["state"] == "unproven"


def test_an_attempt_alone_is_not_ok_where_nobody_could_see_a_gpu(cluster, leak):
    behave(cluster, lambda node, attempt: False)
    result = leak("gpu-1", attempts=["image_variable"], fails=True)
    assert result["nodes"]["gpu-1"]["state"] == "unproven"
    assert "a privileged container sees no GPU either" in result["msg"]


def test_a_permission_that_is_missing_is_no_protection(cluster, leak):
    text = 'pods is forbidden: User "jane" cannot create resource "pods" in API group ""'
    cluster.refusals["create", "pods"] = Refusal(403, text)
    result = leak("gpu-1", fails=True)
    assert "cannot create resource" in result["msg"]
    assert "nodes" not in result


def test_a_permission_for_ephemeral_containers_is_missing(cluster, leak):
    behave(cluster)
    text = 'pods "x" is forbidden: User "jane" cannot patch resource "pods/ephemeralcontainers"'
    cluster.refusals["patch", "pods"] = Refusal(403, text)
    result = leak("gpu-1", attempts=["ephemeral_container"], fails=True)
    assert states(result) == {**CONTROLLED, "ephemeral_container": "unproven"}
    (found,) = result["findings"]
    assert found["code"] == "LEAK_UNPROVEN"
    assert "cannot patch" in found["message"]


def test_an_ephemeral_container_that_is_rejected(cluster, leak):
    behave(cluster)
    cluster.refusals["patch", "pods"] = Refusal(403, "denied request: no GPUs here")
    result = leak("gpu-1", attempts=["ephemeral_container"])
    assert states(result) == {**CONTROLLED, "ephemeral_container": "refused"}


PULL = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "look",
            "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
        }
    ],
}
FULL = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"0/2 nodes are available: 1 Insufficient {GPU}.",
        }
    ],
}


@pytest.mark.parametrize(
    ("attempt", "status", "state"),
    [
        pytest.param("plain", PULL, "unproven", id="no image"),
        pytest.param("second_container", FULL, "busy", id="no free GPU"),
        pytest.param("plain", FULL, "unproven", id="no room"),
        pytest.param(
            "plain",
            {"phase": "Failed", "containerStatuses": [ended("look", "sh: not found", 127)]},
            "unproven",
            id="no shell",
        ),
        pytest.param(
            "plain",
            {"phase": "Failed", "containerStatuses": [ended("look", "device /dev/nvidia0\n", 137)]},
            "unproven",
            id="stopped in the middle",
        ),
        pytest.param(
            "plain",
            {"phase": "Failed", "reason": "Evicted", "message": "low on disk"},
            "unproven",
            id="evicted",
        ),
    ],
)
def test_what_proves_nothing(cluster, leak, attempt, status, state):
    behave(cluster, statuses={attempt: status}.items())
    result = leak("gpu-1", attempts=[attempt], fails=state != "busy")
    assert states(result) == {**CONTROLLED, attempt: state}
    assert result["nodes"]["gpu-1"]["attempts"][attempt]["message"]
    assert result["nodes"]["gpu-1"]["state"] == state
    codes = [one["code"] for one in result["findings"]]
    assert codes == ([] if state == "busy" else ["LEAK_UNPROVEN"])


@pytest.mark.parametrize(
    ("times", "state"), [(1, "nothing"), (2, "unproven")], ids=["once", "twice"]
)
def test_a_container_that_the_engine_could_not_start_gets_a_second_pod(cluster, leak, times, state):
    words = (
        "runc create failed: error setting cgroup config for procHooks process: unable to freeze"
    )
    reason = {"exitCode": 128, "reason": "StartError", "message": words}
    failed = {
        "phase": "Failed",
        "containerStatuses": [{"name": "look", "state": {"terminated": reason}}],
    }
    statuses = [("plain", failed)]
    waiting, plain = behave(cluster, statuses=statuses), []
    act = cluster.when_watched["pods"]

    def create(pod):
        if attempt_of(pod) == "plain":
            plain.append(pod)
            if len(plain) > 1:
                waiting.clear()  # those of the first round are gone
                cluster.when_watched["pods"] = act
            if len(plain) > times:
                statuses.clear()
        waiting.append(pod)

    cluster.when_created = create
    leak("gpu-1", fails=state == "unproven")
    assert len(plain) == 2


def test_where_a_privileged_container_sees_nothing_the_others_prove_nothing(cluster, leak):
    """The driver is not loaded, or the GPU is lost."""
    behave(cluster, lambda node, attempt: node == "gpu-2" and attempt == "privileged")
    result = leak("gpu-1", "gpu-2", fails=True)
    assert {*states(result).values()} == {"unproven"}
    assert result["nodes"]["gpu-2"]["state"] == "ok"
    (found,) = result["findings"]
    assert (found["code"], found["host"]) == ("LEAK_UNPROVEN", "gpu-1")
    assert "a privileged container sees no GPU either" in found["message"]


def test_a_node_that_offers_gpus_only_meanwhile_is_proven(cluster, leak):
    """The device plugin starts again with its engine, and that takes a moment."""
    cluster.put("nodes", node("gpu-1", {}, {}))

    def sees(_node: str, attempt: str) -> bool:
        cluster.put("nodes", node("gpu-1", {GPU: 4}, {GPU: 4}))
        return attempt == "privileged"

    behave(cluster, sees)
    result = leak("gpu-1", attempts=["image_variable"])
    assert result["nodes"]["gpu-1"]["state"] == "ok"


def test_a_leak_is_one_although_the_server_does_not_answer_later(cluster, leak):
    def sees(_node: str, attempt: str) -> bool:
        cluster.refusals["list", "nodes"] = Refusal(403, "nodes is forbidden")
        return attempt in {"privileged", *LEAKS}

    behave(cluster, sees)
    result = leak("gpu-1", fails=True)
    assert [one["code"] for one in result["findings"]] == ["GPU_LEAKED"]


@pytest.mark.parametrize(
    ("capacity", "allocatable", "words"),
    [
        pytest.param({}, {}, f"its capacity of {GPU} is 0, its allocatable 0", id="no plugin"),
        pytest.param({GPU: 0}, {GPU: 0}, f"its capacity of {GPU} is 0", id="no plugin any more"),
        pytest.param({GPU: 4}, {GPU: 0}, f"its capacity of {GPU} is 4", id="plugin just gone"),
    ],
)
def test_a_node_that_offers_no_gpu_proves_nothing(cluster, leak, capacity, allocatable, words):
    """Device files outlive the driver, so a privileged container sees them."""
    cluster.put("nodes", node("gpu-1", capacity, allocatable))
    behave(cluster, statuses={"second_container": FULL}.items())
    result = leak("gpu-1", "gpu-2", attempts=["image_variable", "second_container"], fails=True)
    expected = dict.fromkeys(("image_variable", "plain", "second_container"), "unproven")
    assert states(result) == {**expected, "privileged": "by_design"}
    rows = result["nodes"]
    assert (rows["gpu-1"]["state"], rows["gpu-2"]["state"]) == ("unproven", "busy")
    (found,) = result["findings"]
    assert (found["code"], found["host"]) == ("LEAK_UNPROVEN", "gpu-1")
    assert f"the node offers no GPU: {words}" in found["message"]
    assert found["remedy"].startswith("run `ansible-playbook metal.gpu.site` first")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["ok", "ok"], ["2 of 2 tested nodes gave no pod a GPU that it did not request"]),
        (
            ["ok", "leaked", "unproven", "busy"],
            ["1 of 4 tested nodes gave no pod a GPU that it did not request, 1 busy"],
        ),
        (["planned"], []),
        ([], []),
    ],
    ids=["all", "some", "check mode", "no answer"],
)
def test_last_line_counts_the_nodes_that_passed(found, expected):
    rows = {f"gpu-{number}": {"state": state} for number, state in enumerate(found)}
    assert leak_verdict.tally(rows) == expected


def test_last_line_names_what_is_open_by_design():
    results = {
        "plain": leak_pods.Result("nothing"),
        "runtime_class_mount": leak_pods.Result("by_design"),
    }
    (line,) = leak_verdict.tally({"gpu-1": leak_verdict.row(results)})
    assert line == (
        "1 of 1 tested nodes gave no pod a GPU that it did not request; on 1, pods with a hostPath "
        "get GPUs by design (runtime_class_mount)"
    )


def test_a_leak_is_one_on_a_node_that_offers_no_gpu_too(cluster, leak):
    cluster.put("nodes", node("gpu-1", {GPU: 0}))
    behave(cluster, lambda node, attempt: attempt in {"privileged", *LEAKS})
    result = leak("gpu-1", fails=True)
    assert result["nodes"]["gpu-1"]["state"] == "leaked"
    assert [one["code"] for one in result["findings"]] == ["GPU_LEAKED", "LEAK_UNPROVEN"]


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.10gb", f"{GPU}.shared"])
def test_a_node_whose_gpus_have_other_names_offers_some(cluster, leak, resource):
    cluster.put("nodes", node("gpu-1", {GPU: 0, resource: 4}))
    behave(cluster)
    assert leak("gpu-1", attempts=["image_variable"])["nodes"]["gpu-1"]["state"] == "ok"


@pytest.mark.parametrize(
    ("known", "state"),
    [([], "unproven"), (["example.com/h100"], "ok")],
    ids=["unknown", "named"],
)
def test_a_node_whose_gpus_another_device_plugin_names(cluster, leak, known, state):
    cluster.put("nodes", node("gpu-1", {"example.com/h100": 8}))
    behave(cluster)
    options = {"attempts": ["image_variable"], "other_resources": known}
    result = leak("gpu-1", fails=not known, **options)
    assert result["nodes"]["gpu-1"]["state"] == state


def test_an_image_that_does_not_set_the_variable_asks_for_nothing(cluster, leak):
    unset = {"phase": "Succeeded", "containerStatuses": [ended("look", UNSET)]}
    names = ("image_variable", "runtime_class", "second_container")
    behave(cluster, statuses=dict.fromkeys([*names, "plain"], unset).items())
    result = leak("gpu-1", attempts=[*names, "plain"], fails=True)
    assert states(result) == {**CONTROLLED, **dict.fromkeys(names, "unproven")}
    assert "the image does not set NVIDIA_VISIBLE_DEVICES" in result["msg"]


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ('no runtime for "nvidia" is configured', "unproven"),
        ("failed to find runtime handler nvidia from runtime list map[runc:0xc0]", "unproven"),
        ('RuntimeHandler "nvidia" not supported', "refused"),
    ],
    ids=["containerd", "CRI-O", "cri-dockerd"],
)
def test_a_runtime_class_that_the_engine_does_not_have(cluster, leak, monkeypatch, words, state):
    """Nothing but an event says so. What a missing runtime would have given, nobody has seen."""
    monkeypatch.setattr(leak_run, "_ROUND_S", 0.2)
    created = behave(cluster, statuses={"runtime_class": {"phase": "Pending"}}.items())

    def report(pod):
        created.append(pod)
        if attempt_of(pod) == "runtime_class":
            event = {
                "metadata": {"name": "e", "namespace": "default"},
                "involvedObject": {"kind": "Pod", "name": pod["metadata"]["name"]},
                "reason": "FailedCreatePodSandBox",
                "message": words,
            }
            cluster.put("events", event)

    cluster.when_created = report
    is_proven = state == "refused"
    result = leak("gpu-1", attempts=["runtime_class"], fails=not is_proven)
    assert states(result) == {**CONTROLLED, "runtime_class": state}
    assert result["nodes"]["gpu-1"]["state"] == ("ok" if is_proven else "unproven")
    assert [(one["code"], words in one["message"]) for one in result["findings"]] == (
        [] if is_proven else [("LEAK_UNPROVEN", True)]
    )


def test_time_that_is_up(cluster, leak):
    result = leak("gpu-1", attempts=["plain"], wait_timeout=1, fails=True)
    assert "did not finish within 1 s" in result["msg"]
    assert cluster.names("pods") == []


def test_a_node_that_is_not_there(cluster, leak):
    behave(cluster)
    result = leak("gpu-1", "gone", attempts=["plain"], fails=True)
    assert result["nodes"]["gpu-1"]["state"] == "ok"
    assert "the cluster has no node of this name" in result["msg"]


def test_check_mode_creates_nothing(cluster, leak):
    result = leak("gpu-1", check=True)
    assert {*states(result).values()} == {"planned"}
    assert cluster.made("create", "pods") == []


def test_without_the_permission_to_delete_there_are_no_pods(cluster, leak):
    cluster.denied = {("delete", "pods"), ("deletecollection", "pods")}
    result = leak("gpu-1", fails=True)
    assert "would stay" in result["msg"]
    assert cluster.made("create", "pods") == []


def test_nodes_are_tested_in_batches(cluster, leak):
    seen = []

    pods = []
    cluster.when_created = pods.append

    def act():
        for pod in pods:
            output = FOUND if attempt_of(pod) == "privileged" else CLEAN
            cluster.put("pods", {**pod, "status": status_of(pod, output)})
        seen.append({node_of(pod) for pod in pods})
        pods.clear()
        cluster.when_watched["pods"] = act

    cluster.when_watched["pods"] = act
    result = leak("gpu-1", "gpu-2", attempts=["plain"], batch=1)
    assert seen == [{"gpu-1"}, {"gpu-1"}, {"gpu-2"}, {"gpu-2"}]  # the privileged pods come later
    assert {row["state"] for row in result["nodes"].values()} == {"ok"}


def template(**more):
    given = {
        "run": "r",
        "process": "p",
        "namespace": "default",
        "image": PLAIN,
        "cuda_image": CUDA,
        "resource": GPU,
        "runtime_class": "nvidia",
        "pull_secrets": ["s"],
        "tolerations": [{"operator": "Exists"}],
        "limit_s": 60,
    }
    return leak_pods.Template(**{**given, **more})


@pytest.mark.parametrize("attempt", leak_pods.ATTEMPTS)
def test_only_one_container_requests_a_gpu_and_it_is_not_the_one_under_test(attempt):
    pod = leak_pods.manifest(template(), leak_pods.Try("gpu-1", attempt))
    spec = pod["spec"]
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    asking = [
        (one["name"], *one["resources"]["limits"]) for one in containers if "resources" in one
    ]
    # A resource that no node has is no GPU. Without a nodeName, the pod would stay pending.
    requests = {"second_container": ("other", GPU), "unknown_resource": ("look", f"{GPU}-none")}
    assert asking == ([requests[attempt]] if attempt in requests else [])
    assert (spec.get("nodeName") == "gpu-1") is (attempt == "unknown_resource")
    looking = [one for one in containers if one["name"] == "look"]
    if attempt == "ephemeral_container":
        looking = leak_pods.ephemeral(template())["spec"]["ephemeralContainers"]
    assert len(looking) == 1
    assert "env" not in looking[0] or attempt == "pod_variable"
    has_class = attempt.startswith("runtime_class")
    assert (spec.get("runtimeClassName") == "nvidia") is has_class
    is_privileged = looking[0]["securityContext"].get("privileged", False)
    assert is_privileged is (attempt == "privileged")
    assert node_of(pod) == "gpu-1"


@pytest.mark.parametrize("attempt", leak_pods.ATTEMPTS)
def test_an_attempt_goes_one_way(attempt):
    """Otherwise, what refuses one way would hide the other."""
    pod = leak_pods.manifest(template(), leak_pods.Try("gpu-1", attempt))
    spec = pod["spec"]
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    (looking,) = [one for one in containers if one["name"] == "look"] or [{"image": CUDA}]
    ways = {
        "variable": looking["image"] == CUDA or "env" in looking,
        "mount": "volumes" in spec,
        "annotation": "cdi.k8s.io/metal-gpu-leak" in pod["metadata"].get("annotations", {}),
    }
    assert [*ways.values()].count(True) == (attempt not in ("plain", "privileged"))


@pytest.mark.parametrize("shell", [["sh"], ["busybox", "sh"]])
def test_the_script_sees_what_there_is(shell, tmp_path):
    """The real script, in this shell, with the folders of a node that has GPUs, or has none."""
    mounts = tmp_path / "mountinfo"
    script = leak_pods.manifest(template(), leak_pods.Try("n", "plain"))["spec"]["containers"][0]
    text = script["command"][2]
    for name in ("/dev/nvidia", "/proc/self/mountinfo", "/dev/termination-log"):
        assert name in text
    text = text.replace("/dev/nvidia", f"{tmp_path}/dev/nvidia")
    text = text.replace("/proc/self/mountinfo", str(mounts))
    text = text.replace("/dev/termination-log", str(tmp_path / "log"))
    line = "36 35 98:0 /root {} rw,noatime - ext4 /dev/root rw\n"
    harmless = ["/", "/proc", "/dev/termination-log", "/run/nvidia-container-devices/all"]
    mounts.write_text("".join(map(line.format, harmless)))
    (tmp_path / "dev").mkdir()

    def look(attempt="plain", **variables):
        environment = {"PATH": os.environ["PATH"], **variables}
        subprocess.run([*shell, "-c", text], check=True, env=environment)
        return leak_pods.judge_output((tmp_path / "log").read_text(), attempt)

    assert look() == leak_pods.Result("nothing")
    assert look("runtime_class_mount") == leak_pods.Result("nothing")
    assert look("image_variable").message == "the image does not set NVIDIA_VISIBLE_DEVICES"
    assert look("image_variable", NVIDIA_VISIBLE_DEVICES="all") == leak_pods.Result("nothing")
    (tmp_path / "dev/nvidia-uvm").touch()
    libraries = ["/usr/lib/x86_64-linux-gnu/libcuda.so.580.1", "/usr/bin/nvidia-smi"]
    mounts.write_text("".join(map(line.format, [*harmless, *libraries])))
    found = look()
    assert (found.state, found.total) == ("leaked", 3)
    assert look("runtime_class_mount").state == "by_design"
    assert found.seen == (f"{tmp_path}/dev/nvidia-uvm", *libraries)
    mounts.write_text("".join(line.format(f"/usr/lib/libnvidia-{one}.so") for one in range(300)))
    found = look()
    assert found.total == 301
    assert len(found.seen) == 20
    assert len((tmp_path / "log").read_bytes()) < 4096
