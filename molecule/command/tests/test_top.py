# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu top` on GPU nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def prepared(laboratory: Any, gpu_nodes: Any) -> Iterator[Any]:
    yield laboratory
    laboratory.lab("fault", "gpu-1", "restore")


def _ask(laboratory: Any, command: Any, *words: str) -> tuple[int, dict[str, Any]]:
    inventory = ("--inventory", str(laboratory.inventory))
    kubeconfig = ("--kubeconfig", str(laboratory.folder / "kubeconfig"))
    done = command("top", "--once", "--json", *inventory, *kubeconfig, *words)
    document = json.loads(done.out)
    assert document["cluster_error"] is None
    return done.code, {one["host"]: one for one in document["machines"]}


def test_every_gpu_has_its_line(prepared: Any, command: Any) -> None:
    code, machines = _ask(prepared, command)
    assert code == 0, machines
    for name, count in prepared.gpu_count.items():
        gpus = machines[name]["gpus"]
        assert len(gpus) == count
        for gpu in gpus:
            assert gpu["utilization"] is not None
            assert gpu["memory_mib"] > 0
            assert gpu["temperature_c"] > 0
            assert gpu["power_w"] > 0


def test_a_newcomer_sees_the_fleet(prepared: Any, metal_gpu: Any, newcomer: Path) -> None:
    """Without an argument, in the folder in which `metal-gpu scan` wrote the inventory."""
    done = metal_gpu("top", "--once", "--json", folder=newcomer)
    assert done.code == 0, done
    machines = {one["host"]: len(one["gpus"]) for one in json.loads(done.out)["machines"]}
    assert machines == prepared.gpu_count
    assert "inventory.yml in this folder names the machines" in done.err
    found = metal_gpu("doctor", "--json", folder=newcomer)
    assert found.hosts.keys() == prepared.gpu_count.keys()
    assert all(one["observed"] for one in found.hosts.values())


def test_a_pod_is_at_its_gpu(prepared: Any, command: Any) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": "gpu-1",
            "containers": [
                {
                    "name": "train",
                    "image": prepared.facts["images"]["cuda"],
                    "command": ["sleep", "1000"],
                    "resources": {"limits": {"nvidia.com/gpu": 1}},
                }
            ],
        },
    }
    prepared.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    try:
        prepared.kubectl("wait", "--for=condition=Ready", "pod/train", "--timeout=120s")
        _code, machines = _ask(prepared, command, "gpu-1")
        pods = [one["pod"] for gpu in machines["gpu-1"]["gpus"] for one in gpu["pods"]]
        assert pods == ["default/train"]
    finally:
        prepared.kubectl("delete", "pod", "train", "--grace-period=0", "--force")


def test_a_lost_gpu_is_first(prepared: Any, command: Any) -> None:
    prepared.lab("fault", "gpu-1", "gpu-lost", "2")
    done = command("top", "--once", "--inventory", str(prepared.inventory))
    assert done.code == 1
    head, first, *_others = done.out.splitlines()
    assert head.split()[0] == "host"
    assert first.split()[0] == "gpu-1"
    assert "GPU is lost" in done.out
    assert "GPU_FAULTY" in first
    assert "remedies: metal-gpu doctor gpu-1; metal-gpu explain " in done.out
    assert "needs somebody" in done.out
