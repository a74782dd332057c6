# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys

import kubernetes.client
import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import node_drain
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import ApiUnreachable
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Settings
from ansible_collections.metal.gpu.plugins.modules import gpu_drain
from ansible_collections.metal.gpu.tests.unit.support import module_args
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

NODES = ["gpu-1", "gpu-2"]


def node(name, gpus="4", ready="True", **spec):
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "nodeInfo": {"bootID": "before"},
            "allocatable": {"nvidia.com/gpu": gpus, "cpu": "8"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(name, on="gpu-1", gpus=1, owner="ReplicaSet", **spec):
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "ownerReferences": [{"kind": owner, "controller": True}] if owner else [],
        },
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": limits}}], **spec},
        "status": {"phase": "Running"},
    }


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(node_drain, "RETRY_S", 0.01)


@pytest.fixture
def cluster(api):
    for name in NODES:
        api.put("nodes", node(name))
    for found in (pod("a"), pod("b", on="gpu-2"), pod("web", gpus=0), pod("c", on="gpu-3")):
        api.put("pods", found)
    return api


def state(api):
    """Return which nodes are cordoned, by whom, and the pods that are left."""
    nodes = {
        name: (
            bool(found["spec"].get("unschedulable")),
            node_drain.CORDONED in found["metadata"].get("annotations", {}),
        )
        for (kind, _namespace, name), found in api.objects().items()
        if kind == "nodes"
    }
    return nodes, sorted(api.names("pods"))


def test_check_real_check_real(cluster, call):
    for check, changed in [(True, True), (False, True), (True, False), (False, False)]:
        found = state(cluster)
        result = call(gpu_drain, nodes=NODES, check=check)
        assert result["changed"] is changed
        assert (state(cluster) == found) is (check or not changed)
    assert state(cluster) == (dict.fromkeys(NODES, (True, True)), ["c", "web"])


def test_marks_carry_our_domain():
    assert node_drain.CORDONED == "metal.gpu/cordoned"


def test_the_result_matches_the_cluster(cluster, call):
    told = call(gpu_drain, nodes=NODES)["nodes"]
    assert {name: row["cordoned"] for name, row in told.items()} == dict.fromkeys(NODES, True)
    for name in NODES:
        cluster.patch("nodes", name, {"status": {"allocatable": {"nvidia.com/gpu": "0"}}})
    told = call(gpu_drain, nodes=NODES, state="released")["nodes"]
    assert {name: row["cordoned"] for name, row in told.items()} == dict.fromkeys(NODES, False)


def test_release_waits_for_the_gpus_to_go(cluster, call):
    call(gpu_drain, nodes=NODES)

    def leave():
        for name in NODES:
            cluster.patch("nodes", name, {"status": {"allocatable": {"nvidia.com/gpu": "0"}}})

    cluster.when_watched["nodes"] = leave
    for check, changed in [(True, True), (False, True), (True, False), (False, False)]:
        result = call(gpu_drain, nodes=NODES, state="released", check=check)
        assert result["changed"] is changed
    assert state(cluster)[0] == dict.fromkeys(NODES, (False, False))


def test_network_cards_of_nvidia_are_no_gpus(cluster, call):
    """NVIDIA's Network Operator hands out network cards as nvidia.com/hostdev, and goes on."""
    cards = pod("cards", gpus=0)
    cards["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/hostdev"] = 1
    cluster.put("pods", cards)
    call(gpu_drain, nodes=["gpu-1"])
    assert state(cluster)[1] == ["b", "c", "cards", "web"]
    amounts = {"nvidia.com/gpu": "0", "nvidia.com/hostdev": "8"}
    cluster.patch("nodes", "gpu-1", {"status": {"allocatable": amounts}})
    result = call(gpu_drain, nodes=["gpu-1"], state="released", wait_timeout=0)
    assert "failed" not in result
    assert state(cluster)[0]["gpu-1"] == (False, False)


def test_gpus_by_dynamic_resource_allocation_are_held_too(cluster, call):
    """No limit tells of them. A claim for something else looks the same, where it may be a GPU."""
    for name, on in [("dra", "gpu-1"), ("nic", "gpu-2")]:
        claimed = pod(name, on=on, gpus=0)
        claimed["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
        cluster.put("pods", claimed)
    driver = pod("driver", gpus=0, owner="DaemonSet")
    driver["spec"]["containers"][0]["args"] = ["gpu-kubelet-plugin -v 6"]
    cluster.put("pods", driver)
    held = call(gpu_drain, nodes=NODES, report_only=True)["nodes"]
    assert {name: [one["name"] for one in row["pods"]] for name, row in held.items()} == {
        "gpu-1": ["ml/a", "ml/dra"],
        "gpu-2": ["ml/b"],
    }
    call(gpu_drain, nodes=NODES)
    assert state(cluster)[1] == ["c", "driver", "nic", "web"]


def test_release_does_not_wait_for_a_node_that_is_not_ready(cluster, call):
    call(gpu_drain, nodes=NODES)
    for name in NODES:
        status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        cluster.patch("nodes", name, {"status": status})
    assert "failed" not in call(gpu_drain, nodes=NODES, state="released", wait_timeout=0)


def test_remaining_gpus_keep_the_node_cordoned(cluster, call):
    call(gpu_drain, nodes=NODES)
    result = call(gpu_drain, nodes=NODES, state="released", wait_timeout=0)
    assert result["msg"].splitlines() == [
        "Nodes still have allocatable GPUs when time is up: gpu-1, gpu-2. Check that no device "
        "plugin runs there.",
        "gpu-1 stays cordoned",
        "gpu-2 stays cordoned",
        "To uncordon: kubectl uncordon gpu-1 gpu-2",
    ]
    assert state(cluster)[0] == dict.fromkeys(NODES, (True, True))


def test_a_node_that_another_client_cordoned_stays_cordoned(api, call):
    api.put("nodes", node("gpu-1", gpus="0", unschedulable=True))
    assert call(gpu_drain, nodes=["gpu-1"])["changed"] is False
    assert call(gpu_drain, nodes=["gpu-1"], state="released")["changed"] is False
    assert state(api)[0] == {"gpu-1": (True, False)}


def test_report_only_reports_the_pods(cluster, call):
    cluster.put("pods", pod("d", gpus=2, owner=None))
    found = state(cluster)
    result = call(gpu_drain, nodes=[*NODES, "gone"], report_only=True)
    assert (result["changed"], result["error"]) == (False, "")
    assert state(cluster) == found
    assert result["nodes"] == {
        "gpu-1": {
            "state": "ok",
            "cordoned": False,
            "pods": [
                {"name": "ml/a", "gpus": 1, "stays": None},
                {"name": "ml/d", "gpus": 2, "stays": "it has no controller that recreates it"},
            ],
        },
        "gpu-2": {
            "state": "ok",
            "cordoned": False,
            "pods": [{"name": "ml/b", "gpus": 1, "stays": None}],
        },
        "gone": {"state": "missing", "cordoned": False, "pods": []},
    }


def test_report_only_reports_a_missing_answer(cluster, call):
    cluster.refusals["list", "pods"] = Refusal(403, "no")
    result = call(gpu_drain, nodes=NODES, report_only=True)
    assert result["nodes"] == {}
    assert "denied the request to list pods" in result["error"]


@pytest.mark.parametrize("owner", ["DaemonSet", "Node", None])
def test_nothing_is_evicted_if_a_pod_must_stay(cluster, call, owner):
    cluster.put("pods", pod("d", owner=owner))
    found = state(cluster)
    result = call(gpu_drain, nodes=NODES)
    assert (result["failed"], result["changed"]) == (True, False)
    assert "\nml/d on gpu-1: " in result["msg"]
    assert state(cluster) == found


@pytest.mark.parametrize("owner", ["DaemonSet", None])
def test_a_pod_that_arrives_before_the_cordon_is_judged_like_the_others(cluster, call, owner):
    def arrive(resource, name):
        if "d" not in cluster.names("pods"):
            cluster.put("pods", pod("d", owner=owner))

    cluster.when_patched = arrive
    result = call(gpu_drain, nodes=NODES)
    assert result["msg"].splitlines()[0] == "Pods cannot be evicted:"
    assert "ml/d on gpu-1: " in result["msg"]
    nodes, pods = state(cluster)
    assert pods == ["a", "b", "c", "d", "web"]
    assert nodes == dict.fromkeys(NODES, (False, False))


@pytest.mark.parametrize(
    ("owner", "left"),
    [
        pytest.param("ReplicaSet", ["c", "web"], id="also evicted"),
        pytest.param("DaemonSet", ["c", "d", "web"], id="ends the drain"),
        pytest.param(None, ["c", "d", "web"], id="never lost"),
    ],
)
def test_a_pod_that_arrives_later_is_judged_like_the_others(cluster, call, owner, left):
    cluster.budgets["a"] = lambda: (
        cluster.budgets.pop("a"),
        cluster.put("pods", pod("d", on="gpu-2", owner=owner)),
    )
    result = call(gpu_drain, nodes=NODES)
    assert result.get("failed", False) is (owner != "ReplicaSet")
    assert len(cluster.made("evict", "pods")) <= 4
    assert [name for name in state(cluster)[1] if name != "a"] == left


def test_another_pod_of_the_same_name_is_evicted_too(cluster, call):
    """As a StatefulSet makes it."""
    again = iter([pod("a", owner="StatefulSet")])

    def come_back():
        for found in again:
            cluster.take("pods", "b", "ml")
            cluster.put("pods", found)

    cluster.budgets["b"] = come_back
    assert "failed" not in call(gpu_drain, nodes=NODES)
    assert state(cluster)[1] == ["c", "web"]


def test_another_pod_of_the_same_name_elsewhere_is_not_evicted(cluster, call):
    """The one that was meant ended after the look; its controller made another on gpu-3."""
    moved = pod("b", on="gpu-3", owner="StatefulSet")

    def move():
        cluster.take("pods", "b", "ml")
        cluster.put("pods", moved)

    cluster.budgets["a"] = lambda: (cluster.budgets.pop("a"), move())
    assert "failed" not in call(gpu_drain, nodes=NODES)
    assert state(cluster)[1] == ["b", "c", "web"]
    assert cluster.objects()["pods", "ml", "b"]["spec"]["nodeName"] == "gpu-3"


def test_an_error_while_uncordoning_hides_neither_the_first_one_nor_the_node(cluster, call):
    cluster.budgets["a"] = lambda: cluster.refusals.update(
        {("patch", "nodes"): Refusal(403, "no more")}
    )
    result = call(gpu_drain, nodes=["gpu-1"], wait_timeout=0)
    first, held, stays, remedy = result["msg"].splitlines()
    assert (first, held.split(":")[0]) == (
        "Pods still run when time is up:",
        "ml/a on gpu-1",
    )
    assert stays.startswith("gpu-1 stays cordoned: The API server ")
    assert "denied the request to patch nodes (403): no more" in stays
    assert remedy == "To uncordon: kubectl uncordon gpu-1"
    assert result["nodes"]["gpu-1"]["cordoned"] is True
    assert state(cluster)[0]["gpu-1"] == (True, True)


def test_one_node_that_cannot_be_uncordoned_does_not_keep_the_others(cluster, call):
    def refuse(resource, name):
        if name == "gpu-1" and "unschedulable" in cluster.objects()["nodes", "", name]["spec"]:
            raise Refusal(403, "no")

    cluster.when_patched = refuse
    cluster.budgets["a"] = lambda: None
    result = call(gpu_drain, nodes=NODES, wait_timeout=0)
    assert state(cluster)[0] == {"gpu-1": (True, True), "gpu-2": (False, False)}
    assert result["msg"].endswith("To uncordon: kubectl uncordon gpu-1")


def test_a_node_that_cannot_be_cordoned_opens_those_that_were(cluster, call):
    def refuse(resource, name):
        if name == "gpu-2":
            raise Refusal(403, "no")

    cluster.when_patched = refuse
    result = call(gpu_drain, nodes=NODES)
    assert "denied the request to patch nodes" in result["msg"]
    assert state(cluster)[0] == dict.fromkeys(NODES, (False, False))
    assert result["nodes"]["gpu-1"]["cordoned"] is False


def admin_cordons(cluster, name):
    cluster.patch("nodes", name, {"spec": {"unschedulable": True}})


def test_a_cordon_of_an_admin_in_between_stays(cluster, call):
    """Between our look at the node and our patch."""

    def cordon(resource, name):
        cluster.when_patched = lambda resource, name: None
        admin_cordons(cluster, name)

    cluster.when_patched = cordon
    cluster.budgets["a"] = lambda: None
    result = call(gpu_drain, nodes=["gpu-1"], wait_timeout=0)
    assert "kubectl uncordon" not in result["msg"]
    assert state(cluster)[0]["gpu-1"] == (True, False)


def test_a_cordon_of_an_admin_after_ours_stays(cluster, call):
    call(gpu_drain, nodes=["gpu-1"])
    cluster.patch("nodes", "gpu-1", {"spec": {"unschedulable": None}})
    admin_cordons(cluster, "gpu-1")
    result = call(gpu_drain, nodes=["gpu-1"], state="released")
    assert result["changed"] is False
    assert result["nodes"]["gpu-1"]["cordoned"] is False
    assert state(cluster)[0]["gpu-1"][0] is True


def test_without_managed_fields_the_annotation_is_enough(cluster, call):
    """kube-apiserver notes them from 1.18 on."""
    call(gpu_drain, nodes=["gpu-1"])
    found = cluster.objects()["nodes", "", "gpu-1"]
    del found["metadata"]["managedFields"]
    found["status"]["allocatable"] = {}
    cluster.put("nodes", found)
    assert call(gpu_drain, nodes=["gpu-1"], state="released")["changed"] is True
    assert state(cluster)[0]["gpu-1"] == (False, False)


def test_a_heartbeat_in_between_does_no_harm(cluster, call):
    beats = []

    def beat(resource, name):
        if len(beats) < 3:
            beats.append(name)
            cluster.put("nodes", cluster.objects()["nodes", "", name])

    cluster.when_patched = beat
    assert "failed" not in call(gpu_drain, nodes=NODES)
    assert state(cluster)[0] == dict.fromkeys(NODES, (True, True))


def test_an_answer_that_got_lost_leaves_the_cordon_ours(cluster, call):
    cluster.lost["patch", "nodes"] = 1
    cluster.budgets["a"] = lambda: None
    call(gpu_drain, nodes=["gpu-1"], wait_timeout=0)
    assert state(cluster)[0]["gpu-1"] == (False, False)


def test_a_failure_does_not_uncordon_nodes_of_an_earlier_run(cluster, call):
    call(gpu_drain, nodes=["gpu-1"])
    cluster.put("pods", pod("late"))
    cluster.budgets["late"] = lambda: None
    result = call(gpu_drain, nodes=["gpu-1"], wait_timeout=0)
    assert result["nodes"]["gpu-1"]["cordoned"] is True
    assert state(cluster)[0]["gpu-1"] == (True, True)


def test_a_node_that_is_deleted_meanwhile_is_missing(cluster, call):
    def remove(resource, name):
        cluster.when_patched = lambda resource, name: None
        cluster.take("nodes", name)

    cluster.when_patched = remove
    result = call(gpu_drain, nodes=["gpu-1"])
    assert result["nodes"]["gpu-1"]["state"] == "missing"


def test_a_killed_run_leaves_nothing_cordoned(cluster):
    """A node that stays cordoned unnoticed gets no pods."""
    cluster.budgets["a"] = lambda: None
    options = {"nodes": NODES, "host": cluster.url, "api_key": cluster.token}
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"from {module_args.__name__} import patch_module_args\n"
        "from ansible_collections.metal.gpu.plugins.modules import gpu_drain\n"
        f"with patch_module_args({options!r}): gpu_drain.main()"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        cluster.budgets["a"] = lambda: process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 128 + signal.SIGTERM
    assert state(cluster)[0] == dict.fromkeys(NODES, (False, False))


@pytest.mark.parametrize(
    ("nodes", "newest"),
    [
        pytest.param(["gpu-1"], {"spec.nodeName=gpu-1"}, id="one"),
        pytest.param(NODES, set(), id="several: all pods, twice, and none are watched"),
    ],
)
def test_pods_are_listed_past_the_cache_at_start_and_end(cluster, call, nodes, newest):
    call(gpu_drain, nodes=nodes)
    alive = {"status.phase!=Succeeded", "status.phase!=Failed"}
    lists = [made.query for made in cluster.made("list", "pods")]
    asked = [{*query["fieldSelector"].split(",")} - alive for query in lists]
    pairs = zip(lists, asked, strict=True)
    past_cache = [fields for query, fields in pairs if "resourceVersion" not in query]
    assert past_cache == [newest, newest]
    assert {field for fields in asked for field in fields} == {f"spec.nodeName={n}" for n in nodes}
    assert cluster.made("watch", "pods") == []


@pytest.mark.parametrize("nodes", [["gpu-1"], NODES], ids=["one", "several"])
def test_an_outdated_cache_hides_no_pod(cluster, call, nodes):
    cluster.cache = {key: item for key, item in cluster.objects().items() if key[0] == "nodes"}
    assert "failed" not in call(gpu_drain, nodes=nodes)
    left = ["b", "c", "web"] if len(nodes) == 1 else ["c", "web"]
    assert state(cluster)[1] == left


def test_a_budget_is_asked_again_until_it_allows(cluster, call):
    refusals = []

    def allow():
        refusals.append("a")
        if len(refusals) == 2:
            del cluster.budgets["a"]

    cluster.budgets["a"] = allow
    assert "failed" not in call(gpu_drain, nodes=NODES)
    assert len(refusals) == 2
    assert state(cluster)[1] == ["c", "web"]


def test_a_budget_that_never_allows_is_named_and_the_nodes_are_open_again(cluster, call):
    cluster.budgets["a"] = lambda: None
    result = call(gpu_drain, nodes=["gpu-1"], wait_timeout=0)
    assert result["msg"].splitlines() == [
        "Pods still run when time is up:",
        "ml/a on gpu-1: Cannot evict pod as it would violate the pod's disruption budget.",
    ]
    assert state(cluster)[0] == dict.fromkeys(NODES, (False, False))


def test_a_missing_permission_is_named_and_the_nodes_are_open_again(cluster, call):
    cluster.refusals["evict", "pods"] = Refusal(403, "no")
    result = call(gpu_drain, nodes=NODES)
    assert "denied the request to create pods/eviction" in result["msg"]
    assert state(cluster)[0] == dict.fromkeys(NODES, (False, False))


def test_a_pod_that_has_gone_by_itself_is_gone(cluster, call):
    cluster.refusals["evict", "pods"] = Refusal(404, "not found")

    def list_again():
        cluster.when_listed["pods"] = end

    def end():
        if cluster.made("evict", "pods"):
            for name in ("a", "b"):
                cluster.take("pods", name, "ml")
        else:
            cluster.when_listed["pods"] = list_again

    cluster.when_listed["pods"] = end
    assert "failed" not in call(gpu_drain, nodes=NODES)


# -------------------------------------------------------------------------------------------------
# Before a reboot

SCRATCH = {"volumes": [{"name": "v", "emptyDir": {}}]}
REBOOT = {"nodes": ["gpu-1"], "pods": "others"}


@pytest.fixture
def idle(api):
    """A node whose GPUs nobody has."""
    api.put("nodes", node("gpu-1"))
    for found in (pod("web", gpus=0), pod("log", gpus=0, owner="DaemonSet", **SCRATCH)):
        api.put("pods", found)
    api.put("pods", pod("api", gpus=0, owner="Node"))
    return api


def test_a_reboot_evicts_the_pods_without_gpus(idle, call):
    idle.budgets["web"] = lambda: idle.budgets.pop("web")  # 429, once
    assert call(gpu_drain, **REBOOT)["changed"] is True
    assert state(idle) == ({"gpu-1": (True, True)}, ["api", "log"])


@pytest.mark.parametrize(
    ("found", "why", "allowed"),
    [
        (pod("d", gpus=0, owner=None), "it has no controller that recreates it", "bare_pods"),
        (pod("d", gpus=0, **SCRATCH), "it has data in an emptyDir", "scratch_data"),
        (pod("d"), "it holds GPUs, or may hold some", None),
        (pod("d", owner="DaemonSet"), "it holds GPUs, or may hold some", None),
    ],
    ids=["bare", "scratch data", "GPUs", "GPUs of a DaemonSet"],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "before the cordon"])
def test_what_a_reboot_must_not_end(idle, call, found, why, allowed, is_late):
    def arrive(*_patched):
        if "d" not in idle.names("pods"):
            idle.put("pods", found)

    if is_late:
        idle.when_patched = arrive
    else:
        arrive()
    result = call(gpu_drain, **REBOOT)
    assert f"ml/d on gpu-1: {why}" in result["msg"]
    assert state(idle) == ({"gpu-1": (False, False)}, ["api", "d", "log", "web"])
    if allowed:
        assert "failed" not in call(gpu_drain, **REBOOT, may_lose=[allowed])
        assert state(idle)[1] == ["api", "log"]


def test_a_job_that_is_ending_may_end_first(idle, call):
    """And the node does not reboot before: time up is a failure, and names the pod."""
    ending = pod("d", terminationGracePeriodSeconds=600)
    ending["metadata"]["deletionTimestamp"] = "2026-11-28T06:00:00Z"
    idle.put("pods", ending)
    idle.refusals["evict", "pods"] = Refusal(404, "it is being deleted")
    result = call(gpu_drain, **REBOOT, wait_timeout=0)
    assert (result["failed"], result["nodes"]["gpu-1"]["cordoned"]) == (True, False)
    assert "ml/d on gpu-1: evicted, but still running" in result["msg"]


@pytest.mark.parametrize(
    ("status", "lacks"),
    [
        ({}, "gpu-1 (4 of 4, reported before the boot)"),
        ({"nodeInfo": {"bootID": "now"}, "allocatable": {"nvidia.com/gpu": "3"}}, "(3 of 4)"),
        ({"nodeInfo": {"bootID": "now"}, "allocatable": {}}, "gpu-1 (0 of 4)"),
        (
            {"nodeInfo": {"bootID": "now"}, "conditions": []},
            "gpu-1 (4 of 4, not ready)",
        ),
        ({"nodeInfo": {"bootID": "now"}}, None),
    ],
)
def test_pods_come_back_only_to_all_gpus(idle, call, status, lacks):
    back = {"nodes": ["gpu-1"], "state": "released", "gpus": "back", "boot_id": "now"}
    call(gpu_drain, **REBOOT)
    found = idle.objects()["nodes", "", "gpu-1"]
    found["status"] |= status
    idle.put("nodes", found)
    result = call(gpu_drain, **back, wait_timeout=0)
    assert result.get("failed", False) is bool(lacks)
    assert state(idle)[0]["gpu-1"] == (bool(lacks), bool(lacks))
    if lacks:
        assert lacks in result["msg"]
        assert result["msg"].endswith("To uncordon: kubectl uncordon gpu-1")


@pytest.mark.parametrize(("allocatable", "until"), [({"nvidia.com/gpu": "4"}, "any"), ({}, "back")])
def test_a_node_that_need_not_be_waited_for(idle, call, allocatable, until):
    """`back`: it had no GPUs either when it was cordoned."""
    found = node("gpu-1", ready="False")
    found["status"]["allocatable"] = allocatable
    idle.put("nodes", found)
    call(gpu_drain, **REBOOT)
    released = {"nodes": ["gpu-1"], "state": "released", "gpus": until, "wait_timeout": 0}
    assert call(gpu_drain, **released)["changed"] is True
    assert state(idle)[0]["gpu-1"] == (False, False)


def test_the_cordon_of_an_interrupted_run_is_ours(idle, call):
    """The next run drains, reboots and uncordons; it remembers the GPUs that the node had."""
    call(gpu_drain, **REBOOT)
    found = idle.objects()["nodes", "", "gpu-1"]
    marks = found["metadata"]["annotations"]
    assert node_drain.describe_cordon(found).startswith("by this collection, since 20")
    found["status"]["allocatable"] = {}
    idle.put("nodes", found)
    assert "failed" not in call(gpu_drain, **REBOOT)
    assert idle.objects()["nodes", "", "gpu-1"]["metadata"]["annotations"] == marks
    result = call(gpu_drain, nodes=["gpu-1"], state="released", gpus="back", wait_timeout=0)
    assert "gpu-1 (0 of 4)" in result["msg"]
    call(gpu_drain, nodes=["gpu-1"], state="released", gpus="any")
    assert node_drain.describe_cordon(idle.objects()["nodes", "", "gpu-1"]) == ""


@pytest.mark.parametrize(
    ("managers", "text"),
    [
        ([{"manager": "kubectl", "time": "2026-11-01T08:00:00Z"}], "by kubectl, since 2026-11-01"),
        ([], "by somebody"),
    ],
)
def test_who_else_cordoned(managers, text):
    found = node("gpu-1", unschedulable=True)
    fields = {"fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    found["metadata"]["managedFields"] = [{**one, **fields} for one in managers]
    assert node_drain.describe_cordon(found).startswith(text)


@pytest.mark.parametrize(
    ("state", "error"), [("released", None), ("drained", "Connection refused")]
)
def test_an_api_server_that_boots_with_the_node_is_waited_for(api, state, error):
    """It runs on the node that has rebooted. Until it starts, nothing listens on its port."""
    api.put("nodes", node("gpu-1"))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    configuration = kubernetes.client.Configuration(
        host=address, api_key={"authorization": f"Bearer {api.token}"}
    )
    client = Client(
        Settings(configuration, "from the test"), sleep=lambda _s: setattr(client, "url", api.url)
    )
    params = {name: option.get("default") for name, option in gpu_drain.ARGUMENT_SPEC.items()}
    params |= {"nodes": ["gpu-1"], "state": state}
    with pytest.raises(ApiUnreachable, match=error) if error else contextlib.nullcontext():
        assert gpu_drain.run(client, params, check_mode=False)["nodes"]["gpu-1"]["state"] == "ok"
