# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown of k3s (gpu-1) and k0s (gpu-2), after all other tests of the scenario.

Only what docs/teardown.md lists may differ. Both distributions generate their configuration again
when they start, so its bytes show that they have forgotten the runtime and the registries.
"""

from __future__ import annotations

from typing import Any

import footprint
import pytest
from distribution_nodes import CONFIGS, K3S, runtimes

OPERATIONS_ALLOWED = 3
UNITS = {"gpu-1": "k3s-agent", "gpu-2": "k0sworker"}
WORK = """
apiVersion: v1
kind: Pod
metadata: {name: work-NODE, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: NODE}
  terminationGracePeriodSeconds: 0
  containers:
    - name: work
      image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
      command: [sleep, "3600"]
"""


@pytest.fixture(scope="module")
def work(laboratory: Any) -> dict[str, str]:
    """Pods without GPUs, which a restart of the distribution must not touch; their containers."""
    pods = [f"cuda-{node}" for node in laboratory.addresses]
    laboratory.kubectl("delete", "pod", *pods, "--ignore-not-found", "--now")
    for node in laboratory.addresses:
        laboratory.kubectl("apply", "-f", "-", stdin=WORK.replace("NODE", node))
        laboratory.kubectl("wait", "--for=condition=Ready", f"pod/work-{node}", "--timeout=60s")
    return containers(laboratory)


def containers(laboratory: Any) -> dict[str, str]:
    """Return the container of each of these pods, and how often it was started again."""
    found = {}
    for node in laboratory.addresses:
        (status,) = laboratory.objects("pod", f"work-{node}")["status"]["containerStatuses"]
        assert "running" in status["state"]
        found[node] = f"{status['containerID']} {status['restartCount']}"
    return found


def test_everything_but_the_distribution_goes(laboratory, work):
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0


def test_pod_without_gpus_keeps_running(laboratory, work):
    for node in laboratory.addresses:
        laboratory.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=60s")
    assert containers(laboratory) == work
    laboratory.kubectl("delete", "pod", *(f"work-{node}" for node in work), "--now")


def test_the_containerd_of_the_distribution_does_without_the_runtime(laboratory, node):
    host = laboratory.host(node)
    assert host.service(UNITS[node]).is_running
    assert "nvidia" not in runtimes(laboratory, node)


def test_node_is_what_it_was(footprints, node):
    """Byte by byte: the generated configuration, drop-ins, registries and the unit among them."""
    before, after = (each["nodes"][node] for each in footprints)
    assert CONFIGS[node] in before["files"]
    expected = []
    if node == "gpu-1":  # k3s removes the folders in it, and never the folder itself
        certificates = f"{K3S}/certs.d"
        expected = [f"{certificates}: None → {after['files'].get(certificates)}"]
    assert footprint.differences(before, after) == expected


def test_cluster_is_what_it_was(footprints):
    assert footprint.of_cluster(footprints) == []


def test_second_run_changes_nothing_and_is_cheap(laboratory):
    laboratory.second_run("metal.gpu.teardown", OPERATIONS_ALLOWED)
