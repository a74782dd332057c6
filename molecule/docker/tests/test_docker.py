# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker under Kubernetes after site.yml: a node in use with a replaced engine, and a virgin node.

The tests query the engine instead of reading its file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from scenes import ADMINS_SERVICE, SCENES

CUDA = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
# It requests no GPU. The guard sets NVIDIA_VISIBLE_DEVICES=void in it.
BY_SWARM = f"""
apiVersion: v1
kind: Pod
metadata: {{name: by-swarm, namespace: default}}
spec:
  restartPolicy: Never
  nodeName: gpu-1
  containers:
    - name: cuda
      image: {CUDA}
      command: [sh, -c, "ls /dev | grep -c 'nvidia[0-9]'; true"]
      env: [{{name: DOCKER_RESOURCE_GPU, value: all}}]
"""
UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def info(laboratory: Any, node: str) -> Any:
    return json.loads(laboratory.host(node).check_output("docker info --format '{{json .}}'"))


@pytest.fixture
def service(laboratory: Any) -> Any:
    """`docker inspect` of the admin's container."""
    (container,) = json.loads(
        laboratory.host("gpu-1").check_output("docker inspect %s", ADMINS_SERVICE)
    )
    return container


def test_engine_is_dockers_own_and_held(laboratory, node):
    """Without the hold, an unattended upgrade restarts the engine of every container."""
    assert info(laboratory, node)["ServerVersion"] == laboratory.facts["versions"]["docker"]
    held = laboratory.host(node).check_output("apt-mark showhold").split()
    assert {"docker-ce", "docker-ce-cli", "containerd.io"} <= set(held)


def test_kubelet_uses_it(laboratory, node):
    status, version = laboratory.objects("node", node)["status"], laboratory.facts["versions"]
    assert status["nodeInfo"]["containerRuntimeVersion"] == f"docker://{version['docker']}"
    (ready,) = (item for item in status["conditions"] if item["type"] == "Ready")
    assert ready["status"] == "True"


def test_nvidia_is_the_default_runtime(laboratory, node):
    """cri-dockerd supports no RuntimeClass: with another default runtime, no pod gets a GPU."""
    engine = info(laboratory, node)
    assert engine["DefaultRuntime"] == "nvidia"
    assert engine["Runtimes"]["nvidia"]["path"].endswith("nvidia-container-runtime")


def test_docker_run_sees_every_gpu(laboratory, node):
    """The command of users who work on the machine without Kubernetes."""
    output = laboratory.host(node).check_output(
        "docker run --rm --gpus all --entrypoint nvidia-smi %s -L", CUDA
    )
    assert len(set(UUID.findall(output))) == laboratory.gpu_count[node]


def test_docker_runs_with_the_admins_settings(laboratory):
    """Without them: disks full of logs, images from the wrong registry, an empty data-root."""
    engine = info(laboratory, "gpu-1")
    assert engine["LoggingDriver"] == "json-file"
    ours = f"{laboratory.facts['registry']['url']}/"
    assert engine["RegistryConfig"]["Mirrors"] == ["https://mirror.example.org/", ours]
    assert engine["DockerRootDir"] == "/srv/docker"
    assert engine["CgroupDriver"] == laboratory.facts["nodes"]["gpu-1"]["cgroup_driver"]
    assert engine["LiveRestoreEnabled"] is True
    quiet = {key: engine["Runtimes"]["quiet"][key] for key in ("path", "runtimeArgs")}
    assert quiet == {"path": "runc", "runtimeArgs": ["--log-format=json"]}


def test_admins_daemon_json_keeps_every_line_in_its_order(laboratory):
    """The admin's lines are there in the same order, with ours among them, and our mirror."""
    driver = laboratory.facts["nodes"]["gpu-1"]["cgroup_driver"]
    before = (SCENES / "docker-admin/daemon.json").read_text().replace("CGROUP_DRIVER", driver)
    theirs = '"registry-mirrors": ["https://mirror.example.org"'
    assert theirs in before
    before = before.replace(theirs, f'{theirs}, "{laboratory.facts["registry"]["url"]}"')
    after = laboratory.host("gpu-1").file("/etc/docker/daemon.json").content_string
    # Without commas: a key that was the last of its object now has one.
    lines = (line.rstrip(",") for line in after.splitlines())
    assert all(line.rstrip(",") in lines for line in before.splitlines()), after


def test_admins_runtime_works(laboratory):
    output = laboratory.host("gpu-1").check_output(
        "docker run --rm --runtime quiet --entrypoint sh docker.io/library/busybox:1.35"
        " -c 'echo works'"
    )
    assert output == "works"


def test_admins_container_keeps_running(laboratory, service):
    """It has no restart policy: once stopped, the admin's service stays down."""
    restarted = laboratory.host("gpu-1").check_output(
        'date +%%s -d "$(systemctl show --value -p ActiveEnterTimestamp %s)"', "docker"
    )
    for moment in (service["Created"], service["State"]["StartedAt"]):
        assert datetime.fromisoformat(moment).timestamp() < int(restarted)
    assert service["State"]["Status"] == "running"
    assert service["HostConfig"]["Runtime"] == "runc"
    assert service["HostConfig"]["LogConfig"]["Config"] == {"max-file": "5", "max-size": "20m"}


def test_docker_exec_works_in_the_admins_container(laboratory):
    """Running is not enough: the new engine must control what the old one started."""
    output = laboratory.host("gpu-1").check_output("docker exec %s sleep 0", ADMINS_SERVICE)
    assert output == ""


@pytest.fixture
def in_a_swarm(laboratory: Any) -> Iterator[None]:
    """The admin has prepared gpu-1 for Docker Swarm."""
    host = laboratory.host("gpu-1")
    line = '1i swarm-resource = "DOCKER_RESOURCE_GPU"'
    host.check_output("cp --preserve %s /root/toolkit.toml", TOOLKIT)
    host.check_output("sed --in-place %s %s", line, TOOLKIT)
    yield
    host.check_output("mv /root/toolkit.toml %s", TOOLKIT)


def seen_by_swarm(laboratory: Any) -> int:
    """Return how many GPUs the pod sees."""
    laboratory.kubectl("apply", "-f", "-", stdin=BY_SWARM)
    try:
        succeeded = "--for=jsonpath={.status.phase}=Succeeded"
        laboratory.kubectl("wait", succeeded, "pod/by-swarm", "--timeout=60s")
        return int(laboratory.kubectl("logs", "by-swarm"))
    finally:
        laboratory.kubectl("delete", "pod", "by-swarm")


def test_variable_of_docker_swarm_counts_only_if_the_toolkit_names_it(laboratory):
    assert seen_by_swarm(laboratory) == 0


def test_variable_of_docker_swarm_leads_past_the_guard_and_verify_names_it(laboratory, in_a_swarm):
    assert seen_by_swarm(laboratory) == laboratory.gpu_count["gpu-1"]
    run = laboratory.playbook("metal.gpu.verify", "--limit=gpu-1")
    assert run.returncode == 0
    assert f"SWARM_RESOURCE_SET gpu-1: {TOOLKIT} has swarm-resource with DOCKER_RES" in run.words
