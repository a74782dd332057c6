# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.modules import gpu_cluster_info
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}
WHERE = {"namespace": "kube-system", "labels": {"app": "plugin"}}
DAEMONSET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "plugin", **WHERE}}
CLASS = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
PERMISSION = {"resource": "pods", "verbs": ["list"]}


@pytest.fixture
def cluster(api):
    api.put("nodes", NODE)
    managed = {**DAEMONSET["metadata"], "managedFields": [{"manager": "kubectl"}]}
    api.put("daemonsets", {**DAEMONSET, "metadata": managed})
    api.put("runtimeclasses", CLASS)
    return api


def named(objects):
    return [one["metadata"]["name"] for one in objects]


@pytest.mark.parametrize("check", [True, False])
def test_everything_at_once(cluster, call, check):
    result = call(
        gpu_cluster_info,
        permissions=[PERMISSION],
        nodes=["gpu-1", "gpu-2"],
        objects=True,
        check=check,
    )
    assert result["changed"] is False
    states = {name: row["state"] for name, row in result["nodes"].items()}
    assert states == {"gpu-1": "ok", "gpu-2": "missing"}
    assert named(result["daemonsets"]) == ["plugin"]
    assert "managedFields" not in result["daemonsets"][0]["metadata"]
    assert named(result["runtime_classes"]) == ["nvidia"]
    assert result["forbidden"] == []


def test_only_what_is_asked_for_is_read(cluster, call):
    asked = {"name": "plugin", "namespace": "kube-system", "selectors": ["app=plugin"]}
    result = call(gpu_cluster_info, rollout={**asked, "nodes": [], "revisions": False})
    assert {made.resource for made in cluster.requests} == {"pods"}
    assert (result["not_running"], result["has_former"]) == ({}, False)
    assert (result["daemonsets"], result["runtime_classes"]) == (None, None)


def test_empty_cluster_is_not_one_that_nobody_has_looked_at(api, call):
    result = call(gpu_cluster_info, objects=True)
    assert (result["daemonsets"], result["runtime_classes"]) == ([], [])
    assert result["priority_classes"] == []


def test_nothing_is_read_without_the_permissions(cluster, call):
    """The lists would fail with the same errors once more."""
    cluster.denied = {("list", "pods")}
    result = call(gpu_cluster_info, permissions=[PERMISSION], nodes=["gpu-1"], objects=True)
    assert [one["verbs"] for one in result["missing"]] == [["list"]]
    assert result["user"] == "jane"
    assert (result["nodes"], result["daemonsets"]) == ({}, None)


def test_forbidden_lists_are_named(cluster, call):
    """Access reviews can be forbidden, too. Then nothing is reported as missing."""
    text = 'runtimeclasses.node.k8s.io is forbidden: User "jane" cannot list'
    cluster.refusals["list", "runtimeclasses"] = Refusal(403, text)
    result = call(gpu_cluster_info, objects=True)
    assert named(result["daemonsets"]) == ["plugin"]
    (error,) = result["forbidden"]
    assert text in error


def test_policies_of_admission_are_listed(cluster, call):
    cluster.put("validatingadmissionpolicies", {"metadata": {"name": "theirs"}})
    text = "the server could not find the requested resource"
    cluster.refusals["list", "mutatingadmissionpolicies"] = Refusal(404, text)
    result = call(gpu_cluster_info, objects=True)
    assert result["policies"]["MutatingAdmissionPolicy"] is None
    assert named(result["policies"]["ValidatingAdmissionPolicy"]) == ["theirs"]
    assert (result["forbidden"], result["policies_forbidden"]) == ([], [])


def test_forbidden_policies_are_an_error_of_their_own(cluster, call):
    """A cluster that needs none does not have to allow it."""
    text = 'mutatingadmissionpolicies is forbidden: User "jane" cannot list'
    cluster.refusals["list", "mutatingadmissionpolicies"] = Refusal(403, text)
    result = call(gpu_cluster_info, objects=True)
    (error,) = result["policies_forbidden"]
    assert text in error
    assert result["forbidden"] == []


OWNER = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "uid": "1", "controller": True}


@pytest.mark.parametrize(
    ("owner", "refusal", "found", "errors"),
    [
        pytest.param(OWNER, None, ["policy"], 0, id="of an operator"),
        pytest.param(OWNER, 404, [], 0, id="of an operator that is not there"),
        pytest.param(OWNER, 403, [], 1, id="forbidden"),
        pytest.param({**OWNER, "kind": "Job"}, 403, [], 0, id="not asked without an operator"),
    ],
)
def test_owners_of_daemonsets_are_looked_up(cluster, call, owner, refusal, found, errors):
    owned = {**DAEMONSET["metadata"], "name": "owned", "ownerReferences": [owner]}
    cluster.put("daemonsets", {**DAEMONSET, "metadata": owned})
    cluster.put("clusterpolicies", {"metadata": {"name": "policy", "uid": "1"}})
    if refusal:
        cluster.refusals["list", "clusterpolicies"] = Refusal(refusal, "no")
    result = call(gpu_cluster_info, objects=True)
    assert named(result["cluster_policies"]) == found
    assert (len(result["policies_forbidden"]), result["forbidden"]) == (errors, [])


def test_server_that_does_not_accept_the_credentials(cluster, call):
    cluster.refusals["list", "nodes"] = Refusal(401, "Unauthorized")
    result = call(gpu_cluster_info, nodes=["gpu-1"], objects=True, report_only=True)
    assert "does not accept these credentials" in result["error"]
    assert (result["nodes"], result["daemonsets"]) == ({}, None)


@pytest.mark.parametrize("report_only", [True, False])
def test_error_about_the_nodes_is_a_failure(cluster, call, monkeypatch, report_only):
    """The module has the rows of the nodes that it could read until then."""
    found = {"nodes": {}, "error": "the API server stopped answering", "changed": False}
    monkeypatch.setattr(gpu_cluster_info.capacity, "run", lambda *_args, **_more: found)
    result = call(gpu_cluster_info, nodes=["gpu-1"], report_only=report_only)
    assert bool(result.get("failed")) is not report_only
    assert result["error" if report_only else "msg"] == found["error"]


OURS = {"app.kubernetes.io/managed-by": "metal.gpu"}
CONFIG_MAP = {"namespace": "kube-system", "name": "plugin-config"}


@pytest.mark.parametrize(
    ("labels", "denied", "names", "missing"),
    [
        pytest.param(OURS, set(), ["plugin-config"], [], id="ours"),
        pytest.param(
            OURS, {("delete", "configmaps")}, ["plugin-config"], ["delete"], id="not to delete"
        ),
        pytest.param({}, {("delete", "configmaps")}, [], [], id="of somebody else"),
    ],
)
def test_former_configmap_needs_the_permission_to_delete_it(
    cluster, call, labels, denied, names, missing
):
    metadata = {**CONFIG_MAP, "labels": labels}
    cluster.put("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    cluster.denied = denied
    result = call(gpu_cluster_info, permissions=[PERMISSION], config_map=CONFIG_MAP)
    assert named(result["config_maps"]) == names
    assert [verb for one in result["missing"] for verb in one["verbs"]] == missing


def test_configmaps_that_nobody_may_list_need_no_permission(cluster, call):
    text = 'configmaps is forbidden: User "jane" cannot list'
    cluster.refusals["list", "configmaps"] = Refusal(403, text)
    result = call(gpu_cluster_info, permissions=[PERMISSION], config_map=CONFIG_MAP)
    assert (result["config_maps"], result["missing"]) == ([], [])


@pytest.mark.parametrize(
    ("labels", "denied", "missing"),
    [
        pytest.param({}, ["create", "patch"], [], id="an admin has created it"),
        pytest.param(
            {"app.kubernetes.io/managed-by": "metal.gpu"}, ["patch"], [["patch"]], id="ours"
        ),
        pytest.param(None, ["create", "patch"], [["create", "patch"]], id="absent"),
        pytest.param({}, ["list", "create"], [["list", "create"]], id="nobody can tell"),
    ],
)
def test_nobody_needs_to_write_the_class_of_an_admin(cluster, call, labels, denied, missing):
    """A managed cluster may forbid it to all others."""
    resource, name = "priorityclasses", "metal-gpu-proof"
    if labels is not None:
        cluster.put(resource, {"metadata": {"name": name, "labels": labels}})
    cluster.denied = {(verb, resource) for verb in denied}
    asked = {"group": "scheduling.k8s.io", "resource": resource}
    result = call(
        gpu_cluster_info, permissions=[{**asked, "verbs": ["get", "list", "create", "patch"]}]
    )
    assert [one["verbs"] for one in result["missing"]] == missing
