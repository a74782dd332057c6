# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs are shared or in use: that is no fault, and the verdict says what it did not prove."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from breaks import CONTAINERD

PLUGIN = ("daemonset", "nvidia-device-plugin", "--namespace=kube-system")
REPLICAS = 20
CONFIG = f"""
version: v1
sharing:
  timeSlicing:
    resources:
      - {{name: nvidia.com/gpu, replicas: {REPLICAS}}}
"""
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "sharing", "namespace": "kube-system"},
    "data": {"plugin.yaml": CONFIG},
}
HOLDER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "holder", "namespace": "default"},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/hostname": "gpu-1"},
        "containers": [
            {
                "name": "holder",
                "command": ["sleep", "3600"],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        ],
    },
}


def offers(laboratory: Any, node: str, count: int) -> None:
    path = r"{.status.allocatable.nvidia\.com/gpu}"
    laboratory.kubectl("wait", f"--for=jsonpath={path}={count}", f"node/{node}", "--timeout=90s")


@pytest.fixture
def shared(ready: Any) -> Iterator[Any]:
    """The device plugin of the laboratory, which is NVIDIA's, shares each GPU by time-slicing."""
    ready.kubectl("apply", "-f", "-", stdin=json.dumps(CONFIG_MAP))
    (container,) = ready.objects(*PLUGIN)["spec"]["template"]["spec"]["containers"]
    change = {
        "name": container["name"],
        "args": ["--config-file=/sharing/plugin.yaml"],
        "volumeMounts": [{"name": "sharing", "mountPath": "/sharing"}],
    }
    volumes = [{"name": "sharing", "configMap": {"name": "sharing"}}]
    spec = {"template": {"spec": {"containers": [change], "volumes": volumes}}}
    ready.kubectl("patch", *PLUGIN, "--patch", json.dumps({"spec": spec}))
    try:
        offers(ready, "gpu-1", 4 * REPLICAS)
        offers(ready, "gpu-2", REPLICAS)
        yield ready
    finally:
        ready.kubectl("rollout", "undo", *PLUGIN)
        ready.kubectl("delete", "configmap", "sharing", "--namespace=kube-system")
        offers(ready, "gpu-1", 4)
        offers(ready, "gpu-2", 1)


def test_time_slicing_is_what_the_node_must_have(shared: Any, verdicts: Any) -> None:
    assert verdicts(CONTAINERD) == {"gpu-1": set(), "gpu-2": set()}
    (_command, output) = shared.printed[-1]
    # One pod with one share cannot see four GPUs. On gpu-2, it sees the only one.
    assert re.findall(r"SMOKE_SHARED (\S+): ", output) == ["gpu-1"]
    row = next(line for line in output.splitlines() if re.match(r'[ "]*gpu-1 ', line))
    assert re.search(rf" {4 * REPLICAS} +{4 * REPLICAS} +1/1 +ok", row), row


def test_shares_that_the_admin_does_not_expect(shared: Any, verdicts: Any) -> None:
    """What the inventory says goes before what the plugin is configured to do."""
    wanted = json.dumps({"gpu_expected": {"nvidia.com/gpu": REPLICAS}})
    found = verdicts(CONTAINERD, "-e", wanted, "-e", "verify_capacity_timeout=1")
    assert found == {"gpu-1": {"GPU_RESOURCES_DIFFER"}, "gpu-2": set()}


def test_gpu_in_use_is_named_with_its_pod(ready: Any, verdicts: Any) -> None:
    holder = json.loads(json.dumps(HOLDER))
    holder["spec"]["containers"][0]["image"] = ready.facts["images"]["cuda"]
    ready.kubectl("apply", "-f", "-", stdin=json.dumps(holder))
    try:
        ready.kubectl("wait", "pod/holder", "--for=condition=Ready", "--timeout=90s")
        assert verdicts(CONTAINERD) == {"gpu-1": set(), "gpu-2": set()}
    finally:
        ready.kubectl("delete", "pod", "holder", "--namespace=default")
    (_command, output) = ready.printed[-1]
    words = " ".join(output.split())
    assert re.search(r"SMOKE_PARTIAL gpu-1: .* not GPU-\S+ \(default/holder\),", words), words
