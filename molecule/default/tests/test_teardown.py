# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown, after all other tests of the scenario: only what docs/teardown.md lists may differ."""

from __future__ import annotations

import tomllib
from typing import Any
from urllib.parse import quote

import footprint
import pytest

NODES = ("gpu-1", "gpu-2")
CONFIG = "/etc/containerd/config.toml"
DRAIN = ("-e", "teardown_drain=true")
OPERATIONS_ALLOWED = 3

TRAINING = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: training, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: training}}
  template:
    metadata: {labels: {app: training}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: cuda
          image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
          command: [sleep, "3600"]
          # One replica fits on a node, two do not.
          resources: {limits: {nvidia.com/gpu: 3}}
"""


@pytest.fixture(scope="module")
def training(laboratory: Any) -> None:
    """Pods that hold GPUs on both nodes."""
    laboratory.kubectl("apply", "-f", "-", stdin=TRAINING)
    laboratory.kubectl("rollout", "status", "deployment/training", "--timeout=60s")


def backup(path: str, role: str) -> str:
    """Return the copy of a file from before the first change of a role."""
    name = f"{quote(path, safe='')}@metal.gpu.{role}.orig"
    return f"/var/lib/metal-gpu/config_document/{name}"


def holders(laboratory: Any) -> dict[str, str]:
    """Return the node of each pod. The node of a pod that waits for GPUs is empty."""
    pods = laboratory.objects("pods", "-l", "app=training")["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}


def test_refuses_while_pods_hold_gpus(laboratory, training):
    found = holders(laboratory)
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    for pod, name in found.items():
        assert f"GPUS_IN_USE {name}: pods hold GPUs: default/{pod} (3)" in run.output
    assert holders(laboratory) == found


def test_check_announces_everything_and_changes_nothing(laboratory, training):
    found = holders(laboratory)
    run = laboratory.playbook("metal.gpu.teardown", "--check", *DRAIN)
    assert run.returncode == 0
    for step in (
        "Evict the pods that hold GPUs (default/training-",
        "Uncordon the node (",
        "Remove the NVIDIA runtime from containerd (",
        "Remove the container toolkit (",
        "Unload the NVIDIA modules (",
        "Remove the driver (",
    ):
        assert step in run.output
    assert holders(laboratory) == found


def test_one_node_goes_and_the_other_keeps_its_gpus(laboratory, training):
    run = laboratory.playbook("metal.gpu.teardown", "--limit=gpu-2", *DRAIN)
    assert run.returncode == 0
    assert "nvidia-smi" not in laboratory.host("gpu-2").check_output("ls /usr/bin")
    assert sorted(holders(laboratory).values()) == ["", "gpu-1"]
    nodes = {item["metadata"]["name"]: item for item in laboratory.objects("nodes")["items"]}
    assert nodes["gpu-1"]["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert nodes["gpu-2"]["status"]["allocatable"]["nvidia.com/gpu"] == "0"
    assert "unschedulable" not in nodes["gpu-2"]["spec"]
    (plugin,) = laboratory.objects(
        "pods", "-A", "-l", "app.kubernetes.io/name=nvidia-device-plugin"
    )["items"]
    assert plugin["spec"]["nodeName"] == "gpu-1"


@pytest.fixture(scope="module")
def admins_change(laboratory: Any) -> None:
    """The admin of gpu-1 edits a file after this collection has added its keys."""
    laboratory.host("gpu-1").run_expect(
        [0],
        "sed --in-place 's/^  max_container_log_line_size = .*/"
        "  max_container_log_line_size = 65536  # longer lines/' %s",
        CONFIG,
    )


def test_the_other_node_follows(laboratory, training, admins_change):
    run = laboratory.playbook("metal.gpu.teardown", *DRAIN)
    assert run.returncode == 0
    assert set(holders(laboratory).values()) == {""}
    laboratory.kubectl("delete", "deployment", "training", "--cascade=foreground")


def test_admins_change_is_kept_and_ours_is_gone(laboratory):
    host = laboratory.host("gpu-1")
    before = host.file(backup(CONFIG, "registries")).content_string
    after = host.file(CONFIG).content_string
    expected = before.replace(
        "max_container_log_line_size = 32768", "max_container_log_line_size = 65536"
    )
    assert tomllib.loads(after) == tomllib.loads(expected)
    assert "65536  # longer lines" in after
    assert "# mirrored in house" in after


def test_gate_is_all_that_the_kubelet_lost(laboratory):
    """The gate broke gpu-2 before. Restoring it would break the kubelet again."""
    host, path = laboratory.host("gpu-2"), "/var/lib/kubelet/config.yaml"
    before = host.file(backup(path, "kubelet_device_plugins")).content_string
    after = host.file(path).content_string
    assert after == before.replace("featureGates:\n  DevicePlugins: true\n", "")
    assert "--v=2" in host.file("/etc/default/kubelet").content_string


def test_node_is_what_it_was(footprints, node):
    before, after = (each["nodes"][node] for each in footprints)
    if node == "gpu-1":  # the admin's change
        del before["files"][CONFIG], after["files"][CONFIG]
    assert footprint.differences(before, after) == []


def test_cluster_is_what_it_was(footprints):
    assert footprint.of_cluster(footprints) == []


def test_earlier_pod_keeps_running(laboratory):
    (work,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    assert (work["restartCount"], "running" in work["state"]) == (0, True)


def test_second_run_changes_nothing_and_is_cheap(laboratory):
    laboratory.second_run("metal.gpu.teardown", OPERATIONS_ALLOWED)
