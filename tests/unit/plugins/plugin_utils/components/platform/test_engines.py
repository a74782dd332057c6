# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

CONTAINERD = "unix:///run/containerd/containerd.sock"
K3S = "unix:///run/k3s/containerd/containerd.sock"
CRI_DOCKERD = "unix:///run/cri-dockerd.sock"
CRIO = "unix:///var/run/crio/crio.sock"
OTHER = "unix:///run/frakti.sock"


def node(endpoint: str | None, *, docker: bool = False) -> dict[str, Any]:
    return {"kubelet": {"endpoint": endpoint}, "engines": {"docker": {"installed": docker}}}


@pytest.mark.parametrize(
    ("found", "desired", "expected", "code"),
    [
        pytest.param(node(CONTAINERD), "auto", "containerd", None, id="containerd"),
        pytest.param(node(CONTAINERD, docker=True), "auto", "containerd", None, id="beside"),
        pytest.param(node(K3S), "containerd", "containerd", None, id="k3s"),
        pytest.param(node(CRI_DOCKERD), "auto", "docker", None, id="cri-dockerd"),
        pytest.param(node(CRI_DOCKERD), "docker", "docker", None, id="as-desired"),
        pytest.param(node(CRI_DOCKERD), "containerd", None, "ENGINE_MISMATCH", id="mismatch"),
        pytest.param(node(CONTAINERD), "docker", None, "ENGINE_MISMATCH", id="other-mismatch"),
        pytest.param(node(CRIO), "auto", "crio", None, id="cri-o"),
        pytest.param(node(CRIO), "docker", None, "ENGINE_MISMATCH", id="cri-o-by-desired"),
        pytest.param(node(None), "crio", "crio", None, id="cri-o-to-be"),
        pytest.param(node(OTHER), "auto", None, "ENGINE_UNSUPPORTED", id="another"),
        pytest.param(node(OTHER), "docker", None, "ENGINE_UNSUPPORTED", id="another-by-desired"),
        pytest.param(node(None), "auto", "containerd", None, id="no-kubelet"),
        pytest.param(node(None, docker=True), "auto", "docker", None, id="docker-alone"),
        pytest.param(node(None), "docker", "docker", None, id="docker-to-be"),
        pytest.param(node(None, docker=True), "containerd", "containerd", None, id="desired-alone"),
    ],
)
def test_engine_of_a_node(
    found: dict[str, Any], desired: str, expected: str | None, code: str | None
) -> None:
    assert engines.choose(found, desired) == expected
    made = Plan("gpu-1", {})
    engines.refuse(made, found, desired)
    assert [refusal["code"] for refusal in made.refusals] == ([code] if code else [])


@pytest.mark.parametrize(
    ("desired", "found", "begin"),
    [
        ("docker", CONTAINERD, "use metal.gpu.site for a node of a cluster, because metal.gpu.doc"),
        ("containerd", CRI_DOCKERD, "set `metal_gpu_engine: auto`, which follows the kubelet, or "),
    ],
)
def test_a_playbook_that_always_uses_docker_is_the_wrong_one(
    desired: str, found: str, begin: str
) -> None:
    made = Plan("gpu-1", {})
    engines.refuse(made, node(found), desired)
    assert made.refusals[0]["remedy"].startswith(begin)


def test_mismatch_names_both() -> None:
    made = Plan("gpu-1", {})
    engines.refuse(made, node(CRI_DOCKERD), "containerd")
    assert made.refusals[0]["message"] == (
        "gpu-1: the run asks for the engine containerd, but the kubelet is configured for "
        "unix:///run/cri-dockerd.sock"
    )
