# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`kubectl metal_gpu` with the laboratory's own kubectl and kubeconfig."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest


@pytest.fixture(scope="module")
def plugin(laboratory: Any, metal_gpu: Any, gpu_nodes: Any) -> Any:
    """Run `kubectl metal_gpu` on GPU nodes."""
    kubectl = laboratory.facts["kubectl"]
    beside = str(metal_gpu.program.parent)
    path = os.pathsep.join([beside, os.environ["PATH"]])

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [kubectl["program"], "metal_gpu", *words],
            env={**os.environ, **kubectl["environment"], "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def test_verify_computes_on_every_gpu(laboratory: Any, metal_gpu: Any, plugin: Any) -> None:
    image = laboratory.group["vars"].get("verify_compute_image")
    words = ["--image", image] if image else []
    done = plugin("verify", "--json", *words)
    document = metal_gpu.parsed("cluster", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = {one["node"]: one for one in document["nodes"]}
    for name, count in laboratory.gpu_count.items():
        assert nodes[name]["verdict"] == "ok"
        assert (nodes[name]["proven"], nodes[name]["asked"]) == (count, count)
    (daemonset,) = document["plugins"]
    assert daemonset["ready"] == daemonset["desired"] == len(laboratory.gpu_count)


def test_show_names_an_unhealthy_gpu(laboratory: Any, plugin: Any) -> None:
    laboratory.lab("fault", "gpu-1", "gpu-lost", "0")
    try:
        count = laboratory.gpu_count["gpu-1"]
        laboratory.kubectl(
            *("wait", "node/gpu-1", "--timeout=120s"),
            rf"--for=jsonpath={{.status.allocatable.nvidia\.com/gpu}}={count - 1}",
        )
        done = plugin("show", "--node", "gpu-1")
    finally:
        laboratory.lab("fault", "gpu-1", "restore")
        restart = ("rollout", "restart", "daemonset", "--namespace=kube-system")
        laboratory.kubectl(*restart)
    assert done.returncode == 1
    assert "GPU_UNHEALTHY" in done.stdout


def test_someone_who_may_only_read_nodes(
    laboratory: Any, metal_gpu: Any, plugin: Any, tmp_path: Any
) -> None:
    laboratory.kubectl("create", "serviceaccount", "reader")
    role = ("create", "clusterrole", "reader", "--verb=list,watch", "--resource=nodes")
    laboratory.kubectl(*role)
    binding = ("create", "clusterrolebinding", "reader", "--clusterrole=reader")
    laboratory.kubectl(*binding, "--serviceaccount=default:reader")
    try:
        laboratory.kubeconfig_of("reader", tmp_path / "kubeconfig")
        done = plugin("verify", "--json", "--kubeconfig", str(tmp_path / "kubeconfig"))
    finally:
        laboratory.kubectl("delete", "clusterrolebinding,clusterrole", "reader")
        laboratory.kubectl("delete", "serviceaccount", "reader")
    document = metal_gpu.parsed("cluster", done.stdout)
    assert (done.returncode, document["findings"][0]["code"]) == (3, "CLUSTER_FORBIDDEN")
    assert {one["node"] for one in document["nodes"]} == {*laboratory.addresses}
    assert document["plugins"] is None
    assert any("no pods prove the GPUs" in note for note in document["notes"])
