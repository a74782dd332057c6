# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`kubectl metal_gpu` against an API server on the loopback; where it matters, as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from ansible_collections.metal.gpu.plugins.module_utils.cluster import kube_settings
from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import parse_node
from ansible_collections.metal.gpu.tests.unit.support import command
from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer, Refusal
from metal_gpu.cluster.judge import judge
from metal_gpu.cluster.look import Facts, expect, has_gpus
from metal_gpu.terminal import cluster as cluster_command

GPU = "nvidia.com/gpu"
PART = "nvidia.com/mig-1g.10gb"
PRESENT = {"nvidia.com/gpu.present": "true"}
SHARED = {
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.product": "Tesla-P100-SHARED",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
ALL_WELL = "GPU-a\nGPU-b\n1 ok\n2 ok\n"
ONE_FAILS = "GPU-a\nGPU-b\n2 1 Failed (error code unspecified launch failure)!\n1 ok\n"


def node(name, capacity="2", allocatable=None, ready="True", labels=None):
    amounts = {} if capacity is None else {GPU: capacity}
    given = amounts if allocatable is None else {GPU: allocatable}
    conditions = [{"type": "Ready", "status": ready, "message": "the kubelet is silent"}]
    status = {"capacity": amounts, "allocatable": given, "conditions": conditions}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {}, "status": status}


def parts(capacity, allocatable, labels=None):
    """A node with these amounts of GPUs and parts of GPUs."""
    item = node("gpu-1", labels=labels)
    item["status"] |= {"capacity": capacity, "allocatable": allocatable}
    return item


def plugin(desired=1, ready=1):
    volume = {"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    container = {"name": "c", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}
    spec = {"volumes": [volume], "containers": [container]}
    return {
        "metadata": {"name": "nvidia-device-plugin", "namespace": "kube-system"},
        "spec": {"selector": {}, "template": {"metadata": {}, "spec": spec}},
        "status": {"desiredNumberScheduled": desired, "numberReady": ready},
    }


@pytest.fixture
def cluster():
    """A cluster on the loopback, with one node that has GPUs."""
    with ApiServer() as api:
        api.put("nodes", node("control-1", capacity=None))
        api.put("nodes", node("gpu-1", labels={"nvidia.com/gpu.product": "Tesla-P100"}))
        api.put("daemonsets", plugin())
        yield api


@pytest.fixture
def kubectl(cluster, tmp_path):
    """Run the plugin with a kubeconfig of the cluster."""
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in handled}

    def run(*arguments):
        words = [*arguments, "--kubeconfig", str(kubeconfig)]
        return CliRunner().invoke(cluster_command.app, words, catch_exceptions=False)

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def answer(cluster, message, code=0):
    """Let the next pod end with a message."""
    created = []
    cluster.when_created = created.append
    phase = "Failed" if code else "Succeeded"
    state = {"terminated": {"exitCode": code, "reason": "Completed", "message": message}}
    status = {"phase": phase, "containerStatuses": [{"name": "compute", "state": state}]}
    cluster.when_watched["pods"] = lambda: [
        cluster.put("pods", {**pod, "status": status}) for pod in created
    ]


def json_of(kubectl, *arguments):
    found = kubectl(*arguments, "--json")
    return found.exit_code, command.parsed("cluster", found.stdout)


def test_show_starts_no_pods_and_lists_nodes_with_gpus(cluster, kubectl):
    found = kubectl("show")
    assert found.exit_code == 0, found.stdout + found.stderr
    lines = [line.split() for line in found.stdout.splitlines()]
    assert ["gpu-1", "Tesla-P100", "yes", "2", "2", "2", "-", "ok"] in lines
    assert "control-1" not in found.stdout
    assert "device plugin kube-system/nvidia-device-plugin: 1 of 1 pods ready" in found.stdout
    assert cluster.made("create", "pods") == []


@pytest.mark.parametrize("asked", ["show", "verify"])
def test_80_columns(asked, cluster, tmp_path):
    """No word of the table is cut, and what is missing is named."""
    labels = {"nvidia.com/gpu.product": "Tesla-P100-PCIE-16GB", "nvidia.com/gpu.count": "4"}
    cluster.put("nodes", node("gpu-1", "2", "1", labels=labels))
    answer(cluster, "GPU-a\n1 ok\n")
    kubeconfig = str(cluster.kubeconfig(tmp_path / "kubeconfig"))
    words = ("-m", "metal_gpu", "cluster", asked, "--kubeconfig", kubeconfig)
    lines, code = command.on_terminal(*words)
    assert code == 1, lines
    assert max(map(len, lines)) <= command.COLUMNS
    head = next(line.split() for line in lines if line.startswith("node "))
    assert head == ["node", "GPU", "capacity", "allocatable", "smoke", "verdict"]
    row = next(line.split() for line in lines if line.startswith("gpu-1 "))
    smoke = {"show": "-", "verify": "1/1"}[asked]
    assert row == ["gpu-1", "Tesla-P100-PCIE-16GB", "2", "1", smoke, "CAPACITY_DIFFERS"]
    assert "no room in 80 columns for: ready, free" in lines


def test_verify_computes_on_each_gpu(cluster, kubectl):
    answer(cluster, ALL_WELL)
    code, document = json_of(kubectl, "verify")
    (row,) = document["nodes"]
    assert (code, row["verdict"], row["proven"], row["asked"]) == (0, "ok", 2, 2)
    assert cluster.names("pods") == []  # they are deleted
    assert document["plugins"][0]["ready"] == 1


def test_a_gpu_that_does_not_compute_fails_its_node(cluster, kubectl):
    answer(cluster, ONE_FAILS, 1)
    code, document = json_of(kubectl, "verify", "gpu-1")
    (row,) = document["nodes"]
    assert (code, row["verdict"], row["proven"]) == (1, "COMPUTE_FAILED", 1)
    assert "GPU-b" in row["findings"][0]["message"]
    assert "719" in row["findings"][0]["message"]


def test_a_wrong_result_is_named(cluster, kubectl):
    answer(cluster, "GPU-a\nGPU-b\n2 1 Result verification failed at element 5!\n1 ok\n", 1)
    _code, document = json_of(kubectl, "verify")
    assert document["nodes"][0]["verdict"] == "COMPUTE_WRONG"


def test_gpus_that_pods_hold_are_not_free(cluster, kubectl):
    limits = {"resources": {"limits": {GPU: "2"}, "requests": {GPU: "2"}}}
    holder = {"nodeName": "gpu-1", "containers": [{"name": "c", **limits}]}
    metadata = {"name": "training", "namespace": "default"}
    cluster.put("pods", {"metadata": metadata, "spec": holder, "status": {"phase": "Running"}})
    code, document = json_of(kubectl, "verify")
    (row,) = document["nodes"]
    assert (code, row["verdict"], row["free"], row["proven"]) == (0, "busy", 0, None)
    assert row["findings"][0]["code"] == "SMOKE_NOT_RUN"
    assert "default/training" in row["findings"][0]["message"]


@pytest.mark.parametrize(
    ("item", "arguments", "verdict"),
    [
        pytest.param(node("gpu-1", "2", "1"), [], "ALLOCATABLE_DIFFERS", id="unhealthy"),
        pytest.param(node("gpu-1"), ["--gpus", "4"], "CAPACITY_DIFFERS", id="fewer than asked"),
        pytest.param(
            node("gpu-1", labels={"nvidia.com/gpu.count": "4"}),
            [],
            "CAPACITY_DIFFERS",
            id="fewer than the label",
        ),
        pytest.param(node("gpu-1", ready="Unknown"), [], "NODE_NOT_READY", id="silent kubelet"),
        pytest.param(
            node("gpu-1", None, labels={"nvidia.com/gpu.present": "true"}),
            [],
            "CAPACITY_DIFFERS",
            id="a label without capacity",
        ),
        pytest.param(
            parts({GPU: "0"}, {GPU: "0"}, {"nvidia.com/gpu.count": "0"} | PRESENT),
            [],
            "CAPACITY_DIFFERS",
            id="a label that counts none",
        ),
        pytest.param(
            parts({PART: "7"}, {PART: "0"}), [], "GPU_RESOURCES_DIFFER", id="no part is healthy"
        ),
        pytest.param(
            parts({PART: "7", GPU: "3"}, {PART: "7", GPU: "1"}),
            [],
            "GPU_RESOURCES_DIFFER",
            id="beside parts, a whole GPU is not healthy",
        ),
        pytest.param(
            node("gpu-1", None), ["gpu-1"], "GPU_RESOURCES_DIFFER", id="named, and without GPUs"
        ),
    ],
)
def test_differences_have_codes(item, arguments, verdict, cluster, kubectl):
    cluster.put("nodes", item)
    code, document = json_of(kubectl, "show", *arguments)
    (row,) = document["nodes"]
    assert (code, row["verdict"]) == (1, verdict)
    shown = kubectl("show", *arguments)
    assert f"failure {verdict} gpu-1: " in shown.stdout
    assert "remedy: " in shown.stdout


def test_a_cluster_without_a_device_plugin(cluster, kubectl):
    cluster.take("daemonsets", "nvidia-device-plugin", "kube-system")
    cluster.put("nodes", node("gpu-1", None, labels={"nvidia.com/gpu.present": "true"}))
    found = kubectl("show")
    assert found.exit_code == 1
    assert "DEVICE_PLUGIN_MISSING" in found.stdout
    assert "The cluster has no device plugin for GPUs." in found.stdout


def test_a_node_that_is_not_there(kubectl):
    code, document = json_of(kubectl, "show", "--node", "gpu-9")
    (row,) = document["nodes"]
    assert (code, row["node"], row["verdict"]) == (1, "gpu-9", "NODE_NOT_IN_CLUSTER")


def test_a_cluster_without_gpus_is_not_well(cluster, kubectl):
    cluster.take("nodes", "gpu-1")
    found = kubectl("verify")
    assert found.exit_code == 1
    assert "No node of the cluster has GPUs" in found.stdout


def test_without_the_permission_for_pods_the_rest_is_told_and_nothing_is_proven(cluster, kubectl):
    cluster.denied.add(("create", "pods"))
    cluster.refusals["list", "daemonsets"] = Refusal(403, "no daemonsets")
    code, document = json_of(kubectl, "verify")
    assert (code, document["findings"][0]["code"]) == (3, "CLUSTER_FORBIDDEN")
    assert "create pods in the namespace default" in document["findings"][0]["message"]
    assert document["plugins"] is None
    assert document["nodes"][0]["proven"] is None
    assert any("no pods prove the GPUs" in note for note in document["notes"])
    assert any("the DaemonSets could not be read" in note for note in document["notes"])
    assert cluster.made("create", "pods") == []
    assert kubectl("show").exit_code == 0


@pytest.mark.parametrize(
    "request_", [("create", "selfsubjectaccessreviews"), ("list", "pods")], ids=" ".join
)
def test_verify_that_cannot_run_pods_is_not_quiet(request_, cluster, kubectl):
    cluster.refusals[request_] = Refusal(403, "out of order")
    found = kubectl("verify", "--quiet")
    assert found.exit_code == 3
    assert "CLUSTER_UNUSABLE" in found.stdout
    assert "gpu-1" in found.stdout


def test_verify_asks_for_a_part_where_all_gpus_are_split(cluster, kubectl):
    cluster.put("nodes", parts({PART: "7"}, {PART: "7"}))
    answer(cluster, "MIG-a\n1 ok\n")
    code, document = json_of(kubectl, "verify")
    (row,) = document["nodes"]
    assert (code, row["verdict"], row["proven"], row["asked"]) == (0, "ok", 1, 1)
    (created,) = cluster.made("create", "pods")
    limits = [one["resources"]["limits"] for one in created.body["spec"]["containers"]]
    assert {PART: "1"} in [{key: str(one[key]) for key in one if "nvidia" in key} for one in limits]
    assert [one["code"] for one in row["findings"]] == ["SMOKE_SHARED"]


@pytest.mark.parametrize("renamed", [False, True])
def test_without_labels_the_plugin_says_how_gpus_are_shared(renamed, cluster, kubectl):
    daemonset = plugin()
    spec = daemonset["spec"]["template"]["spec"]
    spec["volumes"].append({"name": "config", "configMap": {"name": "sharing"}})
    spec["containers"][0] |= {
        "env": [{"name": "CONFIG_FILE", "value": "/config/any"}],
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    resources = [{"name": GPU, "replicas": 4}]
    config = {"sharing": {"timeSlicing": {"renameByDefault": renamed, "resources": resources}}}
    metadata = {"name": "sharing", "namespace": "kube-system"}
    cluster.put("daemonsets", daemonset)
    cluster.put("configmaps", {"metadata": metadata, "data": {"any": json.dumps(config)}})
    resource = f"{GPU}.shared" if renamed else GPU
    cluster.put("nodes", parts({resource: "8"}, {resource: "8"}))
    answer(cluster, "GPU-a\n1 ok\n")
    code, document = json_of(kubectl, "verify")
    (row,) = document["nodes"]
    assert (code, row["verdict"], row["expected"], row["asked"]) == (0, "ok", 2, 1)
    assert [one["code"] for one in row["findings"]] == ["SMOKE_SHARED"]


def test_gpus_of_which_the_pod_got_no_share_are_named(cluster, kubectl):
    cluster.put("nodes", parts({GPU: "8"}, {GPU: "8"}, SHARED))
    answer(cluster, "GPU-a\n1 ok\n")
    _code, document = json_of(kubectl, "verify")
    (finding,) = document["nodes"][0]["findings"]
    assert (finding["code"], finding["severity"]) == ("SMOKE_SHARED", "notice")


def test_gpus_that_pods_claim_are_named(cluster, kubectl):
    answer(cluster, "GPU-a\n1 ok\n")
    limits = {"resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}
    holder = {"nodeName": "gpu-1", "containers": [{"name": "c", **limits}]}
    metadata = {"name": "training", "namespace": "default"}
    cluster.put("pods", {"metadata": metadata, "spec": holder, "status": {"phase": "Running"}})
    _code, document = json_of(kubectl, "verify")
    (finding,) = document["nodes"][0]["findings"]
    assert finding["code"] == "SMOKE_PARTIAL"
    assert "default/training" in finding["message"]


def test_quiet_prints_nothing_if_all_is_well(cluster, kubectl):
    assert kubectl("show", "--quiet").stdout == ""
    cluster.put("nodes", node("gpu-1", "2", "1"))
    assert "ALLOCATABLE_DIFFERS" in kubectl("show", "--quiet").stdout


def test_no_answer_ends_with_3(cluster, kubectl):
    cluster.refusals["list", "nodes"] = Refusal(403, 'nodes is forbidden: User "eve" cannot list')
    found = kubectl("show")
    assert (found.exit_code, "CLUSTER_" in found.stdout) == (3, True)
    code, document = json_of(kubectl, "show")
    assert (code, document["findings"][0]["severity"]) == (3, "refusal")


def test_a_kubeconfig_that_is_not_there_ends_with_2(tmp_path):
    missing = str(tmp_path / "none")
    found = command.run("show", "--kubeconfig", missing, module="metal_gpu.terminal.kubectl")
    assert found.returncode == 2
    assert f"The kubeconfig {missing} does not exist" in found.stderr


def test_the_same_is_a_command_of_metal_gpu(cluster, tmp_path):
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    found = command.run("cluster", "show", "--kubeconfig", str(kubeconfig), "--context", "c")
    assert found.returncode == 0
    assert "gpu-1" in found.stdout


def test_ansible_is_not_needed(cluster, tmp_path):
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    program = (
        "import sys; sys.modules['ansible'] = None\n"
        "from metal_gpu.terminal.cluster import app\n"
        f"app(['show', '--kubeconfig', {str(kubeconfig)!r}])"
    )
    found = command.run_program(program)
    assert found.returncode == 0, found.stderr
    assert "gpu-1" in found.stdout


@pytest.mark.parametrize(
    "words", [("metal_gpu.terminal.kubectl",), ("metal_gpu", "cluster")], ids=" ".join
)
def test_ctrl_c_deletes_the_pods(words, cluster, tmp_path):
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    watched = threading.Event()
    cluster.when_watched["pods"] = watched.set
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            *words,
            "verify",
            "--kubeconfig",
            str(kubeconfig),
        ],
        env=command.environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watched.wait(60)
    assert len(cluster.names("pods")) == 1
    os.kill(process.pid, signal.SIGINT)
    _out, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert error.startswith("stopped; ")
    assert cluster.names("pods") == []


def test_a_defect_does_not_show_credentials(cluster, tmp_path):
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")
    program = (
        "import sys; from metal_gpu.cluster import look; from metal_gpu.terminal import kubectl\n"
        "look.look = lambda client, *_: client.defect\n"
        f"sys.argv = ['kubectl-metal_gpu', 'show', '--kubeconfig', {str(kubeconfig)!r}]\n"
        "kubectl.main()"
    )
    found = command.run_program(program)
    assert "AttributeError" in found.stderr
    assert "╭" not in found.stderr  # the frames of typer, which can have the variables
    assert cluster.token not in found.stderr


# which nodes count, and how many GPUs they must have


@pytest.mark.parametrize(
    ("capacity", "labels", "is_one", "count"),
    [
        (None, {}, False, None),
        ("0", {}, False, None),
        ("8", {}, True, 8),
        ("7", {"nvidia.com/gpu.count": "8"}, True, 8),
        (None, {"nvidia.com/gpu.present": "true"}, True, 1),
        (None, {"nvidia.com/gpu.present": "false"}, False, None),
        (None, {"feature.node.kubernetes.io/pci-10de.present": "true"}, True, 1),
        (None, {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, True, 1),
        (None, {"feature.node.kubernetes.io/pci-0200_10de.present": "true"}, False, None),
    ],
)
def test_nodes_with_gpus(capacity, labels, is_one, count):
    status = parse_node(node("a", capacity, labels=labels), GPU)
    assert has_gpus(status) is is_one
    assert expect(status, None, lambda: None) == count
    assert expect(status, 3, lambda: None) == 3


def judged(row=None, **smoke):
    """Judge a node with two GPUs, given what differs in its row and in that of its pod."""
    usual = {"state": "ok", "ready": True, "readiness": "", "capacity": 2, "allocatable": 2}
    usual |= {"evidence": [], "resources": {GPU: {"capacity": 2, "allocatable": 2}}}
    ended = {"state": "ok", "reason": "", "message": "", "uuids": ["GPU-a", "GPU-b"], "gpus": 2}
    ended |= {"holders": [], "events": [], "pod": "p", "namespace": "n", "level": "compute"}
    facts = Facts({}, {"gpu-1": 2}, {"gpu-1": usual | (row or {})}, {}, [], [])
    (verdict,) = judge(facts, {"gpu-1": ended | smoke})
    return verdict


def test_a_gpu_that_is_lost_before_the_pod_starts():
    verdict = judged(gpus=1, allocatable=1, uuids=["GPU-a"])
    assert verdict.verdict == "ALLOCATABLE_DIFFERS"
    assert "it could allocate 2 a moment before" in verdict.findings[0]["message"]


def test_each_gpu_that_fails_is_in_a_finding():
    results = [
        {"uuid": "GPU-a", "ok": False, "error": "unspecified launch failure"},
        {"uuid": "GPU-b", "ok": False, "error": "words that nobody knows"},
    ]
    message = "; ".join(f"{one['uuid']}: {one['error']}" for one in results)
    verdict = judged(state="failed", results=results, message=message)
    assert verdict.verdict == "COMPUTE_FAILED SMOKE_FAILED"
    assert "GPU-b" in verdict.findings[1]["message"]


def test_with_mps_no_program_computes():
    wanted = {"resource": GPU, "shared": True, "mps": True, "source": "MPS"}
    verdict = judged({"wanted": wanted}, uuids=["GPU-a"], gpus=1, level="list", shared=True)
    assert (verdict.verdict, verdict.proven) == ("ok", 1)
    assert [one["code"] for one in verdict.findings] == ["COMPUTE_NOT_RUN"]


def test_ctrl_c_does_not_claim_that_pods_are_gone(monkeypatch, capsys):
    def stopped(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(kube_settings, "connect", stopped)
    assert cluster_command._run({}, [], None, None, "table") == 130
    said = capsys.readouterr().err
    assert "kubectl get pods --all-namespaces --selector" in said
    assert "are deleted" not in said
