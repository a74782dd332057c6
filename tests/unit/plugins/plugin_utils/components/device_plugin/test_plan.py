# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    labels,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    plan as plan_device_plugin,
)

OBSERVED: dict[str, Any] = {
    "daemonsets": [],
    "runtime_classes": [],
    "priority_classes": [],
    "rows": {},
    "members": [],
    "errors": [],
    "cluster_policies": [],
    "policies": {"MutatingAdmissionPolicy": [], "ValidatingAdmissionPolicy": []},
    "policy_errors": [],
    "config_maps": [],
}
DESIRED: dict[str, Any] = {
    "state": "present",
    "foreign": "refuse",
    "adopt": "",
    "image": "nvcr.io/nvidia/k8s-device-plugin",
    "version": "v1",
    "image_pull_secrets": [],
    "device_list_strategy": "auto",
    "args": [],
    "config": {},
    "env": {},
    "affinity": {},
    "namespace": "kube-system",
    "name": "nvidia-device-plugin",
    "runtime_class": "nvidia",
    "node_selector": {"nvidia.com/gpu.present": "true"},
    "tolerations": [],
    "priority_class": "",
    "resources": {},
    "guard": "auto",
    "guard_exempt_namespaces": ["kube-system"],
    "guard_resources": ["nvidia.com/gpu", "nvidia.com/mig-"],
}


def plan(daemonsets: Any = (), **more: Any) -> Any:
    """Plan with what is given, which is observed or desired."""
    observed: Any = {name: more.pop(name, value) for name, value in OBSERVED.items()}
    desired: Any = DESIRED | more
    assert {*desired} == {*DESIRED}
    return plan_device_plugin.plan(observed | {"daemonsets": daemonsets}, desired)


def chosen(made: Any) -> tuple[str, str]:
    """Return the strategy and the RuntimeClass of the DaemonSet in a plan."""
    spec = made["data"]["manifests"][-1]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    return env["DEVICE_LIST_STRATEGY"], spec.get("runtimeClassName", "")


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
ADOPT = {"foreign": "adopt", "adopt": "gpu-operator/x"}
ADOPT_HELM = {"foreign": "adopt", "adopt": "kube-system/nvidia-device-plugin"}


def member(engine: str | None, **more: Any) -> dict[str, Any]:
    (one,) = members(engine)
    return one | more


def members(*chosen: str | None) -> list[dict[str, Any]]:
    return [
        {
            "host": f"h{number}",
            "node": f"n{number}",
            "engine": engine,
            "versions": {},
            "cdi": None,
            "default": None,
            "gives_gpus_by_default": engine == "docker",
        }
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
        pytest.param(CHART, ADOPT_HELM, [], id="the whole chart, adopted"),
        pytest.param([FOREIGN], {"foreign": "adopt"}, ["DEVICE_PLUGIN_FOREIGN"], id="no name"),
        pytest.param([HELM], ADOPT, ["DEVICE_PLUGIN_FOREIGN"], id="another name"),
        pytest.param(
            [FOREIGN], {"adopt": "gpu-operator/x"}, ["DEVICE_PLUGIN_FOREIGN"], id="only named"
        ),
        pytest.param([FOREIGN, HELM], ADOPT, ["DEVICE_PLUGIN_TWICE"], id="one more than the named"),
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
    assert codes(plan(found, **desired)["refusals"]) == expected


TENANTS = daemonset("team-a", "x", "registry.example/team-a/nvidia/k8s-device-plugin:1")


@pytest.mark.parametrize(
    ("desired_pods", "pods", "selector", "counts"),
    [
        pytest.param(0, 0, {"no": "node"}, False, id="nowhere"),
        pytest.param(2, 2, {"no": "node"}, True, id="somewhere"),
        pytest.param(2, 0, {}, False, id="its pods are not admitted"),
        # As NVIDIA's chart has it, whose pods come as soon as the role adds the label.
        pytest.param(0, 0, {"nvidia.com/gpu.present": "true"}, True, id="soon"),
    ],
)
def test_a_plugin_without_pods_stops_nobody(
    desired_pods: int, pods: int, selector: dict[str, str], counts: bool
) -> None:
    """Whoever may create DaemonSets could stop each run by one that runs nowhere."""
    found = copy.deepcopy(TENANTS)
    found["spec"]["template"]["spec"]["nodeSelector"] = selector
    found["status"] = {"desiredNumberScheduled": desired_pods, "currentNumberScheduled": pods}
    rows = {"n1": {"state": "ok", "labels": {}, "annotations": {}}}
    for wish in ({}, {"foreign": "adopt", "adopt": "gpu-operator/x"}):
        made = plan([found], members=members("containerd"), rows=rows, **wish)
        assert codes(made["refusals"]) == ["DEVICE_PLUGIN_FOREIGN"] * counts
        assert made["data"]["is_adopted"] is False


def test_a_permission_that_is_withheld_is_a_refusal() -> None:
    said = 'User "bob" cannot list resource "daemonsets" in API group "apps" at the cluster scope'
    (refusal,) = plan(errors=[said])["refusals"]
    assert refusal["code"] == "CLUSTER_FORBIDDEN"


DOCKER = member("docker")


def runtime_class(handler: str, name: str = "nvidia", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "handler": handler}


OUR_CLASS = runtime_class("nvidia", **MARKS)


@pytest.mark.parametrize(
    ("found", "desired", "creates", "codes_"),
    [
        pytest.param([], {}, True, [], id="none"),
        pytest.param([runtime_class("nvidia", "kata")], {}, True, [], id="another name"),
        pytest.param([OUR_CLASS], {}, True, [], id="ours"),
        pytest.param([runtime_class("nvidia")], {}, False, [], id="theirs"),
        pytest.param(
            [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}], {}, False,
            [], id="theirs, without labels",
        ),
        pytest.param(
            [runtime_class("nvidia", **{"app.kubernetes.io/managed-by": "metal.gpu"})], {}, False,
            [], id="of another part of this collection",
        ),
        pytest.param(
            [runtime_class("nvidia-container-runtime")], {}, False, ["RUNTIME_CLASS_OTHER"],
            id="theirs, with another handler",
        ),
        pytest.param([runtime_class("other")], {"runtime_class": ""}, False, [], id="not wanted"),
        pytest.param(
            [runtime_class("other")], {"members": [DOCKER]},
            False, ["GUARD_WARNS"], id="not wanted under Docker",
        ),
    ],
)  # fmt: skip
def test_a_runtime_class_of_the_admin_is_never_changed(
    found: list[dict[str, Any]], desired: dict[str, Any], creates: bool, codes_: list[str]
) -> None:
    made = plan(runtime_classes=found, **desired)
    assert codes(made["refusals"] + made["notices"]) == codes_
    assert ("RuntimeClass" in [one["kind"] for one in made["data"]["manifests"]]) is creates


def test_a_runtime_class_with_another_handler_is_named_with_both() -> None:
    found = [runtime_class("nvidia-container-runtime")]
    (refusal,) = plan(runtime_classes=found)["refusals"]
    assert refusal["message"] == (
        "cluster: the RuntimeClass nvidia has the handler nvidia-container-runtime; the "
        "device plugin needs the handler nvidia"
    )
    assert "set device_plugin_runtime_class to another name" in refusal["remedy"]


LABEL = "nvidia.com/gpu.present"


@pytest.mark.parametrize(
    ("found", "annotations", "refused"),
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
    found: dict[str, str], annotations: dict[str, str], refused: bool
) -> None:
    row: Any = {"state": "ok", "labels": found, "annotations": annotations}
    refusals = plan(members=members("containerd"), rows={"n1": row})["refusals"]
    assert [(one["code"], one["host"]) for one in refusals] == [
        ("NODE_LABEL_TAKEN", "h1")
    ] * refused
    patches = labels.labelling({"n1": row}, DESIRED["node_selector"])
    assert bool(patches) is (found.get(LABEL) != "true" and not refused)


def test_adopted_plugin_is_named_and_found_by_its_own_selector() -> None:
    made = plan([FOREIGN], **ADOPT)
    assert codes(made["notices"]) == ["DEVICE_PLUGIN_ADOPTED"]
    expected = {"namespace": "gpu-operator", "name": "x", "selectors": ["app=x"]}
    assert made["data"]["used"] == expected
    assert made["data"]["is_adopted"] is True
    assert [one["kind"] for one in made["data"]["manifests"]] == ["PriorityClass"]


@pytest.mark.parametrize(
    ("found", "creates"),
    [
        pytest.param([], True, id="none"),
        pytest.param([{"metadata": {"name": "metal-gpu-proof", "labels": MARKS}}], True, id="ours"),
        pytest.param([{"metadata": {"name": "metal-gpu-proof"}}], False, id="theirs"),
        pytest.param([{"metadata": {"name": "other"}}], True, id="another name"),
    ],
)
def test_the_class_of_the_proof_preempts_nobody(found: list[dict[str, Any]], creates: bool) -> None:
    made = plan(priority_classes=found)["data"]["manifests"]
    classes = [one for one in made if one["kind"] == "PriorityClass"]
    assert bool(classes) is creates
    for one in classes:
        assert one["metadata"] == {"name": "metal-gpu-proof", "labels": MARKS}
        # The lowest value that the API server accepts.
        assert (one["value"], one["preemptionPolicy"]) == (-2147483648, "Never")
        assert "globalDefault" not in one


def test_ours_is_found_by_its_labels() -> None:
    for state in ("present", "absent"):
        data = plan(state=state)["data"]
        assert data["used"] == {
            "namespace": "kube-system",
            "name": "nvidia-device-plugin",
            "selectors": data["marks"],  # Helm's pods can have our name, but not our mark
        }
        assert data["is_adopted"] is False
        assert data["marks"] == [",".join("=".join(mark) for mark in reversed(MARKS.items()))]


GPU_LABEL = {"nvidia.com/gpu.present": "true"}
BY_US = {"metal.gpu/labelled": "nvidia.com/gpu.present"}


@pytest.mark.parametrize(
    ("scheduled", "added", "refused", "staying"),
    [
        pytest.param(2, {}, ["h1"], {}, id="the admin's label, and another node needs it"),
        pytest.param(2, BY_US, [], {}, id="our label"),
        pytest.param(1, {}, [], {}, id="no other node: the DaemonSet goes"),
        pytest.param(1, {}, [], {"n1": "gpu-operator/x"}, id="an adopted plugin"),
    ],
)
def test_what_a_teardown_knows_before_it_evicts(
    scheduled: int, added: dict[str, str], refused: Any, staying: Any
) -> None:
    """The node would keep its GPUs, so evicted pods would come back, or the node stay cordoned."""
    found = [FOREIGN] if staying else [ours(nodes=scheduled)]
    rows = {"n1": {"state": "ok", "labels": GPU_LABEL, "annotations": added}}
    made = plan(found, state="absent", members=members("containerd"), rows=rows)
    assert [(one["code"], one["host"]) for one in made["refusals"]] == [
        ("LABEL_OF_ADMIN", host) for host in refused
    ]
    assert made["data"]["staying"] == staying


@pytest.mark.parametrize(
    ("found", "desired", "expected"),
    [
        pytest.param(["containerd"], {}, ("cdi-cri", "nvidia"), id="containerd"),
        pytest.param(["docker", "docker"], {}, ("envvar", ""), id="docker"),
        pytest.param([], {}, ("cdi-cri", "nvidia"), id="nobody observed"),
        pytest.param([None, "docker"], {}, ("envvar", ""), id="one of an unknown engine"),
        pytest.param(["crio"], {}, ("cdi-cri", "nvidia"), id="CRI-O"),
        pytest.param(["containerd", "crio"], {}, ("cdi-cri", "nvidia"), id="both have CDI"),
        pytest.param(
            ["containerd"],
            {"device_list_strategy": "envvar"},
            ("envvar", "nvidia"),
            id="as desired",
        ),
        pytest.param(["containerd"], {"runtime_class": ""}, ("cdi-cri", ""), id="no class"),
        pytest.param(
            ["containerd", "docker"],
            {"device_list_strategy": "envvar", "runtime_class": ""},
            ("envvar", ""),
            id="one setting for both",
        ),
    ],
)
def test_how_gpus_get_into_containers(
    found: list[str | None], desired: dict[str, Any], expected: tuple[str, str]
) -> None:
    made = plan(members=members(*found), **desired)
    assert made["refusals"] == []
    assert chosen(made) == expected


@pytest.mark.parametrize(
    ("found", "engines", "desired", "code", "said"),
    [
        pytest.param(
            [], ["docker", "containerd"], {}, "DEVICE_PLUGIN_MIXED",
            "docker on h1, containerd on h2", id="mixed",
        ),
        pytest.param(
            [], ["docker", "containerd"], {"device_list_strategy": "envvar"}, "DEVICE_PLUGIN_MIXED",
            "docker on h1, containerd on h2", id="mixed, with a runtime class",
        ),
        pytest.param(
            [], ["docker"], {"device_list_strategy": "cdi-cri"}, "DEVICE_PLUGIN_STRATEGY",
            "device_plugin_device_list_strategy is cdi-cri, but no known release of "
            "cri-dockerd passes CDI devices to Docker: h1",
            id="CDI under Docker",
        ),
        pytest.param(
            [ours(nodes=7)], ["docker"], {}, "DEVICE_PLUGIN_MIXED",
            "it uses the strategy cdi-cri on 7 nodes, but the nodes of this run (1) need envvar",
            id="limited to the one Docker node of many",
        ),
    ],
)  # fmt: skip
def test_one_plugin_cannot_serve_everybody(
    found: list[dict[str, Any]], engines: list[str], desired: dict[str, Any], code: str, said: str
) -> None:
    made = plan(found, members=members(*engines), **desired)
    (refusal,) = made["refusals"]
    assert refusal["code"] == code
    assert said in refusal["message"]


def test_all_nodes_may_change_their_engine_together() -> None:
    made = plan([ours(nodes=1)], members=members("docker"))
    assert chosen(made) == ("envvar", "")


OLD = member("containerd", versions={"containerd": "1.6.20"})
NEW = member("containerd", host="h2", node="n2", versions={"containerd": "2.4.1"})


def test_containerd_without_cdi_gets_the_environment() -> None:
    assert chosen(plan(members=[OLD])) == ("envvar", "nvidia")


def test_versions_that_differ_are_named() -> None:
    (refusal,) = plan(members=[OLD, NEW])["refusals"]
    assert refusal["code"] == "DEVICE_PLUGIN_MIXED"
    assert "containerd 1.6.20 on h1, containerd on h2" in refusal["message"]


def dra_driver(**spec: Any) -> dict[str, Any]:
    found = daemonset("dra", "kubelet-plugin", "dra-driver-nvidia-gpu:1", "gpu-kubelet-plugin")
    found["spec"]["template"]["spec"] |= {"volumes": [], **spec}
    return found


@pytest.mark.parametrize(
    ("node", "driver", "expected"),
    [
        pytest.param(DOCKER, dra_driver(), ["DRA_WITHOUT_CDI"], id="cri-dockerd 0.4.3"),
        pytest.param(
            DOCKER | {"versions": {"cri-dockerd": "0.5.0"}},
            dra_driver(),
            ["DRA_WITHOUT_CDI"],
            id="a cri-dockerd that nobody has seen",
        ),
        pytest.param(OLD, dra_driver(), ["DRA_WITHOUT_CDI"], id="containerd 1.6"),
        pytest.param(member("containerd"), dra_driver(), [], id="containerd"),
        pytest.param(DOCKER, dra_driver(nodeSelector={"dra": "yes"}), [], id="not on this node"),
    ],
)
def test_devices_of_a_dra_driver_that_the_engine_drops(
    node: Any, driver: Any, expected: list[str]
) -> None:
    row: Any = {"state": "ok", "labels": {}, "annotations": {}}
    assert codes(plan([driver], members=[node], rows={"n1": row})["refusals"]) == expected


def affinity(value: str) -> dict[str, Any]:
    rule = {"key": "pool", "operator": "In", "values": [value]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("state", "value", "expected"),
    [
        pytest.param("ok", "gpu", [], id="allowed"),
        pytest.param("ok", "other", ["DEVICE_PLUGIN_EXCLUDES"], id="excluded"),
        pytest.param("missing", "other", [], id="not in the cluster yet"),
    ],
)
def test_affinity_that_excludes_a_node_of_the_play(
    state: str, value: str, expected: list[str]
) -> None:
    row: Any = {"state": state, "labels": {"pool": "gpu"}, "annotations": {}}
    made = plan(members=members("containerd"), rows={"n1": row}, affinity=affinity(value))
    assert codes(made["refusals"]) == expected


def test_every_variable_that_is_not_usable_is_a_refusal() -> None:
    wrong = {"config": {"sharing": {"mps": {}}}, "env": {"CONFIG_FILE": "x"}, "args": []}
    made = plan(**wrong, affinity={"node": {}})
    assert codes(made["refusals"]) == ["DEVICE_PLUGIN_VARIABLE"] * 3
    said = [one["message"] for one in made["refusals"]]
    assert said == [
        "cluster: device_plugin_config has sharing.mps, whose control daemon this role does not "
        "run",
        "cluster: device_plugin_env has CONFIG_FILE, which device_plugin_config sets",
        "cluster: device_plugin_affinity has the key node, expected nodeAffinity, podAffinity or "
        "podAntiAffinity",
    ]


OPERATORS_TOOLKIT = daemonset(
    "gpu-operator",
    "nvidia-container-toolkit-daemonset",
    "mirror.example/nvidia/k8s/container-toolkit:v1.20.0",
    volumes=(),
)
OPERATORS_DRIVER = daemonset(
    "gpu-operator", "nvidia-driver-daemonset", "nvcr.io/nvidia/driver@sha256:0", volumes=()
)
MEMBER = member("containerd", host="a", node="gpu-1")


@pytest.mark.parametrize(
    ("found", "labels", "expected"),
    [
        pytest.param(OPERATORS_TOOLKIT, {"deploy": "true"}, ["toolkit.enabled"], id="toolkit"),
        pytest.param(OPERATORS_DRIVER, {"deploy": "true"}, ["driver.enabled"], id="driver"),
        pytest.param(OPERATORS_TOOLKIT, {}, [], id="for other nodes"),
        pytest.param(FEATURES, {"deploy": "true"}, [], id="feature discovery"),
    ],
)
def test_operator_that_installs_the_same(
    found: dict[str, Any], labels: dict[str, str], expected: list[str]
) -> None:
    selecting = copy.deepcopy(found)
    selecting["spec"]["template"]["spec"]["nodeSelector"] = {"deploy": "true"}
    row = {"state": "ok", "labels": labels, "annotations": {}}
    made = plan([selecting], members=[MEMBER], rows={"gpu-1": row})
    said = [one for one in made["notices"] if one["code"] == "OPERATOR_INSTALLS"]
    assert len(said) == len(expected)
    for one, value in zip(said, expected, strict=True):
        assert f"{value}=false" in one["remedy"]
    assert made["refusals"] == []


CONFIG_MAP = {
    "metadata": {"name": "nvidia-device-plugin-config", "namespace": "kube-system", "labels": MARKS}
}


def renamed(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {**CONFIG_MAP["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("found", "desired", "goes"),
    [
        pytest.param([CONFIG_MAP], {}, True, id="the configuration left the variable"),
        pytest.param([CONFIG_MAP], {"config": {"flags": {}}}, False, id="in use"),
        pytest.param([], {}, False, id="there was none"),
        pytest.param([renamed(labels={})], {}, False, id="of somebody else"),
        pytest.param([renamed(name="x")], {}, False, id="another name"),
    ],
)
def test_configmap_of_a_former_configuration(found: Any, desired: Any, goes: bool) -> None:
    former = plan([ours()], config_maps=found, **desired)["data"]["former"]
    names = [(one["kind"], one["metadata"]["name"]) for one in former]
    assert names == ([("ConfigMap", "nvidia-device-plugin-config")] if goes else [])


def test_configmap_of_an_adopted_plugin_stays() -> None:
    assert plan([HELM], **ADOPT_HELM, config_maps=[CONFIG_MAP])["data"]["former"] == []
