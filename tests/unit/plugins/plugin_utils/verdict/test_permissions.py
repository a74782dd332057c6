# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import permissions
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import admission

ROOT = Path(__file__).parents[5]
NAMESPACES = {"smoke": "tests", "plugin": "kube-system"}


def test_the_document_says_what_the_code_asks_for() -> None:
    role = yaml.safe_load((ROOT / "docs" / "permissions.yml").read_text())
    documented = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    parts = (*permissions.NEEDED.values(), permissions.HELPFUL)
    used = {
        (permission.group, permission.resource, verb)
        for part in parts
        for permission in part
        for verb in permission.verbs
    }
    assert documented == used


def test_parts_name_their_namespaces_and_nothing_twice() -> None:
    found = permissions.needed(["nodes", "smoke", "drain"], NAMESPACES)
    texts = [f"{one['resource']} {','.join(one['verbs'])} {one['namespace']}" for one in found]
    assert texts == [
        "nodes list,watch ",
        "pods list ",
        "pods create,list,watch tests",
        "pods deletecollection,delete tests",
        "nodes get,patch ",
        "pods get ",
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
