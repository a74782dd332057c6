# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import permissions
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import admission

ROOT = Path(__file__).parents[5]
NAMESPACES = {"smoke": "tests", "plugin": "kube-system"}
# As the defaults of the variables are.
PLACES = {
    "smoke": "default",
    "plugin": "kube-system",
    "leases": "kube-node-lease",
    "plugin_name": "nvidia-device-plugin",
    "config_name": "nvidia-device-plugin-config",
    "class_name": "nvidia",
}
ROLES = yaml.safe_load((ROOT / "docs/permissions.yml").read_text())["items"]


class Grant(NamedTuple):
    """A verb on a resource; an empty namespace or name is all of them."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str

    def covers(self, other: Grant) -> bool:
        return (
            self[1:4] == other[1:4]
            and self.namespace in ("", other.namespace)
            and self.name in ("", other.name)
        )


def test_the_document_says_what_the_code_asks_for_and_no_more() -> None:
    documented = [
        Grant(role["metadata"].get("namespace", ""), group, resource, verb, name)
        for role in ROLES
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    ]
    parts = (*permissions.NEEDED.values(), permissions.HELPFUL)
    used = {
        Grant(PLACES.get(one.where, ""), one.group, one.resource, verb, name)
        for part in parts
        for one in part
        for name, verbs in permissions.by_name(one, PLACES).items()
        for verb in verbs
    }
    narrow = {one for one in used if not any(two != one and two.covers(one) for two in used)}
    assert {*documented} == narrow
    # Draining has a role of its own, which also has a part of what labels need.
    assert [one for one in {*documented} if documented.count(one) > 1] == [
        Grant("", "", "nodes", "patch", "")
    ]


def test_objects_of_others_need_no_permission() -> None:
    """Whoever may patch any policy, or any DaemonSet of a namespace, is as good as its admin."""
    for role in ROLES:
        for rule in role["rules"]:
            if rule["apiGroups"] != [""] or "configmaps" in rule["resources"]:
                assert {"patch", "delete"}.isdisjoint(rule["verbs"]) or rule["resourceNames"]


def test_the_api_server_is_asked_about_the_one_object() -> None:
    found = permissions.needed(["device_plugin", "device_plugin_adopted", "guard"], PLACES)
    names = {(one["resource"], verb): one["name"] for one in found for verb in one["verbs"]}
    assert names["daemonsets", "patch"] == "nvidia-device-plugin"
    assert names["runtimeclasses", "get"] == "nvidia"
    assert names["validatingadmissionpolicybindings", "patch"] == "metal-gpu-guard"
    assert names["priorityclasses", "patch"] == "metal-gpu-proof"
    assert names["daemonsets", "create"] == names["runtimeclasses", "list"] == ""
    # That of an adopted plugin is read, whatever its name.
    assert {
        one["name"] for one in found if one["resource"] == "daemonsets" and "get" in one["verbs"]
    } == {"nvidia-device-plugin", ""}


def test_parts_name_their_namespaces_and_nothing_twice() -> None:
    found = permissions.needed(["nodes", "smoke", "drain"], NAMESPACES)
    texts = [f"{one['resource']} {','.join(one['verbs'])} {one['namespace']}" for one in found]
    assert texts == [
        "nodes list,watch ",
        "pods list ",
        "pods create,list,watch tests",
        "pods deletecollection,delete tests",
        "nodes patch ",
        "pods/eviction create ",
    ]
    assert [one["any"] for one in found].index(True) == 3


def test_every_missing_permission_is_a_refusal_before_anything_begins() -> None:
    wanted = permissions.needed(["smoke", "device_plugin"], NAMESPACES)
    missing = [
        {**wanted[2], "verbs": ["deletecollection", "delete"]},
        {**wanted[7], "verbs": ["get"]},
        {**wanted[7], "verbs": ["create", "get"]},
    ]
    report = {
        "node_name": "n1",
        "kubelet_running": True,
        "refusals": [],
        "has_work": True,
        "notices": [],
    }
    found = admission({"a": report}, {"nodes": {}, "missing": missing, "user": "jane"})
    assert not found["begin"]
    assert [one["message"] for one in found["findings"]] == [
        "cluster: the API server does not let jane deletecollection or delete pods in the "
        "namespace tests",
        "cluster: the API server does not let jane get, create runtimeclasses.node.k8s.io in the "
        "whole cluster",
    ]
    assert {one["code"] for one in found["findings"]} == {"CLUSTER_FORBIDDEN"}


def test_a_user_without_a_name() -> None:
    (found,) = permissions.refuse_missing("", permissions.needed(["nodes"], {}))
    assert "does not let the user of the kubeconfig list, watch nodes in the" in found["message"]
