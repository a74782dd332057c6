# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.device_users import read_device_users
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import drain

JOB = {"name": "ml/job", "gpus": 2, "stays": None}
BARE = {"name": "ml/bare", "gpus": 1, "stays": "it has no controller that recreates it"}


@pytest.mark.parametrize(
    ("pods", "is_permitted", "expected"),
    [
        pytest.param([], False, [], id="nobody"),
        pytest.param(
            [JOB, BARE],
            False,
            [("GPUS_IN_USE", "gpu-1: pods hold GPUs: ml/job (2), ml/bare (1)")],
            id="not permitted",
        ),
        pytest.param([JOB], True, [], id="permitted"),
        pytest.param(
            [JOB, BARE],
            True,
            [
                (
                    "GPU_PODS_STAY",
                    "gpu-1: pods with GPUs must not be evicted: ml/bare "
                    "(it has no controller that recreates it)",
                )
            ],
            id="would be lost",
        ),
    ],
)
def test_refusals(pods, is_permitted, expected):
    found = drain.refuse_holders("gpu-1", pods, drain=is_permitted)
    assert [(refusal["code"], refusal["message"]) for refusal in found] == expected


def test_no_pod_is_evicted_from_a_node_that_keeps_its_plugin():
    (found,) = drain.refuse_holders("gpu-1", [JOB], drain=True, plugin="gpu-operator/x")
    assert found["code"] == "GPU_PODS_STAY"
    assert "ml/job (the device plugin gpu-operator/x stays, so" in found["message"]
    assert drain.refuse_holders("gpu-1", [], drain=True, plugin="gpu-operator/x") == []


def test_what_a_reboot_would_end(tmp_path):
    """Whatever the kubelet does: the processes that compute, and containers that may idle."""
    for pid, command, target in (
        (7, "train", "/dev/nvidia-uvm"),
        (8, "dcgm-exporter", "/dev/nvidia0"),
    ):
        (tmp_path / f"proc/{pid}/fd").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/fd/3").symlink_to(target)
        for name, text in (("comm", command), ("cgroup", "0::/system.slice/x"), ("maps", "")):
            (tmp_path / f"proc/{pid}" / name).write_text(text)
    containers = [
        {"name": name, "gpus": gpus, "of_pod": of_pod}
        for name, gpus, of_pod in (
            ("notebook", True, False),
            ("web", False, False),
            ("k8s_POD_x", True, True),
        )
    ]
    docker = {"docker": {"containers": containers}}
    node = {"device_users": read_device_users(tmp_path), "engines": docker}
    assert drain.work(node) == ["container notebook", "train (process 7)"]
    assert drain.users(node) == ["train (process 7)", "dcgm-exporter (process 8)"]
