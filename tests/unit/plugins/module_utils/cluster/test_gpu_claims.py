# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster.gpu_claims import (
    Claim,
    holders,
    parse_claim,
)


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
    leaves = "deletionTimestamp" in found["metadata"]
    expected = Claim("b", "a", "gpu-1", gpus, None, "7", kind="ReplicaSet", leaves=leaves)
    assert parse_claim(found) == expected


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
        pytest.param(pod(GPU, owner="DaemonSet"), "its DaemonSet recreates it", id="daemon"),
        pytest.param(pod(GPU, owner="Node"), "it is a static pod", id="static"),
        pytest.param(pod(GPU, owner=None), "it has no controller that recreates it", id="bare"),
        pytest.param(pod(GPU, owner=None, **GONE), None, id="bare, ends"),
    ],
)
def test_who_must_not_be_evicted(found, stays):
    assert (parse_claim(found).stays or "").startswith(stays or "")
    assert bool(parse_claim(found).stays) is bool(stays)


def by_claim(name, node="gpu-1", owner="Job", **limits):
    """A pod with a claim of dynamic resource allocation."""
    found = pod(limits, node, owner=owner, name=name)
    found["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "single-gpu"}]
    return found


def dra_driver(container, node="gpu-1"):
    """A pod of NVIDIA's DRA driver, as its chart has it (2026-08-07, and v25.3.0)."""
    args = [f"if true; then\n  true\nfi\n{container}-kubelet-plugin -v $(LOG_VERBOSITY)"]
    found = pod({}, node, owner="DaemonSet", name=f"driver-{container}")
    found["spec"]["containers"] = [{"name": "x", "command": ["bash", "-c"], "args": args}]
    return found


def held(*pods):
    found = {one["metadata"]["name"]: parse_claim(one) for one in pods}
    claims = holders({name: claim for name, claim in found.items() if claim})
    return {name: claim.gpus for name, claim in claims.items()}


@pytest.mark.parametrize(
    ("pods", "gpus"),
    [
        pytest.param([by_claim("a"), dra_driver("gpu")], {"a": 1}, id="may be a GPU"),
        pytest.param([by_claim("a")], {}, id="no driver"),
        pytest.param([by_claim("a"), dra_driver("compute-domain")], {}, id="compute domains only"),
        pytest.param([by_claim("a", "gpu-2"), dra_driver("gpu")], {}, id="driver elsewhere"),
        pytest.param(
            [by_claim("a", **{"nvidia.com/gpu": "2"}), dra_driver("compute-domain")],
            {"a": 2},
            id="GPUs of the device plugin and a compute domain",
        ),
        pytest.param([pod({"cpu": "1"}), dra_driver("gpu")], {}, id="no claim"),
    ],
)
def test_who_may_hold_gpus_by_a_claim(pods, gpus):
    assert held(*pods) == gpus


def test_a_pod_with_a_claim_is_evicted_by_the_same_rules():
    assert parse_claim(by_claim("a")).stays is None
    assert parse_claim(by_claim("a", owner="DaemonSet")).stays is not None
