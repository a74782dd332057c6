# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.gpu_claims import Claim, parse_claim


def pod(limits, node="gpu-1", phase="Running", owner="ReplicaSet", **metadata):
    owners = [{"kind": owner, "controller": True}] if owner else []
    metadata = {"name": "a", "namespace": "b", "uid": "7", "ownerReferences": owners, **metadata}
    containers = [{"resources": {"limits": limits}}, {}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": containers},
        "status": {"phase": phase},
    }


GPU = {"nvidia.com/gpu": "2", "cpu": "1"}
GONE = {"deletionTimestamp": "2026-11-21T10:00:00Z"}


@pytest.mark.parametrize(
    ("found", "gpus"),
    [
        pytest.param(pod(GPU), 2, id="gpus"),
        pytest.param(pod({"nvidia.com/mig-1g.10gb": 3}), 3, id="slices"),
        pytest.param(pod({"nvidia.com/gpu.shared": 2}), 2, id="shared"),
        pytest.param(pod({"nvidia.com/mig-1g.10gb.me.shared": 2}), 2, id="shared slices"),
        pytest.param(pod({**GPU, "nvidia.com/hostdev": 8}), 2, id="gpus and network cards"),
        pytest.param(pod(GPU, phase="Pending"), 2, id="starts"),
        pytest.param(pod(GPU, **GONE), 2, id="ends"),
    ],
)
def test_who_holds_gpus(found, gpus):
    assert parse_claim(found) == Claim("b", "a", "gpu-1", gpus, None, "7")


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(pod({"cpu": "1"}), id="no GPU"),
        pytest.param(pod({"nvidia.com/hostdev": 1}), id="network card"),
        pytest.param(pod({"nvidia.com/gpumem": 3000}), id="memory of a GPU"),
        pytest.param(pod({"example.com/gpu": 1}), id="GPU of another vendor"),
        pytest.param(pod({"nvidia.com/gpu": "0"}), id="none asked"),
        pytest.param(pod(GPU, phase="Succeeded"), id="ended"),
        pytest.param(pod(GPU, node=None), id="not scheduled"),
    ],
)
def test_who_holds_none(found):
    assert parse_claim(found) is None


@pytest.mark.parametrize(
    ("found", "stays"),
    [
        pytest.param(pod(GPU, owner="Job"), None, id="job"),
        pytest.param(pod(GPU, owner="DaemonSet"), "its DaemonSet creates it again", id="daemon"),
        pytest.param(pod(GPU, owner="Node"), "the kubelet runs it from a file", id="static"),
        pytest.param(pod(GPU, owner=None), "no controller starts it again", id="bare"),
        pytest.param(pod(GPU, owner=None, **GONE), None, id="bare, ends"),
    ],
)
def test_who_must_not_be_evicted(found, stays):
    assert (parse_claim(found).stays or "").startswith(stays or "")
    assert bool(parse_claim(found).stays) is bool(stays)
