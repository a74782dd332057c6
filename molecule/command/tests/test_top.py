# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu top` on GPU nodes. `metal.gpu.site` has nothing to do if another test ran it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def prepared(laboratory: Any) -> Iterator[Any]:
    run = laboratory.playbook("metal.gpu.site")
    assert run.returncode == 0, run.output
    yield laboratory
    laboratory.lab("fault", "gpu-1", "restore")


def _ask(laboratory: Any, metal_gpu: Any, *words: str) -> tuple[int, dict[str, Any]]:
    inventory = ("--inventory", str(laboratory.inventory))
    kubeconfig = ("--kubeconfig", str(laboratory.folder / "kubeconfig"))
    done = metal_gpu("top", "--once", "--json", *inventory, *kubeconfig, *words)
    document = json.loads(done.stdout)
    assert document["cluster_error"] is None
    return done.returncode, {one["host"]: one for one in document["machines"]}


def test_every_gpu_has_its_line(prepared: Any, metal_gpu: Any) -> None:
    code, machines = _ask(prepared, metal_gpu)
    assert code == 0, machines
    for name, count in prepared.gpu_count.items():
        gpus = machines[name]["gpus"]
        assert len(gpus) == count
        for gpu in gpus:
            assert gpu["utilization"] is not None
            assert gpu["memory_mib"] > 0
            assert gpu["temperature_c"] > 0
            assert gpu["power_w"] > 0


def test_a_pod_is_at_its_gpu(prepared: Any, metal_gpu: Any) -> None:
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
                    "image": prepared.group["vars"]["verify_smoke_image"],
                    "command": ["sleep", "1000"],
                    "resources": {"limits": {"nvidia.com/gpu": 1}},
                }
            ],
        },
    }
    prepared.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    try:
        prepared.kubectl("wait", "--for=condition=Ready", "pod/train", "--timeout=120s")
        _code, machines = _ask(prepared, metal_gpu, "gpu-1")
        pods = [one["pod"] for gpu in machines["gpu-1"]["gpus"] for one in gpu["pods"]]
        assert pods == ["default/train"]
    finally:
        prepared.kubectl("delete", "pod", "train", "--grace-period=0", "--force")


def test_a_lost_gpu_is_first(prepared: Any, metal_gpu: Any) -> None:
    prepared.lab("fault", "gpu-1", "gpu-lost", "2")
    done = metal_gpu("top", "--once", "--inventory", str(prepared.inventory))
    assert done.returncode == 1
    head, first, *_others = done.stdout.splitlines()
    assert head.split()[0] == "host"
    assert first.split()[0] == "gpu-1"
    assert "GPU is lost" in done.stdout
    assert "needs somebody" in done.stdout
