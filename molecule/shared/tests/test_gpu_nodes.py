# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two nodes with four GPUs each after site.yml, with any engine: what a user would lose."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OPERATIONS_ALLOWED = 1
# containerd.io is ours only below Docker, so it is not here.
UPDATED = re.compile(r"^(?:Inst|Remv) ((?:lib)?nvidia\S*|libcuda\S*|docker-ce\S*)", re.M)
UNITS = ("containerd", "cri-docker", "crio", "docker", "kubelet")

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: training, namespace: default}
spec:
  replicas: 5
  selector: {matchLabels: {app: training}}
  template:
    metadata: {labels: {app: training}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: cuda
          image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
          command: [sh, -c, "nvidia-smi -L && sleep 3600"]
          resources: {limits: {nvidia.com/gpu: 2}}
"""


def containers(laboratory: Any) -> dict[str, str]:
    """Return when each running container of the cluster started, keyed by its id."""
    return {
        status["containerID"]: status["state"]["running"]["startedAt"]
        for pod in laboratory.objects("pods", "--all-namespaces")["items"]
        for status in pod["status"].get("containerStatuses", [])
        if "running" in status["state"]
    }


def since(host: Any, unit: str) -> str:
    return str(
        host.check_output("systemctl show --value -p ActiveEnterTimestampMonotonic %s", unit)
    )


def test_driver_sees_every_gpu(laboratory, node):
    uuids = UUID.findall(laboratory.host(node).check_output("nvidia-smi -L"))
    assert len(set(uuids)) == laboratory.gpu_count[node]


def test_driver_is_held_at_its_version(laboratory, node):
    """An unattended upgrade must not take the fleet down."""
    held = laboratory.host(node).check_output("apt-mark showhold").split()
    assert {"nvidia-driver-cuda", "nvidia-kernel-dkms", "nvidia-container-toolkit"} <= set(held)


def test_update_of_the_system_leaves_what_the_roles_installed(laboratory, node):
    """The repositories have newer versions, and two of them have the container toolkit."""
    host = laboratory.host(node)
    offered = host.check_output("apt-cache policy nvidia-container-toolkit libcuda1 docker-ce")
    assert "1.99.0" in offered
    simulated = host.check_output("apt-get --simulate dist-upgrade")
    assert UPDATED.findall(simulated) == []


def test_persistence_mode_is_on(laboratory, node):
    modes = laboratory.host(node).check_output(
        "nvidia-smi --query-gpu=persistence_mode --format=csv,noheader"
    )
    assert modes.split() == ["Enabled"] * laboratory.gpu_count[node]


def test_api_server_counts_every_gpu(laboratory, node):
    status = laboratory.objects("node", node)["status"]
    assert status["capacity"]["nvidia.com/gpu"] == str(laboratory.gpu_count[node])
    assert status["allocatable"]["nvidia.com/gpu"] == str(laboratory.gpu_count[node])


def test_earlier_pod_keeps_running(laboratory):
    """The engine was restarted since. The admin's pod was not."""
    runtime = laboratory.objects("node", "gpu-1")["status"]["nodeInfo"]["containerRuntimeVersion"]
    engine = runtime.partition("://")[0]
    (work,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    started = datetime.fromisoformat(work["state"]["running"]["startedAt"])
    restarted = laboratory.host("gpu-1").check_output(
        'date +%%s -d "$(systemctl show --value -p ActiveEnterTimestamp %s)"', engine
    )
    assert work["restartCount"] == 0
    assert started.timestamp() < int(restarted)


@pytest.fixture
def training(laboratory: Any) -> Iterator[None]:
    laboratory.kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    yield
    laboratory.kubectl("delete", "deployment", "training", "--cascade=foreground")
    laboratory.kubectl("wait", "--for=delete", "pod", "-l", "app=training", "--timeout=60s")


def test_five_replicas_of_two_gpus_on_eight(laboratory, training):
    laboratory.kubectl(
        "wait", "--for=jsonpath={.status.readyReplicas}=4", "deployment/training", "--timeout=60s"
    )
    pods = laboratory.objects("pods", "-l", "app=training")["items"]
    running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    pending = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
    assert (len(running), len(pending)) == (4, 1)

    seen = [UUID.findall(laboratory.kubectl("logs", pod["metadata"]["name"])) for pod in running]
    assert [len(set(uuids)) for uuids in seen] == [2, 2, 2, 2]
    assert len({uuid for uuids in seen for uuid in uuids}) == 8

    (scheduled,) = (
        condition
        for condition in pending[0]["status"]["conditions"]
        if condition["type"] == "PodScheduled"
    )
    assert "Insufficient nvidia.com/gpu" in scheduled["message"]


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert check.announced, "check mode announced nothing on virgin nodes"
    assert check.announced == converge.announced
    assert check.announced <= converge.ran
    # Changes of the cluster run once, on any host. Check mode sends them as a dry run.
    rehearsed = {task for _host, task in check.changed}
    assert {task for _host, task in converge.unannounced} <= rehearsed


def test_second_run_changes_nothing_restarts_nothing_and_is_cheap(laboratory):
    hosts = {name: laboratory.host(name) for name in laboratory.addresses}
    before = containers(laboratory)
    services = {(name, unit): since(host, unit) for name, host in hosts.items() for unit in UNITS}
    for name, count in laboratory.second_run("metal.gpu.site", OPERATIONS_ALLOWED).items():
        print(f"\n{name}: {count} remote operations for a no-change site.yml, ", end="")
        print(f"{OPERATIONS_ALLOWED} allowed")
    assert containers(laboratory) == before
    assert services == {(name, unit): since(hosts[name], unit) for name, unit in services}


def test_verify_shows_the_table_and_leaves_nothing(laboratory):
    """Also for a cordoned node, so that it is proven before pods come back."""
    laboratory.kubectl("cordon", "gpu-2")
    try:
        run = laboratory.playbook("metal.gpu.verify")
    finally:
        laboratory.kubectl("uncordon", "gpu-2")
    assert run.returncode == 0
    assert "NODE_CORDONED gpu-2: the node is cordoned by kubectl" in run.words
    for name in laboratory.addresses:
        assert re.search(rf"{name} .*?(\s+4){{5}}\s+4/4\s+ok\b", run.output)
    left = laboratory.objects("pods", "-A", "-l", "app.kubernetes.io/managed-by=metal.gpu")
    assert [pod["metadata"]["name"] for pod in left["items"] if "smoke" in str(pod)] == []


@pytest.fixture
def lost_gpu(laboratory: Any) -> Iterator[str]:
    """A GPU of gpu-1 is lost until the test ends."""
    laboratory.lab("fault", "gpu-1", "gpu-lost", "2")
    yield "gpu-1"
    laboratory.lab("fault", "gpu-1", "restore")
    # The plugin reports a device as unhealthy until the plugin restarts.
    plugin = ("daemonset/nvidia-device-plugin", "--namespace=kube-system")
    laboratory.kubectl("rollout", "restart", *plugin)
    laboratory.kubectl("rollout", "status", *plugin, "--timeout=60s")


def test_lost_gpu_is_found(laboratory, lost_gpu):
    """A node with a lost GPU stays Ready. verify reports it and does not wait for a recovery."""
    started = time.monotonic()
    run = laboratory.playbook("metal.gpu.verify", "-e", "verify_capacity_timeout=600")
    assert time.monotonic() - started < 300
    assert run.returncode != 0
    assert "GPU is lost" in run.output
    assert "Xid 79 (GPU off the bus) once" in " ".join(run.output.split())
    assert re.search(r"gpu-1 .*?\s4\s+4\s+3\s+4\s+3\s+\d/3\s+GPU_FAULTY\b", run.output)
    assert re.search(r"gpu-2 .*?(\s+4){5}\s+4/4\s+ok\b", run.output)
