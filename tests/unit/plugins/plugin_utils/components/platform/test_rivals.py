# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other tools and engines on a node."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.containerd import (
    test_embedded as embedded,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    VIRGIN,
    codes,
    merge,
    names,
    plan,
)

CONFIG = "/etc/containerd/config.toml"
KUBESPRAY = {
    "tools": ["Kubespray"],
    "engines": {"containerd": {"path": "/usr/local/bin/containerd"}},
}


def notices(planned: Any) -> list[str]:
    return [one["code"] for one in planned["notices"]]


@pytest.mark.parametrize(
    ("tool", "evidence"), [("AKS", "/opt/azure/containers/provision.sh"), ("EKS", "/etc/eks")]
)
def test_images_of_clouds_are_refused(tool: str, evidence: str) -> None:
    planned = plan("preflight", merge(VIRGIN, {"tools": [tool]}))
    assert codes(planned) == ["CLOUD_IMAGE"]
    assert evidence in planned["refusals"][0]["message"]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(merge(VIRGIN, KUBESPRAY), True, id="the run writes the keys"),
        pytest.param(merge(DONE, KUBESPRAY), True, id="the keys are there"),
        pytest.param(VIRGIN, False, id="no Kubespray"),
        pytest.param(
            merge(
                VIRGIN, {**KUBESPRAY, "engines": {"containerd": {"path": "/usr/bin/containerd"}}}
            ),
            False,
            id="another containerd",
        ),
        pytest.param(
            merge(
                VIRGIN,
                {
                    "tools": ["Kubespray"],
                    "engines": {
                        "containerd": {
                            "path": "/usr/local/bin/containerd",
                            "config": {"imports": ["/etc/containerd/conf.d/*.toml"]},
                        }
                    },
                },
            ),
            False,
            id="containerd_extra_args has imports",
        ),
    ],
)
def test_file_that_kubespray_overwrites(node: Any, expected: bool) -> None:
    planned = plan("nvidia_container_runtime", node)
    assert codes(planned) == []
    assert ("KUBESPRAY_OVERWRITES" in notices(planned)) is expected


def test_kubespray_that_writes_the_runtime_itself() -> None:
    """Its inventory has the runtime, and its last run replaced the file that the role edited."""
    node = copy.deepcopy(merge(DONE, KUBESPRAY))
    for edit in node["ours"]["edits"]:
        edit["untouched"] = False
    planned = plan("nvidia_container_runtime", node)
    assert names(planned) == []
    assert "KUBESPRAY_OVERWRITES" not in notices(planned)


@pytest.mark.parametrize(
    ("binary", "expected"),
    [
        ("/usr/local/nvidia/toolkit/nvidia-container-runtime", ["OPERATOR_TOOLKIT"]),
        ("/usr/bin/nvidia-container-runtime", []),
        ("/opt/nvidia-container-runtime", []),
    ],
)
def test_runtime_of_the_gpu_operator(binary: str, expected: list[str]) -> None:
    runtimes = {"nvidia": {"type": "io.containerd.runc.v2", "binary": binary}}
    runtimes["nvidia"] |= {"systemd_cgroup": True, "base_runtime_spec": ""}
    node = merge(VIRGIN, {"engines": {"containerd": {"runtimes": runtimes}}})
    assert codes(plan("nvidia_container_runtime", node)) == expected


USES_CRIO = {"kubelet": {"endpoint": "unix:///var/run/crio/crio.sock"}}


@pytest.mark.parametrize(
    ("node", "said"),
    [
        pytest.param(VIRGIN, None, id="one engine"),
        pytest.param(
            merge(VIRGIN, {"engines": {"docker": {"running": True}}}),
            "Docker runs beside containerd,",
            id="Docker beside containerd",
        ),
        pytest.param(
            merge(VIRGIN, {"engines": {"docker": {"running": True}, "crio": {"running": True}}}),
            "Docker and CRI-O run beside containerd,",
            id="three",
        ),
        pytest.param(
            embedded.of_k3s(home={"host_containerd": True}),
            "containerd runs beside the containerd of k3s,",
            id="a containerd of the host beside k3s",
        ),
        pytest.param(embedded.of_k3s(), None, id="k3s"),
        pytest.param(
            merge(
                embedded.of_k3s(home={"host_containerd": True}, running=False),
                {**USES_CRIO, "engines": {"crio": {"installed": True, "running": True}}},
            ),
            "containerd runs beside CRI-O,",
            id="a containerd of the host beside the CRI-O of k3s",
        ),
        pytest.param(
            merge(embedded.of_k3s(running=False), USES_CRIO), None, id="CRI-O alone, with k3s"
        ),
        pytest.param(
            merge(VIRGIN, {**USES_CRIO, "engines": {"docker": {"running": True}}}),
            "containerd and Docker run beside CRI-O,",
            id="Docker and its containerd beside CRI-O",
        ),
        pytest.param(
            merge(VIRGIN, {**USES_CRIO, "engines": {"containerd": {"running": False}}}),
            None,
            id="CRI-O alone",
        ),
        pytest.param(
            merge(
                VIRGIN,
                {
                    "kubelet": {"endpoint": "unix:///run/cri-dockerd.sock"},
                    "engines": {"crio": {"running": True}},
                },
            ),
            "CRI-O runs beside Docker,",
            id="CRI-O beside Docker",
        ),
        pytest.param(
            merge(VIRGIN, {"kubelet": {"endpoint": "unix:///run/cri-dockerd.sock"}}),
            None,
            id="containerd below Docker",
        ),
    ],
)
def test_second_engine(node: Any, said: str | None) -> None:
    planned = plan("preflight", node)
    assert codes(planned) == []
    found = [one["message"] for one in planned["notices"] if one["code"] == "ENGINE_BESIDE"]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
