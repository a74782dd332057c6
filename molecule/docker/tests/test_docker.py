# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker under Kubernetes after site.yml: a node in use whose engine was exchanged, a virgin one.

What the engine says counts, not what its file says.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import pytest

from metal_lab.description import Node
from metal_lab.nodes import OWNERS_SERVICE, TEMPLATES, cgroup_driver
from metal_lab.programs import DOCKER

CUDA = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
OWNER = Node("gpu-1", "debian12", "p100x4", engine="docker", docker="owner")
UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def info(laboratory: Any, node: str) -> Any:
    return json.loads(laboratory.host(node).check_output("docker info --format '{{json .}}'"))


@pytest.fixture
def service(laboratory: Any) -> Any:
    """What Docker says of the owner's own container."""
    (container,) = json.loads(
        laboratory.host("gpu-1").check_output("docker inspect %s", OWNERS_SERVICE)
    )
    return container


def test_engine_is_dockers_own_and_held(laboratory, node):
    """Without the hold, an unattended upgrade restarts the engine under every container."""
    assert info(laboratory, node)["ServerVersion"] == DOCKER
    held = laboratory.host(node).check_output("apt-mark showhold").split()
    assert {"docker-ce", "docker-ce-cli", "containerd.io"} <= set(held)


def test_kubelet_uses_it(laboratory, node):
    status = laboratory.objects("node", node)["status"]
    assert status["nodeInfo"]["containerRuntimeVersion"] == f"docker://{DOCKER}"
    (ready,) = (item for item in status["conditions"] if item["type"] == "Ready")
    assert ready["status"] == "True"


def test_gpus_are_handed_out_by_default(laboratory, node):
    """cri-dockerd knows no RuntimeClass: with another default runtime, no pod would get a GPU."""
    engine = info(laboratory, node)
    assert engine["DefaultRuntime"] == "nvidia"
    assert engine["Runtimes"]["nvidia"]["path"].endswith("nvidia-container-runtime")


def test_docker_run_sees_every_gpu(laboratory, node):
    """What people type who use the machine without Kubernetes."""
    output = laboratory.host(node).check_output(
        "docker run --rm --gpus all --entrypoint nvidia-smi %s -L", CUDA
    )
    assert len(set(UUID.findall(output))) == laboratory.gpu_count[node]


def test_owners_settings_are_what_docker_runs_with(laboratory):
    """Disks that fill with logs, images from the wrong registry, an empty data-root: his loss."""
    engine = info(laboratory, "gpu-1")
    assert engine["LoggingDriver"] == "json-file"
    assert engine["RegistryConfig"]["Mirrors"] == ["https://mirror.example.org/"]
    assert engine["DockerRootDir"] == "/srv/docker"
    assert engine["CgroupDriver"] == cgroup_driver(OWNER)
    assert engine["LiveRestoreEnabled"] is True
    quiet = {key: engine["Runtimes"]["quiet"][key] for key in ("path", "runtimeArgs")}
    assert quiet == {"path": "runc", "runtimeArgs": ["--log-format=json"]}


def test_owners_daemon_json_keeps_every_line_in_its_order(laboratory):
    """He finds his file again: the same lines in the same order, and ours among them."""
    template = TEMPLATES.get_template("daemon.json.j2")
    before = template.render(node=OWNER, cgroup_driver=cgroup_driver(OWNER))
    after = laboratory.host("gpu-1").file("/etc/docker/daemon.json").content_string
    # But for commas: what was the last of its object is so no longer.
    lines = (line.rstrip(",") for line in after.splitlines())
    assert all(line.rstrip(",") in lines for line in before.splitlines()), after


def test_owners_runtime_works(laboratory):
    output = laboratory.host("gpu-1").check_output(
        "docker run --rm --runtime quiet --entrypoint sh docker.io/library/busybox:1.35"
        " -c 'echo works'"
    )
    assert output == "works"


def test_owners_container_runs_on(laboratory, service):
    """It has no restart policy: whoever stops it takes the owner's service down for good."""
    restarted = laboratory.host("gpu-1").check_output(
        'date +%%s -d "$(systemctl show --value -p ActiveEnterTimestamp %s)"', "docker"
    )
    for moment in (service["Created"], service["State"]["StartedAt"]):
        assert datetime.fromisoformat(moment).timestamp() < int(restarted)
    assert service["State"]["Status"] == "running"
    assert service["HostConfig"]["Runtime"] == "runc"
    assert service["HostConfig"]["LogConfig"]["Config"] == {"max-file": "5", "max-size": "20m"}


def test_owners_container_can_be_worked_in(laboratory):
    """Running is not enough: the new engine must hold the reins of what the old one has started."""
    output = laboratory.host("gpu-1").check_output("docker exec %s sleep 0", OWNERS_SERVICE)
    assert output == ""
