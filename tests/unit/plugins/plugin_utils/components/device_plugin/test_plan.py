# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    plan as plan_device_plugin,
)

CHOICES = {
    "state": "present",
    "name": "nvidia-device-plugin",
    "namespace": "kube-system",
    "foreign": "refuse",
    "strategy": "auto",
    "runtime_class": "nvidia",
    "runtime_classes": [],
    "node_selector": {"nvidia.com/gpu.present": "true"},
    "rows": {},
    "members": [],
    "errors": [],
}


FOLDER = {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
MPS = {"name": "mps-root", "hostPath": {"path": "/run/nvidia/mps"}}


def daemonset(
    namespace: str,
    name: str,
    image: str,
    *command: str,
    strategy: str = "cdi-cri",
    nodes: int = 1,
    volumes: tuple[dict[str, Any], ...] = (FOLDER,),
) -> dict[str, Any]:
    container = {
        "image": image,
        "command": list(command),
        "env": [{"name": "DEVICE_LIST_STRATEGY", "value": strategy}],
    }
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"spec": {"containers": [container], "volumes": [*volumes]}},
        },
        "status": {"desiredNumberScheduled": nodes},
    }


def ours(**more: Any) -> dict[str, Any]:
    image = "nvcr.io/nvidia/k8s-device-plugin:1"
    found = daemonset("kube-system", "nvidia-device-plugin", image, **more)
    found["metadata"]["labels"] = dict(MARKS)
    return found


MARKS = {
    "app.kubernetes.io/managed-by": "metal.gpu",
    "app.kubernetes.io/name": "nvidia-device-plugin",
}


HELM = daemonset("kube-system", "nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:1")
FOREIGN = daemonset("gpu-operator", "x", "r.example:5000/k8s-device-plugin@sha256:0")
NAMESAKE = daemonset("kube-system", "nvidia-device-plugin", "r.example/something:1")
FEATURES = daemonset("gfd", "x", "nvidia/k8s-device-plugin:1", "gpu-feature-discovery", volumes=())
# The chart has two more DaemonSets of the same image: k8s-device-plugin v0.20.0,
# deployments/helm/nvidia-device-plugin/templates. With a configuration, each of their pods has a
# container "config-manager" before its own.
CHART_MPS = daemonset(
    "kube-system",
    "nvdp-nvidia-device-plugin-mps-control-daemon",
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
    "mps-control-daemon",
    volumes=(MPS,),
)
CHART_FEATURES = daemonset(
    "kube-system",
    "nvdp-nvidia-device-plugin-gpu-feature-discovery",
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
    "config-manager",
    volumes=({"name": "available-configs", "configMap": {"name": "nvdp-configs"}},),
)
CHART = [HELM, CHART_MPS, CHART_FEATURES]
ADOPT = {"foreign": "adopt"}


def members(*chosen: str | None) -> list[dict[str, Any]]:
    return [
        {"host": f"h{number}", "node": f"n{number}", "engine": engine}
        for number, engine in enumerate(chosen, start=1)
    ]


def codes(found: list[dict[str, str]]) -> list[str]:
    return [one["code"] for one in found]


@pytest.mark.parametrize(
    ("found", "desired", "expected"),
    [
        pytest.param([], {}, [], id="none"),
        pytest.param([ours()], {}, [], id="ours"),
        pytest.param([FOREIGN], {}, ["DEVICE_PLUGIN_FOREIGN"], id="foreign"),
        pytest.param([HELM], {}, ["DEVICE_PLUGIN_FOREIGN"], id="foreign, under the same name"),
        pytest.param([FOREIGN], {"state": "absent"}, [], id="foreign, and ours to go"),
        pytest.param(
            [FOREIGN, NAMESAKE],
            {"runtime_classes": [{"metadata": {"name": "nvidia"}, "handler": "x"}]},
            ["DEVICE_PLUGIN_FOREIGN", "DEVICE_PLUGIN_NAME_TAKEN", "RUNTIME_CLASS_OTHER"],
            id="every reason at once",
        ),
        pytest.param([FEATURES], {}, [], id="feature discovery"),
        pytest.param([NAMESAKE], {}, ["DEVICE_PLUGIN_NAME_TAKEN"], id="another thing of our name"),
        pytest.param([NAMESAKE], ADOPT, ["DEVICE_PLUGIN_NAME_TAKEN"], id="which is not adopted"),
        pytest.param([NAMESAKE, FOREIGN], ADOPT, [], id="which an adopted one does not need"),
        pytest.param([FEATURES, FOREIGN], ADOPT, [], id="adopted"),
        pytest.param(CHART, {}, ["DEVICE_PLUGIN_FOREIGN"], id="the whole chart"),
        pytest.param(CHART, ADOPT, [], id="the whole chart, adopted"),
        pytest.param([CHART_MPS, CHART_FEATURES], {}, [], id="what is no plugin of the chart"),
        pytest.param([ours(), FOREIGN], ADOPT, ["DEVICE_PLUGIN_TWICE"], id="adopted beside ours"),
        pytest.param(
            [FOREIGN, daemonset("b", "y", "k8s-device-plugin")],
            ADOPT,
            ["DEVICE_PLUGIN_TWICE"],
            id="two to adopt",
        ),
    ],
)
def test_plugins_of_others(
    found: list[dict[str, Any]], desired: dict[str, Any], expected: list[str]
) -> None:
    assert codes(plan_device_plugin.plan(found, CHOICES | desired)["refusals"]) == expected


def test_a_permission_that_is_withheld_is_a_refusal() -> None:
    said = 'User "bob" cannot list resource "daemonsets" in API group "apps" at the cluster scope'
    (refusal,) = plan_device_plugin.plan([], CHOICES | {"errors": [said]})["refusals"]
    assert refusal["code"] == "CLUSTER_FORBIDDEN"


def runtime_class(handler: str, name: str = "nvidia", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "handler": handler}


OUR_CLASS = runtime_class("nvidia", **MARKS)


@pytest.mark.parametrize(
    ("found", "desired", "creates", "codes_"),
    [
        pytest.param([], {}, True, [], id="none"),
        pytest.param([runtime_class("nvidia", "kata")], {}, True, [], id="another name"),
        pytest.param([OUR_CLASS], {}, True, [], id="ours"),
        pytest.param([runtime_class("nvidia")], {}, False, ["RUNTIME_CLASS_ADOPTED"], id="theirs"),
        pytest.param(
            [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}], {}, False,
            ["RUNTIME_CLASS_ADOPTED"], id="theirs, without labels",
        ),
        pytest.param(
            [runtime_class("nvidia", **{"app.kubernetes.io/managed-by": "metal.gpu"})], {}, False,
            ["RUNTIME_CLASS_ADOPTED"], id="of another part of this collection",
        ),
        pytest.param(
            [runtime_class("nvidia-container-runtime")], {}, False, ["RUNTIME_CLASS_OTHER"],
            id="theirs, with another handler",
        ),
        pytest.param([runtime_class("other")], {"runtime_class": ""}, False, [], id="not wanted"),
        pytest.param(
            [runtime_class("other")], {"members": [{"host": "h", "node": "n", "engine": "docker"}]},
            False, [], id="not wanted under Docker",
        ),
    ],
)  # fmt: skip
def test_a_runtime_class_of_the_admin_is_never_changed(
    found: list[dict[str, Any]], desired: dict[str, Any], creates: bool, codes_: list[str]
) -> None:
    made = plan_device_plugin.plan([], CHOICES | {"runtime_classes": found} | desired)
    assert codes(made["refusals"] + made["notices"]) == codes_
    assert made["data"]["creates_runtime_class"] is creates


def test_a_runtime_class_with_another_handler_is_named_with_both() -> None:
    found = [runtime_class("nvidia-container-runtime")]
    (refusal,) = plan_device_plugin.plan([], CHOICES | {"runtime_classes": found})["refusals"]
    assert refusal["message"] == (
        "cluster: the RuntimeClass nvidia has the handler nvidia-container-runtime; the "
        "device plugin needs the handler nvidia"
    )
    assert "set device_plugin_runtime_class to another name" in refusal["remedy"]


LABEL = "nvidia.com/gpu.present"


@pytest.mark.parametrize(
    ("labels", "annotations", "refused"),
    [
        pytest.param({}, {}, False, id="none"),
        pytest.param({LABEL: "true"}, {}, False, id="as wanted"),
        pytest.param({LABEL: "false"}, {}, True, id="keeps the plugin away"),
        pytest.param({LABEL: "true"}, {"metal.gpu/labelled": LABEL}, False, id="ours"),
        pytest.param({LABEL: "false"}, {"metal.gpu/labelled": LABEL}, True, id="ours, and changed"),
        pytest.param({LABEL: "yes"}, {"metal.gpu/labelled": "x"}, True, id="we added another"),
    ],
)
def test_a_label_of_the_admin_is_never_overwritten(
    labels: dict[str, str], annotations: dict[str, str], refused: bool
) -> None:
    row = {"state": "ok", "labels": labels, "annotations": annotations}
    desired = {"members": members("containerd"), "rows": {"n1": row}}
    found = plan_device_plugin.plan([], CHOICES | desired)["refusals"]
    assert [(one["code"], one["host"]) for one in found] == [("NODE_LABEL_TAKEN", "h1")] * refused
    patches = plan_device_plugin.labelling({"n1": row}, CHOICES["node_selector"])
    assert bool(patches) is (labels.get(LABEL) != "true" and not refused)


def test_adopted_plugin_is_named_and_found_by_its_own_selector() -> None:
    made = plan_device_plugin.plan([FOREIGN], CHOICES | ADOPT)
    assert codes(made["notices"]) == ["DEVICE_PLUGIN_ADOPTED"]
    expected = {"namespace": "gpu-operator", "name": "x", "selectors": ["app=x"]}
    assert made["data"]["adopted"] == expected


@pytest.mark.parametrize(
    ("chosen", "desired", "expected"),
    [
        pytest.param(["containerd"], {}, ("cdi-cri", "nvidia"), id="containerd"),
        pytest.param(["docker", "docker"], {}, ("envvar", ""), id="docker"),
        pytest.param([], {}, ("cdi-cri", "nvidia"), id="nobody observed"),
        pytest.param([None, "docker"], {}, ("envvar", ""), id="one of an unknown engine"),
        pytest.param(["containerd"], {"strategy": "envvar"}, ("envvar", "nvidia"), id="as desired"),
        pytest.param(["containerd"], {"runtime_class": ""}, ("cdi-cri", ""), id="no class"),
        pytest.param(
            ["containerd", "docker"],
            {"strategy": "envvar", "runtime_class": ""},
            ("envvar", ""),
            id="one setting for both",
        ),
    ],
)
def test_how_gpus_get_into_containers(
    chosen: list[str | None], desired: dict[str, Any], expected: tuple[str, str]
) -> None:
    made = plan_device_plugin.plan([], CHOICES | desired | {"members": members(*chosen)})
    assert made["refusals"] == []
    assert (made["data"]["strategy"], made["data"]["runtime_class"]) == expected


@pytest.mark.parametrize(
    ("found", "chosen", "desired", "said"),
    [
        pytest.param(
            [], ["docker", "containerd"], {},
            "docker on h1, containerd on h2", id="mixed",
        ),
        pytest.param(
            [], ["docker", "containerd"], {"strategy": "envvar"},
            "docker on h1, containerd on h2", id="mixed, with a runtime class",
        ),
        pytest.param(
            [], ["docker"], {"strategy": "cdi-cri"},
            "device_plugin_device_list_strategy is cdi-cri, but cri-dockerd "
            "passes no CDI devices to Docker, which h1",
            id="CDI under Docker",
        ),
        pytest.param(
            [ours(nodes=7)], ["docker"], {},
            "it uses the strategy cdi-cri on 7 nodes, but the nodes of this run (1) need envvar",
            id="limited to the one Docker node of many",
        ),
    ],
)  # fmt: skip
def test_one_plugin_cannot_serve_everybody(
    found: list[dict[str, Any]], chosen: list[str], desired: dict[str, Any], said: str
) -> None:
    made = plan_device_plugin.plan(found, CHOICES | desired | {"members": members(*chosen)})
    (refusal,) = made["refusals"]
    assert said in refusal["message"]


def test_all_nodes_may_change_their_engine_together() -> None:
    made = plan_device_plugin.plan([ours(nodes=1)], CHOICES | {"members": members("docker")})
    assert made["data"]["strategy"] == "envvar"


MEMBERS = [{"host": "a", "node": "n1"}, {"host": "b", "node": "n2"}, {"host": "c", "node": "n3"}]


def test_findings_are_about_hosts() -> None:
    rows = {"n1": row(), "n2": row("missing")}
    assert {
        host: [one["code"] for one in found]
        for host, found in plan_device_plugin.missing(MEMBERS, rows).items()
    } == {"b": ["NODE_NOT_IN_CLUSTER"]}
    (stuck,) = plan_device_plugin.not_running(MEMBERS, {"n3": "the node has no pod"}, 300)["c"]
    assert (stuck["code"], stuck["host"]) == ("ROLLOUT_STUCK", "c")
    assert "the node has no pod" in stuck["message"]
    labels = {"kept": ["n1", "other"], "left": ["n9"]}
    found = plan_device_plugin.keeping(MEMBERS, labels, "nvidia.com/gpu.present=true")
    assert [*found] == ["a"]
    assert found["a"][0]["code"] == "LABEL_OF_ADMIN"


def row(state: str = "ok", added: str = "", **labels: str) -> dict[str, Any]:
    annotations = {"metal.gpu/labelled": added} if added else {}
    return {"state": state, "labels": labels, "annotations": annotations}


def test_labels_are_put_where_they_lack_and_noted() -> None:
    nodes = {
        "n1": row(gpu="true", pool="a", x="y"),
        "n2": row(gpu="true"),
        "n3": row("missing"),
        "n4": row(gpu="true", added="pool"),  # somebody has removed it
        "n5": row(gpu="true", pool="old", added="pool"),
    }
    patches = plan_device_plugin.labelling(nodes, {"gpu": "true", "pool": "a"})
    assert [patch["metadata"] for patch in patches] == [
        {"name": name, "labels": {"pool": "a"}, "annotations": {"metal.gpu/labelled": "pool"}}
        for name in ("n2", "n4")
    ]


def labelled_node(name: str, added: str | None, **labels: str) -> dict[str, Any]:
    annotations = {} if added is None else {"annotations": {"metal.gpu/labelled": added}}
    return {"metadata": {"name": name, "labels": labels, **annotations}}


def test_only_labels_of_ours_are_taken_off() -> None:
    nodes = [
        labelled_node("n1", "pool", gpu="true", pool="a"),
        labelled_node("n2", None, gpu="true", pool="a"),
        labelled_node("n3", "gpu,pool", gpu="true", pool="a"),
    ]
    found = plan_device_plugin.unlabelling(nodes, ["n1", "n2"], {"gpu": "true", "pool": "a"})
    (patch,) = found.pop("patches")
    assert patch["metadata"] == {
        "name": "n1",
        "labels": {"pool": None},
        "annotations": {"metal.gpu/labelled": None},
    }
    assert found == {"kept": ["n2"], "left": ["n3"]}


def pod(
    node: str | None,
    revision: str,
    *,
    ready: bool,
    volumes: tuple[dict[str, Any], ...] = (FOLDER,),
    **status: Any,
) -> dict[str, Any]:
    """A pod of the DaemonSet; without a node it is meant for gpu-9 and not scheduled yet."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-9"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec: dict[str, Any] = {"volumes": [*volumes]}
    spec |= {"nodeName": node} if node else {"affinity": {"nodeAffinity": required}}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": "plugin-x", "labels": {"controller-revision-hash": revision}},
        "spec": spec,
        "status": {"phase": "Running", "conditions": conditions, **status},
    }


PULL = {"name": "plugin", "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}


@pytest.mark.parametrize(
    ("pods", "nodes", "waiting"),
    [
        pytest.param([pod("gpu-1", "2", ready=True)], ["gpu-1"], {}, id="done"),
        pytest.param(
            [], ["gpu-1"], {"gpu-1": "the node has no pod of this version yet"}, id="none"
        ),
        pytest.param(
            [pod("gpu-1", "1", ready=True)],
            ["gpu-1"],
            {"gpu-1": "the node has no pod of this version yet"},
            id="old version",
        ),
        pytest.param(
            [pod("gpu-1", "1", ready=True), pod("gpu-1", "2", ready=True)],
            ["gpu-1"],
            {},
            id="old one on its way out",
        ),
        pytest.param(
            [pod("gpu-1", "2", ready=False, containerStatuses=[PULL])],
            ["gpu-1"],
            {"gpu-1": "plugin-x is Running: plugin: ImagePullBackOff"},
            id="image",
        ),
        pytest.param(
            [pod("gpu-1", "2", ready=True), pod("gpu-2", "2", ready=False)],
            ["gpu-1"],
            {},
            id="dead node outside the play",
        ),
        pytest.param(
            [pod(None, "2", ready=False, phase="Pending")],
            ["gpu-9"],
            {"gpu-9": "plugin-x is Pending"},
            id="not scheduled",
        ),
    ],
)
def test_rollout(pods: list[dict[str, Any]], nodes: list[str], waiting: dict[str, str]) -> None:
    # The first was the template once before; that it is again gave it the higher number.
    revisions = [
        {"revision": 3, "metadata": {"labels": {"controller-revision-hash": "2"}}},
        {"revision": 2, "metadata": {"labels": {"controller-revision-hash": "1"}}},
    ]
    assert plan_device_plugin.rollout(pods, nodes, revisions) == waiting


def test_rollout_before_the_controller_has_seen_the_daemonset() -> None:
    assert plan_device_plugin.rollout([], ["gpu-1"], []) == {
        "gpu-1": "the node has no pod of this version yet"
    }


def test_adopted_plugin_counts_in_any_version() -> None:
    pods = [pod("gpu-1", "1", ready=True), pod("gpu-2", "7", ready=False)]
    assert plan_device_plugin.rollout(pods, ["gpu-1", "gpu-2", "gpu-3"]) == {
        "gpu-2": "plugin-x is Running",
        "gpu-3": "the node has no pod",
    }


def test_other_pods_of_an_adopted_chart_do_not_count() -> None:
    """The chart's DaemonSets share one selector: its helper nvidia-device-plugin.selectorLabels."""
    pods = [
        pod("gpu-1", "1", ready=False),
        pod("gpu-1", "5", ready=True, volumes=(MPS,)),
        pod("gpu-2", "5", ready=True, volumes=(MPS,)),
    ]
    assert plan_device_plugin.rollout(pods, ["gpu-1", "gpu-2"]) == {
        "gpu-1": "plugin-x is Running",
        "gpu-2": "the node has no pod",
    }
