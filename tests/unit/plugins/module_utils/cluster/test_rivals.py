# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""More than one hands out the GPUs of a node, and clocks that differ."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import clocks, rivals
from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

RECORD = Path(__file__).parents[4] / "recorded/device_plugins.yml"
FOLDER = [{"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]


def node(
    capacity: int | None = 4, labels: dict[str, str] | None = None, ready: bool | None = True
) -> NodeStatus:
    amount = None if capacity is None else Decimal(capacity)
    return NodeStatus(amount, amount, ready, {}, labels or {})


def daemonset(name: str, containers: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "gpu"}
    return {
        "metadata": metadata,
        "spec": {"template": {"spec": {"containers": containers, **spec}}},
    }


def plugin(name: str, **spec: Any) -> dict[str, Any]:
    image = "mirror.example/nvidia/k8s-device-plugin:v0.20.0@sha256:0"
    return daemonset(name, [{"name": "p", "image": image}], volumes=FOLDER, **spec)


def dra(**spec: Any) -> dict[str, Any]:
    """As the chart of dra-driver-nvidia-gpu v25.8.0 has it."""
    compute_domains = {"name": "compute-domains", "command": ["bash", "-c"], "image": "x"}
    gpus = {"name": "gpus", "command": ["bash", "-c"], "args": ["/bin/gpu-kubelet-plugin -v 4"]}
    return daemonset("dra", [compute_domains, {**gpus, "image": "x"}], **spec)


# As Kubespray deploys it with nvidia_accelerator_enabled; tests/recorded/distributions.yml.
GOOGLE = daemonset(
    "nvidia-gpu-device-plugin",
    [{"name": "p", "image": "registry.k8s.io/nvidia-gpu-device-plugin@sha256:0"}],
    volumes=FOLDER,
)
IDLE = {**plugin("idle"), "status": {"currentNumberScheduled": 0}}
SMALL = {"nodeSelector": {"size": "small"}}
NETWORK = daemonset(
    "rdma", [{"name": "p", "image": "nvcr.io/nvidia/k8s-rdma-shared-dev-plugin:1"}], volumes=FOLDER
)
DISCOVERY = daemonset("gfd", [{"name": "g", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"}])


@pytest.mark.parametrize(
    ("found", "status", "code"),
    [
        pytest.param([plugin("a")], node(), None, id="one"),
        pytest.param([plugin("a"), plugin("b")], node(), "DEVICE_PLUGIN_TWICE", id="two"),
        pytest.param([plugin("a"), GOOGLE], node(), "DEVICE_PLUGIN_TWICE", id="Google's beside"),
        pytest.param([plugin("a"), plugin("b")], node(None), "DEVICE_PLUGIN_TWICE", id="none yet"),
        pytest.param([plugin("a"), plugin("b", **SMALL)], node(), None, id="for other nodes"),
        pytest.param(
            [plugin("a"), plugin("b", **SMALL)],
            node(labels={"size": "small"}),
            "DEVICE_PLUGIN_TWICE",
            id="for this one",
        ),
        pytest.param([plugin("a"), IDLE], node(), None, id="one that runs nowhere"),
        pytest.param([plugin("a"), NETWORK, DISCOVERY], node(), None, id="not of GPUs"),
        pytest.param([plugin("a"), dra()], node(), "DRA_DRIVER_BESIDE", id="DRA"),
        pytest.param([plugin("a"), dra(**SMALL)], node(), None, id="DRA on other nodes"),
        pytest.param([plugin("a"), dra()], node(0), None, id="the plugin has none"),
        pytest.param([dra()], node(), None, id="DRA alone"),
    ],
)
def test_who_hands_out_the_gpus_of_a_node(found, status, code):
    cause = rivals.find("gpu-1", status, [one for one in found if rivals.is_rival(one)])
    assert (cause.code if cause else None) == code
    if cause:
        assert "gpu/" in finding(cause.code, "gpu-1", **cause.evidence)["message"]


@pytest.mark.parametrize(
    "row", yaml.safe_load(RECORD.read_text())["rows"], ids=lambda row: str(row["what"])
)
def test_plugins_are_known_by_what_they_run_and_mount(row):
    """AMD's image has the name of NVIDIA's, and HAMi runs NVIDIA's program."""
    container = {"name": "c", "image": row["image"]}
    container |= {"command": row["command"]} if row["command"] else {}
    folders = [{"name": "x", "hostPath": {"path": path}} for path in row["folders"]]
    found = daemonset("a", [container], volumes=FOLDER + folders)
    assert rivals.is_rival(found) is ("nvidia.com/gpu" in row["registers"])
    assert not rivals.is_rival(daemonset("a", [container], volumes=folders))  # cannot register


DATE = "Mon, 23 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("renewed", "words"),
    [
        ("2026-11-23T11:59:52.123456Z", None),
        ("2026-11-23T11:58:50.000000Z", None),  # within the grace period of the node controller
        ("2026-11-23T12:01:30.000000Z", None),
        ("2026-11-23T11:00:00.000000Z", "3600 s behind that of the API server"),
        ("2026-11-23T12:05:00.000000Z", "300 s ahead of that of the API server"),
        ("2026-11-23T12:05:00", None),  # of no known zone
        ("tomorrow", None),
        (None, None),
    ],
)
def test_clock_of_a_node(renewed, words):
    cause = clocks.find(node(), {"spec": {"renewTime": renewed}}, DATE)
    assert bool(cause) is bool(words)
    if cause:
        assert words in finding(cause.code, "gpu-1", **cause.evidence)["message"]


@pytest.mark.parametrize(
    ("status", "lease", "date"),
    [
        (node(ready=None), {"spec": {"renewTime": "2026-11-23T11:00:00Z"}}, DATE),
        (node(ready=False), {"spec": {"renewTime": "2026-11-23T11:00:00Z"}}, DATE),
        (node(), None, DATE),
        (node(), {}, DATE),
        (node(), {"spec": {"renewTime": "2026-11-23T11:00:00Z"}}, ""),
        (node(), {"spec": {"renewTime": "2026-11-23T11:00:00Z"}}, "soon"),
    ],
)
def test_a_kubelet_that_is_silent_says_nothing_about_its_clock(status, lease, date):
    assert clocks.find(status, lease, date) is None
