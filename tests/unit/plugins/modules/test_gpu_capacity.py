# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    capacity,
    final_causes,
    kube_collections,
    kube_settings,
    kube_transport,
    plugin_evidence,
)
from ansible_collections.metal.gpu.plugins.modules import gpu_capacity
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

GPU = "nvidia.com/gpu"
READY = {"type": "Ready", "status": "True"}
SILENT = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
NOT_READY = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no CNI"}


def node(name, capacity, allocatable=None, ready=None, resource=GPU):
    allocatable = capacity if allocatable is None else allocatable
    amounts = {} if capacity is None else {resource: str(capacity)}
    free = {} if capacity is None else {resource: str(allocatable)}
    status = {"capacity": amounts, "allocatable": free, "conditions": [ready or READY]}
    return {"metadata": {"name": name}, "status": status}


LABELS = {"name": "plugin"}
PLUGIN = {
    "containers": [{"name": "plugin", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.3"}],
    "volumes": [{"hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
}


def plugin_pod(on, **status):
    metadata = {"name": f"plugin-{on}", "namespace": "kube-system", "labels": LABELS}
    return {
        "metadata": metadata,
        "spec": {**PLUGIN, "nodeName": on},
        "status": {"phase": "Running", **status},
    }


def daemonset(**spec):
    return {
        "metadata": {"name": "plugin", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": LABELS}, "template": {"spec": {**PLUGIN, **spec}}},
    }


def test_nodes_that_are_as_expected_cost_one_list(api, call):
    api.put("nodes", node("gpu-1", 4))
    api.put("nodes", node("gpu-2", 8))
    api.put("nodes", node("cpu-1", None))
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": "8", "cpu-1": None})
    assert result["changed"] is False
    assert "failed" not in result
    assert (
        result["nodes"]["gpu-2"].items()
        >= {
            "state": "ok",
            "capacity": 8,
            "allocatable": 8,
            "expected": 8,
            "message": "",
            "evidence": [],
        }.items()
    )
    assert result["nodes"]["cpu-1"].items() >= {"capacity": None, "expected": None}.items()
    assert [made.verb for made in api.requests] == ["list"]


@pytest.mark.parametrize(
    ("nodes", "expected", "found"),
    [
        pytest.param(["gpu-1", "gpu-2"], 4, [4, 4], id="list"),
        pytest.param(["gpu-1", "gpu-1"], "4", [4], id="twice"),
        pytest.param(["gpu-1", "gpu-2"], None, [None, None], id="report"),
        pytest.param("gpu-1,gpu-2", 4, [4, 4], id="text-of-a-list"),
        pytest.param("gpu-1=4 gpu-2=4", None, [4, 4], id="text-of-a-dictionary"),
        pytest.param('{"gpu-1": 4, "gpu-2": null}', None, [4, None], id="json"),
    ],
)
def test_nodes_can_share_one_amount(api, call, nodes, expected, found):
    api.put("nodes", node("gpu-1", 4))
    api.put("nodes", node("gpu-2", 4))
    result = call(gpu_capacity, nodes=nodes, expected=expected, wait_timeout=0)
    assert "failed" not in result
    assert [row["expected"] for row in result["nodes"].values()] == found


@pytest.mark.parametrize(
    ("boot", "machine", "found"),
    [
        pytest.param("b1", "m1", "", id="this one"),
        pytest.param("b1", "m9", "", id="a kubelet in a container"),
        pytest.param("b0", "m1", "", id="the kubelet has not reported since the boot"),
        pytest.param("b9", "m9", "boot id b9, machine id m9", id="another one"),
        pytest.param(
            "b9", "", "boot id b9, machine id none", id="nothing shows that it is this one"
        ),
        pytest.param("", "", "", id="no kubelet has reported yet"),
    ],
)
def test_a_node_that_is_another_machine_is_missing(api, call, boot, machine, found):
    other = node("gpu-1", 4)
    other["status"]["nodeInfo"] = {"bootID": boot, "machineID": machine}
    api.put("nodes", other)
    machines = {"gpu-1": {"boot_id": "b1", "machine_id": "m1"}}
    result = call(gpu_capacity, nodes={"gpu-1": 4}, machines=machines, wait_timeout=60)
    row = result["nodes"]["gpu-1"]
    assert (row["state"], row["another"]) == ("missing" if found else "ok", found)
    assert row["seconds"] < 30
    if found:  # nor does a host that hides its ids get away with it
        hidden = {"gpu-1": {"boot_id": None, "machine_id": None}}
        row = call(gpu_capacity, nodes={"gpu-1": 4}, machines=hidden, wait_timeout=0)["nodes"][
            "gpu-1"
        ]
        assert row["state"] == "missing"


def test_nothing_is_expected_of_the_unawaited(api, call):
    api.put("nodes", node("gpu-1", 4))
    api.put("nodes", node("gpu-2", 8, allocatable=7))
    result = call(gpu_capacity, nodes={"gpu-1": 4}, unawaited=["gpu-2", "gone"])
    assert "failed" not in result
    assert list(result["nodes"]) == ["gpu-2", "gone", "gpu-1"]
    assert result["nodes"]["gpu-2"].items() >= {"state": "ok", "allocatable": 7}.items()
    assert result["nodes"]["gone"]["state"] == "missing"
    assert [made.verb for made in api.requests] == ["list"]


def test_without_expected_nodes_there_is_no_wait(api, call):
    result = call(gpu_capacity, nodes={}, unawaited=["gone"])
    assert result["nodes"]["gone"]["seconds"] < 5


@pytest.mark.parametrize(
    ("condition", "ready", "readiness"),
    [
        pytest.param(READY, True, "", id="ready"),
        pytest.param(
            NOT_READY, False, "condition Ready is False: KubeletNotReady: no CNI", id="not"
        ),
        pytest.param(SILENT, None, "condition Ready is Unknown: NodeStatusUnknown", id="unknown"),
    ],
)
def test_readiness_is_reported_and_does_not_change_the_state(
    api, call, condition, ready, readiness
):
    api.put("nodes", node("gpu-1", 4, ready=condition))
    result = call(gpu_capacity, nodes={"gpu-1": 4}, unawaited=["gone"])
    assert "failed" not in result
    row, gone = result["nodes"]["gpu-1"], result["nodes"]["gone"]
    assert (row["state"], row["ready"], row["readiness"]) == ("ok", ready, readiness)
    assert (gone["ready"], gone["readiness"]) == (None, "")
    assert [made.verb for made in api.requests] == ["list"]


def test_waits_until_the_nodes_are_ready(api, call):
    api.put("nodes", node("gpu-1", 4, ready=NOT_READY))
    api.put("nodes", node("gpu-2", None, ready=NOT_READY))
    api.when_watched["nodes"] = lambda: api.put("nodes", node("gpu-1", 4))
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": None}, ready=True)
    assert "failed" not in result
    assert [row["ready"] for row in result["nodes"].values()] == [True, False]
    assert [made.verb for made in api.requests] == ["list", "watch"]


def test_node_that_does_not_become_ready_differs(api, call):
    api.put("nodes", node("gpu-1", 4, ready=SILENT))
    api.put("nodes", node("gpu-2", 4))
    api.put("pods", plugin_pod("gpu-1"))
    nodes = {"gpu-1": 4, "gpu-2": 4}
    result = call(gpu_capacity, nodes=nodes, ready=True, wait_timeout=0)
    assert result["msg"].splitlines() == [
        "1 of 2 nodes do not have the expected nvidia.com/gpu after 0 s:",
        "gpu-1: the node is not ready; condition Ready is Unknown: NodeStatusUnknown; "
        "pod kube-system/plugin-gpu-1 is Running",
    ]
    assert api.made("log", "pods") == []  # no kubelet would answer


def test_reports_what_differs(api, call):
    api.put("nodes", node("gpu-1", 4))
    result = call(gpu_capacity, nodes={"gpu-1": 8}, wait_timeout=0, report_only=True)
    assert "failed" not in result
    assert result["error"] == ""
    assert result["nodes"]["gpu-1"]["state"] == "differs"


def test_reports_why_there_is_no_answer(api, call):
    result = call(gpu_capacity, nodes={"gpu-1": 8}, api_key="wrong", report_only=True)
    assert "failed" not in result
    assert result["nodes"] == {}
    assert "401" in result["error"]


def test_waits_for_all_nodes_in_one_watch(api, call):
    api.put("nodes", node("gpu-1", None))

    def arrive():
        api.put("nodes", node("gpu-1", 4, allocatable=0))
        api.put("nodes", node("gpu-2", 2))
        api.put("nodes", node("gpu-1", 4))

    api.when_watched["nodes"] = arrive
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": 2})
    assert {name: row["state"] for name, row in result["nodes"].items()} == {
        "gpu-1": "ok",
        "gpu-2": "ok",
    }
    assert [made.verb for made in api.requests] == ["list", "watch"]


def test_a_node_that_falls_back_is_waited_for_again(api, call):
    api.put("nodes", node("gpu-1", 4))

    def flap():
        api.put("nodes", node("gpu-1", 4, allocatable=3))
        api.put("nodes", node("gpu-2", 4))
        api.put("nodes", node("gpu-1", 4))

    api.when_watched["nodes"] = flap
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": 4})
    assert result["nodes"]["gpu-1"]["allocatable"] == 4
    assert "failed" not in result


@pytest.mark.parametrize(
    ("nodes", "field"), [({"gpu-1": 4}, "metadata.name=gpu-1"), ({"gpu-1": 4, "gpu-2": 4}, None)]
)
def test_a_single_node_is_queried_by_its_name(api, call, nodes, field):
    api.put("nodes", node("gpu-1", 4))
    api.put("nodes", node("gpu-2", 4))
    call(gpu_capacity, nodes=nodes)
    assert [made.query.get("fieldSelector") for made in api.requests] == [field]


def test_other_resources(api, call):
    api.put("nodes", node("gpu-1", "16Gi", resource="memory"))
    result = call(gpu_capacity, nodes={"gpu-1": "16384Mi"}, resource="memory")
    assert result["nodes"]["gpu-1"]["capacity"] == 16 * 2**30


def test_failure_explains_each_node(api, call):
    api.put("nodes", node("gpu-1", 4))
    api.put("nodes", node("gpu-2", 4, allocatable=3))
    api.put("nodes", node("gpu-3", None, ready=NOT_READY))
    api.put("pods", plugin_pod("gpu-2"))
    api.put("pods", {"metadata": {"name": "a", "namespace": "b"}, "spec": {"nodeName": "gpu-3"}})
    api.logs["plugin-gpu-2"] = "starting\nXid=79 on Device=GPU-4d23e6a1\n\n"
    nodes = {"gpu-1": 4, "gpu-2": 4, "gpu-3": 4, "gpu-4": 4}
    result = call(gpu_capacity, nodes=nodes, wait_timeout=0)
    assert result["failed"] is True
    assert result["msg"].splitlines() == [
        "3 of 4 nodes do not have the expected nvidia.com/gpu after 0 s:",
        "gpu-2: expected 4, capacity is 4, allocatable is 3: 1 unhealthy; pod "
        "kube-system/plugin-gpu-2 is Running, and logged: Xid=79 on Device=GPU-4d23e6a1",
        "gpu-3: expected 4, but the node's capacity has no nvidia.com/gpu: no device plugin has "
        "registered it with the kubelet; condition Ready is False: KubeletNotReady: no CNI; "
        "no device plugin pod runs on this node",
        "gpu-4: the cluster has no node of this name",
    ]
    assert {name: row["state"] for name, row in result["nodes"].items()} == {
        "gpu-1": "ok",
        "gpu-2": "differs",
        "gpu-3": "differs",
        "gpu-4": "missing",
    }
    assert api.made("watch", "nodes") == []


def test_every_node_has_evidence_by_one_list_and_the_first_have_logs(api, call):
    names = [f"gpu-{number}" for number in range(100, 103 + plugin_evidence.LOG_PODS)]
    api.put("daemonsets", daemonset())
    for name in names:
        api.put("nodes", node(name, 2, ready=NOT_READY))
        api.put("pods", plugin_pod(name))
        api.logs[f"plugin-{name}"] = "lost\n"
    result = call(gpu_capacity, nodes=names, expected=4, wait_timeout=0)
    condition = "condition Ready is False: KubeletNotReady: no CNI"
    for number, name in enumerate(names):
        logged = ", and logged: lost" if number < plugin_evidence.LOG_PODS else ""
        pod = f"pod kube-system/plugin-{name} is Running{logged}"
        assert result["nodes"][name]["evidence"] == [condition, pod]
    assert len(api.made("list", "pods")) == 1


def test_a_node_that_is_not_waited_for_is_explained_too(api, call):
    """For a hardware fault, waiting is useless, but the evidence is not."""
    api.put("nodes", node("gpu-1", 4, allocatable=3))
    api.put("nodes", node("gpu-2", 4))
    api.put("pods", plugin_pod("gpu-1"))
    api.put("daemonsets", daemonset())
    api.logs["plugin-gpu-1"] = "'nvidia.com/gpu' device marked unhealthy: GPU-e47efc7b\nstill here"
    result = call(gpu_capacity, nodes={"gpu-2": 4}, unawaited={"gpu-1": 4, "gone": None})
    assert "failed" not in result
    row = result["nodes"]["gpu-1"]
    assert row["state"] == "differs"
    assert row["seconds"] < 5
    assert row["evidence"] == [
        "pod kube-system/plugin-gpu-1 is Running, and logged: 'nvidia.com/gpu' device marked "
        "unhealthy: GPU-e47efc7b"
    ]
    assert row["cause"]["code"] == "GPU_UNHEALTHY"
    assert result["nodes"]["gpu-2"]["cause"] is None
    assert api.made("watch", "nodes") == []


@pytest.fixture
def looks_at_once(monkeypatch):
    monkeypatch.setattr(capacity, "FIRST_LOOK_S", 0.1)
    monkeypatch.setattr(capacity, "NEXT_LOOK_S", 0.2)


def test_nobody_waits_for_what_does_not_end_by_itself(api, call, looks_at_once):
    """The label is missing, which only an admin changes; the other node is on its way."""
    api.put("nodes", node("gpu-1", None))
    api.put("nodes", node("gpu-2", 2))
    api.put("daemonsets", daemonset(nodeSelector={"gpu": "true"}))
    api.put("pods", plugin_pod("gpu-2"))
    api.longest_watch_s = 0.3
    waits = {"wait_timeout": 5, "report_only": True}
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": 4}, give_up=True, **waits)
    hopeless, slow = result["nodes"]["gpu-1"], result["nodes"]["gpu-2"]
    assert hopeless["cause"]["code"] == "DEVICE_PLUGIN_NOT_SELECTED"
    assert hopeless["seconds"] < 3
    assert slow["seconds"] >= 5


def test_the_wait_ends_with_the_last_node_that_is_worth_it(api, call, looks_at_once):
    api.put("nodes", node("gpu-1", None))
    api.put("nodes", node("gpu-2", 4))
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": 4}, give_up=True, wait_timeout=60)
    assert result["nodes"]["gpu-1"]["cause"]["code"] == "DEVICE_PLUGIN_MISSING"
    assert result["nodes"]["gpu-1"]["seconds"] < 10
    assert result["nodes"]["gpu-2"]["state"] == "ok"


def test_a_node_that_was_given_up_may_recover(api, call, looks_at_once):
    """While another one is waited for."""
    api.put("nodes", node("gpu-1", None))
    api.put("nodes", node("gpu-2", 2))
    api.put("daemonsets", daemonset(nodeSelector={"gpu": "true"}))
    api.put("pods", plugin_pod("gpu-2"))
    api.longest_watch_s = 0.3

    def mend():
        api.put("nodes", node("gpu-1", 4))
        api.put("nodes", node("gpu-2", 4))

    api.when_listed["daemonsets"] = lambda: api.when_watched.update(nodes=mend)
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": 4}, give_up=True, wait_timeout=60)
    assert "failed" not in result
    assert {row["state"] for row in result["nodes"].values()} == {"ok"}
    assert result["nodes"]["gpu-1"]["cause"] is None


@pytest.mark.parametrize(("patience_s", "is_given_up"), [(60.0, False), (0.5, True)])
def test_labels_of_a_node_that_has_just_joined_are_waited_for(
    api, call, looks_at_once, monkeypatch, patience_s, is_given_up
):
    """Node Feature Discovery sets them."""
    monkeypatch.setattr(final_causes, "_DISCOVERY_S", patience_s)
    api.put("nodes", node("gpu-1", None))
    selector = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    api.put("daemonsets", daemonset(nodeSelector=selector))
    api.longest_watch_s = 0.2
    row = call(gpu_capacity, nodes={"gpu-1": 4}, give_up=True, wait_timeout=3)["nodes"]["gpu-1"]
    assert row["cause"]["code"] == "DEVICE_PLUGIN_NOT_SELECTED"
    assert (row["seconds"] < 3) is is_given_up
    assert row["seconds"] > 0.5


@pytest.mark.parametrize("is_repeated", [True, False])
def test_an_event_counts_when_it_is_observed_again(api, call, looks_at_once, is_repeated):
    """An event stays for an hour, and the pod may wait for something else by now."""

    def tell(time):
        about = {"kind": "Pod", "name": "plugin-gpu-1"}
        message = 'Failed to create pod sandbox: no runtime for "nvidia" is configured'
        event = {"type": "Warning", "reason": "FailedCreatePodSandBox", "message": message}
        metadata = {"name": "e", "namespace": "kube-system"}
        event |= {"metadata": metadata, "lastTimestamp": f"2026-11-23T16:00:{time}Z"}
        api.put("events", {"involvedObject": about, **event})

    def see_again():
        api.when_listed["events"] = lambda: tell("13")

    creating = {"name": "plugin", "ready": False}
    creating["state"] = {"waiting": {"reason": "ContainerCreating"}}
    api.put("nodes", node("gpu-1", None))
    api.put("daemonsets", daemonset())
    api.put("pods", plugin_pod("gpu-1", phase="Pending", containerStatuses=[creating]))
    tell("01")
    if is_repeated:
        api.when_listed["events"] = see_again
    api.longest_watch_s = 0.2
    row = call(gpu_capacity, nodes={"gpu-1": 4}, give_up=True, wait_timeout=3)["nodes"]["gpu-1"]
    assert row["cause"]["code"] == "RUNTIME_HANDLER_MISSING"
    assert (row["seconds"] < 3) is is_repeated


def test_without_give_up_the_whole_time_is_waited(api, call, looks_at_once):
    api.put("nodes", node("gpu-1", None))
    result = call(gpu_capacity, nodes={"gpu-1": 4}, wait_timeout=1)
    assert result["nodes"]["gpu-1"]["seconds"] >= 1
    assert len(api.made("list", "daemonsets")) == 1


def test_what_is_wrong_whatever_the_amounts_are(api, call):
    """A second plugin, a clock that is an hour behind, a cordon. They cost two lists in all."""
    second = daemonset()
    second["metadata"] = {"name": "second", "namespace": "gpu-operator"}
    for one in (daemonset(), second):
        api.put("daemonsets", one)
    for name, renewed in (("gpu-1", "2001-01-01T00:00:00.000000Z"), ("gpu-2", "")):
        api.put("nodes", node(name, 4))
        metadata = {"name": name, "namespace": "kube-node-lease"}
        api.put("leases", {"metadata": metadata, "spec": {"renewTime": renewed}})
    api.patch("nodes", "gpu-2", {"spec": {"unschedulable": True}})
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": 4}, surroundings=True)
    assert "failed" not in result
    codes = {
        name: [one["code"] for one in row["surroundings"]] for name, row in result["nodes"].items()
    }
    assert codes == {
        "gpu-1": ["DEVICE_PLUGIN_TWICE", "NODE_CLOCK_OFF"],
        "gpu-2": ["NODE_CORDONED", "DEVICE_PLUGIN_TWICE"],
    }
    by = result["nodes"]["gpu-2"]["surroundings"][0]["evidence"]["by"]
    assert by.startswith("by kubectl, since ")
    assert [made.resource for made in api.requests] == ["nodes", "daemonsets", "leases"]


@pytest.mark.parametrize("resource", ["daemonsets", "leases"])
def test_surroundings_that_may_not_be_read(api, call, resource):
    api.put("nodes", node("gpu-1", 4))
    api.refusals["list", resource] = Refusal(403, "withheld")
    result = call(gpu_capacity, nodes={"gpu-1": 4}, surroundings=True)
    assert "failed" not in result
    assert result["nodes"]["gpu-1"]["surroundings"] == []


SELECTS = {"nodeSelector": {"gpu": "true"}}


@pytest.mark.parametrize(
    ("spec", "labels", "taints", "code"),
    [
        pytest.param(None, {}, [], "DEVICE_PLUGIN_MISSING", id="no DaemonSet"),
        pytest.param(SELECTS, {}, [], "DEVICE_PLUGIN_NOT_SELECTED", id="no label"),
        pytest.param(
            SELECTS, {"gpu": "true"}, [{"key": "a", "effect": "NoSchedule"}], "NODE_TAINTED",
            id="taint",
        ),
    ],
)  # fmt: skip
def test_why_no_plugin_runs_costs_two_lists(api, call, spec, labels, taints, code):
    found = node("gpu-1", 0)
    api.put("nodes", {**found, "metadata": {"name": "gpu-1", "labels": labels},
                      "spec": {"taints": taints}})  # fmt: skip
    if spec is not None:
        api.put("daemonsets", daemonset(**spec))
    result = call(gpu_capacity, nodes={"gpu-1": 4}, wait_timeout=0)
    assert result["nodes"]["gpu-1"]["cause"]["code"] == code
    assert len(api.made("list", "daemonsets")) == len(api.made("list", "pods")) == 1


def test_the_log_is_that_of_the_plugin_and_not_of_its_sidecar(api, call):
    """With a configuration, config-manager comes first in the pods of NVIDIA's chart v0.20.0."""
    api.put("nodes", node("gpu-1", 0))
    pod = plugin_pod("gpu-1")
    folder = {"name": "plugins", **PLUGIN["volumes"][0]}
    plugin = {**PLUGIN["containers"][0], "volumeMounts": [{"name": "plugins", "mountPath": "/x"}]}
    containers = [{"name": "config-manager", "image": "a"}, plugin]
    api.put("pods", {**pod, "spec": {**pod["spec"], "volumes": [folder], "containers": containers}})
    call(gpu_capacity, nodes={"gpu-1": 4}, wait_timeout=0)
    assert [one.query["container"] for one in api.made("log", "pods")] == ["plugin"]


def test_a_gpu_that_was_given_up_is_found_behind_days_of_everyday_lines(api, call):
    api.put("nodes", node("gpu-1", 4, allocatable=3))
    api.put("pods", plugin_pod("gpu-1"))
    skipped = "Skipping non-nvmlEventTypeXidCriticalError event: {EventType:1}\n"
    api.logs["plugin-gpu-1"] = "device marked unhealthy: GPU-e47efc7b\n" + skipped * 400
    row = call(gpu_capacity, nodes={"gpu-1": 4}, wait_timeout=0)["nodes"]["gpu-1"]
    assert row["cause"]["code"] == "GPU_UNHEALTHY"


def test_why_a_plugin_pod_is_not_created_is_an_event(api, call):
    api.put("nodes", node("gpu-1", 0))
    api.put("daemonsets", daemonset())
    about = {"kind": "DaemonSet", "name": "plugin"}
    message = (
        'Error creating: pods "plugin-x" is forbidden: exceeded quota: none, requested: pods=1'
    )
    for number, text in enumerate(("an older one", message)):
        metadata = {"name": f"e{number}", "namespace": "kube-system"}
        seen = {"type": "Warning", "lastTimestamp": f"2026-11-22T10:00:0{number}Z"}
        event = {"reason": "FailedCreate", "message": text, **seen}
        api.put("events", {"metadata": metadata, "involvedObject": about, **event})
    cause = call(gpu_capacity, nodes={"gpu-1": 4}, wait_timeout=0)["nodes"]["gpu-1"]["cause"]
    assert cause["code"] == "POD_OVER_QUOTA"
    assert cause["evidence"]["by"] == "the ResourceQuota none"


def test_an_unbound_plugin_pod_is_found_by_its_target_node(api, call):
    api.put("nodes", node("gpu-1", 0))
    api.put("daemonsets", daemonset())
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    condition = {"type": "PodScheduled", "status": "False", "message": "0/9: 1 Too many pods"}
    pod = plugin_pod("gpu-1", phase="Pending", conditions=[condition])
    del pod["spec"]["nodeName"]
    api.put("pods", {**pod, "spec": {**pod["spec"], "affinity": {"nodeAffinity": required}}})
    cause = call(gpu_capacity, nodes={"gpu-1": 4}, wait_timeout=0)["nodes"]["gpu-1"]["cause"]
    assert cause["code"] == "NODE_FULL"


@pytest.mark.parametrize("kind", [("list", "events"), ("list", "daemonsets"), ("log", "pods")])
def test_unreadable_evidence_does_not_change_the_result(api, call, kind):
    api.put("nodes", node("gpu-1", 0))
    api.put("daemonsets", daemonset())
    api.refusals[kind] = Refusal(403, "withheld")
    result = call(gpu_capacity, nodes={"gpu-1": 4}, wait_timeout=0)
    assert result["nodes"]["gpu-1"]["state"] == "differs"
    assert result["nodes"]["gpu-1"]["cause"] is None


def test_the_last_answers_of_a_silent_server_are_kept(api, call, monkeypatch):
    monkeypatch.setattr(kube_collections, "_STALLED_S", 0.0)
    api.put("nodes", node("gpu-1", 4))
    api.put("nodes", node("gpu-2", 2))
    api.stalls["watch", "nodes"] = 999
    nodes = {"gpu-1": 4, "gpu-2": 4}

    def fall_silent():
        api.stalls["list", "nodes"] = 999
        # Not before: a busy machine answers late.
        monkeypatch.setattr(kube_transport, "_READ_S", 0.05)
        monkeypatch.setattr(kube_transport, "_PATIENCE_S", 0.1)

    api.when_listed["nodes"] = fall_silent
    result = call(gpu_capacity, nodes=nodes, wait_timeout=1, report_only=True)
    assert "no answer within 1 s" in result["error"]
    assert [row["capacity"] for row in result["nodes"].values()] == [4, 2]
    api.stalls.clear()


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({"metadata": {"name": "gpu-1"}}, id="no status"),
        pytest.param({"metadata": {"name": "gpu-1"}, "status": {}}, id="empty status"),
    ],
)
def test_an_object_without_a_status_is_no_error(api, call, found):
    api.put("nodes", found)
    result = call(gpu_capacity, nodes={"gpu-1": "4k"}, wait_timeout=0)
    assert result["nodes"]["gpu-1"]["expected"] == 4000
    assert result["nodes"]["gpu-1"]["capacity"] is None


def test_one_node_with_an_amount_that_is_no_quantity(api, call):
    """The others are judged all the same."""
    odd = node("gpu-1", 4)
    odd["status"]["capacity"][GPU] = "4x"
    api.put("nodes", odd)
    api.put("nodes", node("gpu-2", 4))
    result = call(gpu_capacity, nodes={"gpu-1": 4, "gpu-2": 4}, wait_timeout=0, report_only=True)
    assert [row["state"] for row in result["nodes"].values()] == ["differs", "ok"]
    assert "its capacity of nvidia.com/gpu is '4x'" in result["nodes"]["gpu-1"]["evidence"][0]


def test_a_node_that_vanishes_during_the_wait(api, call):
    api.put("nodes", node("gpu-1", 2))
    api.put("nodes", node("gpu-2", 4))
    api.when_watched["nodes"] = lambda: api.take("nodes", "gpu-1")
    nodes = {"gpu-1": 4, "gpu-2": 4}
    result = call(gpu_capacity, nodes=nodes, wait_timeout=2, report_only=True, give_up=True)
    assert [row["state"] for row in result["nodes"].values()] == ["missing", "ok"]
    assert result["nodes"]["gpu-1"]["message"] == "the cluster has no node of this name"
    assert result["nodes"]["gpu-1"]["surroundings"] == []


def test_a_busy_server_is_asked_again(api, call):
    api.put("nodes", node("gpu-1", 4))
    api.refusals["list", "nodes"] = Refusal(429, "wait", times=2, retry_after="0")
    assert call(gpu_capacity, nodes={"gpu-1": 4})["nodes"]["gpu-1"]["state"] == "ok"


@pytest.mark.parametrize(
    ("refusal", "evidence"),
    [
        pytest.param(
            ("list", "pods"), "cannot read the device plugin pods: The API server ", id="no-pods"
        ),
        pytest.param(("log", "pods"), "pod kube-system/plugin-gpu-1 is Running", id="no-logs"),
    ],
)
def test_missing_permissions_for_evidence_do_not_hide_the_finding(api, call, refusal, evidence):
    api.put("nodes", node("gpu-1", 2))
    api.put("pods", plugin_pod("gpu-1"))
    api.refusals[refusal] = Refusal(403, "forbidden")
    result = call(gpu_capacity, nodes={"gpu-1": 4}, wait_timeout=0)
    assert "gpu-1: expected 4, capacity is 2" in result["msg"]
    assert result["nodes"]["gpu-1"]["evidence"][0].startswith(evidence)


def test_the_time_limit_uses_the_given_clock(api):
    api.put("nodes", node("gpu-1", 2))
    now = iter([0.0, 0.0, 0.0, 0.0])
    client = kube_settings.connect(
        {
            **dict.fromkeys(kube_settings.AUTH_ARGUMENTS),
            "host": api.url,
            "api_key": api.token,
        }
    )
    expected = gpu_capacity.parse_expected({"gpu-1": 4})
    api.when_watched["nodes"] = lambda: api.bookmark("nodes")
    result = gpu_capacity.run(client, expected, GPU, 300, {}, clock=lambda: next(now, 300.5))
    assert "after 300 s:" in result["msg"]
    assert result["nodes"]["gpu-1"]["seconds"] == 300.5


@pytest.mark.parametrize(
    ("nodes", "expected", "message"),
    [
        ({}, None, "nodes is empty: name at least one node"),
        ([], 4, "nodes is empty: name at least one node"),
        ({"gpu-1": "four"}, None, "nodes: gpu-1: 'four' is not a Kubernetes quantity"),
        (["gpu-1"], "four", "expected: 'four' is not a Kubernetes quantity"),
        ({"gpu-1": 4}, 4, "expected cannot be combined with a dictionary in nodes. Set nodes to"),
        ([{"gpu-1": 4}], None, "nodes must be a list of names or a dictionary of amounts"),
        ('{"gpu-1": ', None, "unable to evaluate string as dictionary"),
    ],
)
def test_invalid_nodes(api, call, nodes, expected, message):
    result = call(gpu_capacity, nodes=nodes, expected=expected)
    assert result["msg"].startswith(message)
    assert api.requests == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"api_key": "wrong"}, "does not accept these credentials (401"),
        ({"host": "http://127.0.0.1:1"}, "The API server http://127.0.0.1:1 is unreachable: Conn"),
        ({"host": None, "kubeconfig": "/none"}, "The kubeconfig /none does not exist."),
    ],
)
def test_connection_errors(call, options, message):
    result = call(gpu_capacity, nodes={"gpu-1": 4}, **options)
    assert result["failed"] is True
    assert message in result["msg"]


def test_settings_come_from_the_environment(api, call, monkeypatch):
    monkeypatch.setenv("K8S_AUTH_HOST", api.url)
    monkeypatch.setenv("K8S_AUTH_API_KEY", api.token)
    api.put("nodes", node("gpu-1", 4))
    result = call(gpu_capacity, nodes={"gpu-1": 4}, host=None, api_key=None)
    assert result["nodes"]["gpu-1"]["state"] == "ok"


def test_secrets_of_an_inline_kubeconfig_are_not_shown(api, call):
    config = {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": api.url}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {"token": "deeply-secret"}}],
    }
    result = call(gpu_capacity, nodes={"gpu-1": 4}, host=None, api_key=None, kubeconfig=config)
    assert "401" in result["msg"]
    assert "deeply-secret" not in json.dumps(result)


def sharing_plugin(**spec):
    """Return the DaemonSet of a plugin with a configuration in a ConfigMap."""
    made = daemonset()
    container = {
        **PLUGIN["containers"][0],
        "args": ["--config-file=/config/plugin.yaml"],
        "volumeMounts": [
            {"name": "sockets", "mountPath": "/d"},
            {"name": "c", "mountPath": "/config"},
        ],
    }
    sockets = {"name": "sockets", **PLUGIN["volumes"][0]}
    volumes = [sockets, {"name": "c", "configMap": {"name": "sharing"}}]
    made["spec"]["template"]["spec"] = {"containers": [container], "volumes": volumes, **spec}
    return made


SLICED = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 20}]}}"


def config_map(text=SLICED):
    metadata = {"name": "sharing", "namespace": "kube-system"}
    return {"metadata": metadata, "data": {"plugin.yaml": text}}


@pytest.mark.parametrize(
    ("capacity", "allocatable", "text", "state"),
    [
        pytest.param(40, 40, SLICED, "ok", id="shared"),
        pytest.param(40, 20, SLICED, "differs", id="one of two is unhealthy"),
        pytest.param(2, 2, SLICED, "ok", id="not yet, or no longer"),
        pytest.param(20, 20, SLICED, "differs", id="one is missing"),
        pytest.param(40, 40, "version: v1", "differs", id="not by intention"),
        pytest.param(40, 40, "a: b: c", "differs", id="garbage"),
    ],
)
def test_what_a_node_must_have_follows_from_the_sharing(
    api, call, capacity, allocatable, text, state
):
    api.put("nodes", node("gpu-1", capacity, allocatable))
    api.put("daemonsets", sharing_plugin())
    api.put("configmaps", config_map(text))
    result = call(gpu_capacity, nodes={"gpu-1": 2}, sharing=True, wait_timeout=0, report_only=True)
    row = result["nodes"]["gpu-1"]
    assert row["state"] == state, row["message"]
    assert row["resources"] == {GPU: {"capacity": capacity, "allocatable": allocatable}}


def test_the_row_says_what_is_expected_and_why(api, call):
    api.put("nodes", node("gpu-1", 40))
    api.put("daemonsets", sharing_plugin())
    api.put("configmaps", config_map(SLICED.replace("{res", "{renameByDefault: true, res")))
    call_of = {"nodes": {"gpu-1": 2}, "sharing": True, "wait_timeout": 0, "report_only": True}
    row = call(gpu_capacity, **call_of)["nodes"]["gpu-1"]
    source = (
        "20 replicas of each GPU by time-slicing, says the configuration in the ConfigMap "
        "kube-system/sharing"
    )
    assert row["wanted"] == {
        "resources": {"nvidia.com/gpu.shared": 40},
        "gpus": 2,
        "source": source,
        "resource": "nvidia.com/gpu.shared",
        "shared": True,
        "mps": False,
        "known": {},
        "least": 0,
    }
    assert row["message"] == (
        f"expected 40 nvidia.com/gpu.shared ({source}), but nvidia.com/gpu is 40, of which 40 "
        "allocatable"
    )
    api.put("nodes", node("gpu-1", 40, resource="nvidia.com/gpu.shared"))
    assert call(gpu_capacity, **call_of)["nodes"]["gpu-1"]["state"] == "ok"


def test_gpus_that_are_shared_by_mps_are_known_also_if_the_admin_has_the_amounts(api, call):
    api.put("nodes", node("gpu-1", 40))
    api.put("daemonsets", sharing_plugin())
    api.put("configmaps", config_map(SLICED.replace("timeSlicing", "mps")))
    call_of = {"nodes": {"gpu-1": 2}, "sharing": True, "wait_timeout": 0, "report_only": True}
    for by_hand in ({}, {"gpu-1": {"nvidia.com/gpu": 40}}):
        row = call(gpu_capacity, **call_of, by_hand=by_hand)["nodes"]["gpu-1"]
        assert (row["state"], row["wanted"]["mps"]) == ("ok", True)


def test_a_former_name_is_no_resource(api, call):
    """The kubelet keeps it for a while, and nothing of it is allocatable."""
    shared = node("gpu-1", 40, resource="nvidia.com/gpu.shared")
    shared["status"]["capacity"][GPU], shared["status"]["allocatable"][GPU] = "2", "0"
    api.put("nodes", shared)
    api.put("daemonsets", sharing_plugin())
    api.put("configmaps", config_map(SLICED.replace("{res", "{renameByDefault: true, res")))
    options = {"nodes": {"gpu-1": 2}, "sharing": True, "wait_timeout": 0, "report_only": True}
    assert call(gpu_capacity, **options)["nodes"]["gpu-1"]["state"] == "ok"
    shared["status"]["allocatable"][GPU] = "2"
    api.put("nodes", shared)
    assert call(gpu_capacity, **options)["nodes"]["gpu-1"]["state"] == "differs"


def test_labels_say_it_where_the_config_map_cannot_be_read(api, call):
    shared = node("gpu-1", 8)
    shared["metadata"]["labels"] = {
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.product": "Tesla-T4-SHARED",
    }
    api.put("nodes", shared)
    api.put("daemonsets", sharing_plugin())
    api.refusals["list", "configmaps"] = Refusal(403, "forbidden")
    result = call(gpu_capacity, nodes={"gpu-1": 2}, sharing=True, wait_timeout=0)
    assert "failed" not in result
    assert "labels of GPU feature discovery" in result["nodes"]["gpu-1"]["wanted"]["source"]


def test_the_admin_knows_best(api, call):
    api.put("nodes", node("gpu-1", 40))
    result = call(
        gpu_capacity, nodes={"gpu-1": 2}, sharing=True, by_hand={"gpu-1": {GPU: 40}}, wait_timeout=0
    )
    assert "failed" not in result
    assert result["nodes"]["gpu-1"]["wanted"]["source"] == "gpu_expected"
    # The second one is whether the shares are those of MPS.
    assert [made.verb for made in api.requests] == ["list", "list"]


def test_without_sharing_nothing_more_is_read(api, call):
    api.put("nodes", node("gpu-1", 4))
    result = call(gpu_capacity, nodes={"gpu-1": 4}, sharing=True)
    assert result["nodes"]["gpu-1"]["wanted"]["source"] == ""
    assert [made.verb for made in api.requests] == ["list"]
