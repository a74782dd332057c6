# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the guard is planned. What its expressions do, a real API server shows in a scenario."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import guard
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    plan as plan_device_plugin,
)

RECORD = yaml.safe_load((Path(__file__).parents[5] / "recorded/isolation.yml").read_text())
DESIRED: dict[str, Any] = {
    "state": "present",
    "foreign": "refuse",
    "image": "nvcr.io/nvidia/k8s-device-plugin",
    "version": "v1",
    "image_pull_secrets": [],
    "device_list_strategy": "auto",
    "args": [],
    "namespace": "kube-system",
    "name": "nvidia-device-plugin",
    "runtime_class": "nvidia",
    "node_selector": {},
    "tolerations": [],
    "priority_class": "",
    "resources": {},
    "config": {},
    "env": {},
    "affinity": {},
    "guard": "auto",
    "guard_exempt_namespaces": ["kube-system"],
    "guard_resources": ["nvidia.com/gpu", "nvidia.com/mig-"],
}


def plan(engine: str = "docker", policies: Any = None, **more: Any) -> Any:
    member: dict[str, Any] = {"host": "h", "node": "n", "engine": engine}
    member |= {"versions": {}, "cdi": None, "default": None}
    member["gives_gpus_by_default"] = more.pop("gives_gpus_by_default", engine == "docker")
    observed: Any = {
        "daemonsets": more.pop("daemonsets", []),
        "runtime_classes": [],
        "priority_classes": [],
        "rows": {},
        "members": [member],
        "errors": [],
        "policies": NONE if policies is None else policies,
        "policy_errors": more.pop("policy_errors", []),
        "config_maps": [],
    }
    desired: Any = DESIRED | more
    assert {*desired} == {*DESIRED}
    return plan_device_plugin.plan(observed, desired)


MUTATING, VALIDATING = guard.MUTATING, guard.VALIDATING
ALL = [kind + suffix for kind in (MUTATING, VALIDATING) for suffix in ("", "Binding")]
VALIDATES = [VALIDATING, f"{VALIDATING}Binding"]


def policy(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": guard.NAME, "labels": labels}}


NONE: dict[str, Any] = {MUTATING: [], VALIDATING: []}
OURS = {MUTATING: [policy(**guard.LABELS)], VALIDATING: [policy(**guard.LABELS)]}
WARNS = {MUTATING: [], VALIDATING: [policy(**guard.LABELS)]}
WARNS[VALIDATING][0]["metadata"]["annotations"] = {"metal.gpu/guard": "warn"}
DENIES = copy.deepcopy(WARNS) | {MUTATING: None}
DENIES[VALIDATING][0]["metadata"]["annotations"] = {"metal.gpu/guard": "enforce"}
OTHERS = {MUTATING: [{"metadata": {"name": "another"}}], VALIDATING: []}
OLD = {MUTATING: None, VALIDATING: []}
OLDER = {MUTATING: None, VALIDATING: None}


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return [one["kind"] for one in objects if one["kind"] in ALL]


@pytest.mark.parametrize(
    ("engine", "wish", "policies", "applied", "removed"),
    [
        pytest.param("docker", "auto", NONE, ALL, [], id="docker"),
        pytest.param("containerd", "auto", NONE, [], [], id="nothing to guard"),
        pytest.param("containerd", "auto", OTHERS, [], [], id="of others"),
        pytest.param("containerd", "auto", OURS, ALL, [], id="needed by other nodes"),
        pytest.param("containerd", "enforce", NONE, ALL, [], id="wanted"),
        pytest.param("docker", "auto", WARNS, VALIDATES, [], id="still only looked at"),
        pytest.param("docker", "enforce", WARNS, ALL, [], id="looked at, and then wanted"),
        pytest.param("docker", "warn", NONE, VALIDATES, [], id="warn"),
        pytest.param("docker", "warn", OURS, VALIDATES, ALL[1::-1], id="no longer enforced"),
        pytest.param("docker", "none", NONE, [], [], id="not wanted"),
        pytest.param("docker", "none", OURS, [], [*ALL[1::-1], *ALL[:1:-1]], id="no longer wanted"),
        pytest.param("docker", "none", OTHERS, [], [], id="others stay"),
        pytest.param("docker", "auto", OLD, VALIDATES, [], id="1.30"),
        pytest.param("docker", "auto", OLDER, [], [], id="1.29"),
    ],
)
def test_when_it_is_there(
    engine: str, wish: str, policies: Any, applied: list[str], removed: list[str]
) -> None:
    made = plan(engine, policies, guard=wish)
    assert made["refusals"] == []
    assert kinds(made["data"]["manifests"]) == applied
    assert kinds(made["data"]["removed"]) == removed


@pytest.mark.parametrize(
    ("found", "wish", "actions"),
    [
        pytest.param(WARNS, "auto", ["Warn", "Audit"], id="a look at what it would reject"),
        pytest.param(WARNS, "enforce", ["Deny"], id="the end of the look"),
        pytest.param(DENIES, "auto", ["Deny"], id="1.30"),
        pytest.param(OURS, "auto", ["Deny"], id="1.36"),
    ],
)
def test_auto_keeps_what_the_policies_do(found: Any, wish: str, actions: list[str]) -> None:
    made = plan(policies=found, guard=wish)
    (binding,) = (one for one in made["data"]["manifests"] if one["kind"] == f"{VALIDATING}Binding")
    assert binding["spec"]["validationActions"] == actions
    mode = "enforce" if actions == ["Deny"] else "warn"
    assert binding["metadata"]["annotations"] == {"metal.gpu/guard": mode}
    assert "GUARD_NEW" not in [one["code"] for one in made["notices"]]


def test_a_new_guard_is_announced_with_what_it_leaves_alone() -> None:
    (notice,) = plan(guard_exempt_namespaces=["kube-system", "ops"])["notices"]
    assert notice["code"] == "GUARD_NEW"
    assert "in all namespaces but kube-system, ops" in notice["message"]
    assert plan("containerd")["notices"] == plan(guard="enforce")["notices"] == []


def test_other_rules_of_a_guard_that_rejects_pods_are_announced() -> None:
    """With a newer release, pods can be rejected that were not before."""
    made = {one["kind"]: one for one in plan()["data"]["manifests"]}
    there = copy.deepcopy({kind: [made[kind]] for kind in (MUTATING, VALIDATING)})
    assert plan(policies=there)["notices"] == []
    rules = there[VALIDATING][0]["spec"]["validations"]
    (rule,) = (one for one in rules if "annotation" in one["message"])
    rule["expression"] = "true"
    (notice,) = plan(policies=there)["notices"]
    assert notice["code"] == "GUARD_CHANGED"
    assert notice["message"].endswith(": an annotation cdi.k8s.io/ of the pod names GPUs")
    assert plan(policies=there, guard="warn")["notices"] == []
    assert plan(policies=WARNS, guard="enforce")["notices"] == []


def test_the_plugin_comes_after_what_is_about_its_pods() -> None:
    made = plan()
    assert made["data"]["manifests"][-1]["kind"] == "DaemonSet"


def test_default_runtime_of_containerd_needs_it_too() -> None:
    made = plan("containerd", gives_gpus_by_default=True)
    assert kinds(made["data"]["manifests"]) == ALL


def daemonset(namespace: str, image: str, **metadata: Any) -> dict[str, Any]:
    folder = {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    return {
        "metadata": {"namespace": namespace, "name": "theirs", **metadata},
        "spec": {
            "selector": {"matchLabels": {"app": "theirs"}},
            "template": {"spec": {"containers": [{"image": image}], "volumes": [folder]}},
        },
    }


def exempt(made: Any) -> list[list[str]]:
    """Return the exempt namespaces of each policy."""
    rules = [
        rule
        for found in made["data"]["manifests"]
        if found["kind"] in (MUTATING, VALIDATING)
        for rule in found["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    ]
    assert all((rule["key"], rule["operator"]) == (OF_NAMESPACE, "NotIn") for rule in rules)
    return [rule["values"] for rule in rules]


OF_NAMESPACE = "kubernetes.io/metadata.name"
PLUGIN = "nvidia/k8s-device-plugin:1"


def test_an_adopted_plugin_is_guarded_only_on_demand() -> None:
    theirs = daemonset("gpu", PLUGIN)
    for wish, expected in (("auto", []), ("enforce", ALL)):
        made = plan(daemonsets=[theirs], foreign="adopt", guard=wish)
        assert made["data"]["is_adopted"] is True
        found = [one["kind"] for one in made["data"]["manifests"]]
        assert sorted(found) == sorted(["PriorityClass", *expected])


@pytest.mark.parametrize("wish", ["auto", "enforce"])
def test_the_namespace_of_an_adopted_plugin_is_exempt(wish: str) -> None:
    made = plan(daemonsets=[daemonset("gpu", PLUGIN)], policies=OURS, foreign="adopt", guard=wish)
    assert exempt(made) == [["gpu", "kube-system"]] * 2


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            daemonset(
                "operator", "dcgm-exporter:1", ownerReferences=[{"apiVersion": "nvidia.com/v1"}]
            ),
            ["kube-system", "operator"],
            id="of a ClusterPolicy",
        ),
        pytest.param(
            daemonset("operator", "mirror.example/nvidia/k8s/container-toolkit:v1.20.0"),
            ["kube-system", "operator"],
            id="that installs the toolkit",
        ),
        pytest.param(
            daemonset("team", "dcgm-exporter:1", ownerReferences=[{"apiVersion": "apps/v1"}]),
            ["kube-system"],
            id="of somebody else",
        ),
    ],
)
def test_namespaces_of_the_operator_are_exempt(found: Any, expected: list[str]) -> None:
    assert exempt(plan(daemonsets=[found])) == [expected] * 2


def test_teardown_takes_it_and_nothing_of_others() -> None:
    assert kinds(plan(state="absent", policies=OURS)["data"]["removed"]) == [
        *ALL[1::-1],
        *ALL[:1:-1],
    ]
    assert plan(state="absent", policies=OTHERS)["data"]["removed"] == []


@pytest.mark.parametrize(
    ("policies", "kinds"),
    [
        (OLD, f"{MUTATING} (Kubernetes 1.36)"),
        (OLDER, f"{MUTATING} (Kubernetes 1.36) and {VALIDATING} (Kubernetes 1.30)"),
    ],
)
def test_a_cluster_that_is_too_old_is_named_with_what_it_lacks(policies: Any, kinds: str) -> None:
    notice, *announced = plan(policies=policies)["notices"]
    assert [one["code"] for one in announced] == (["GUARD_NEW"] if policies is OLD else [])
    assert notice["code"] == "GUARD_UNSUPPORTED"
    assert f"does not have {kinds} in version v1" in notice["message"]
    assert plan("containerd", policies=policies)["notices"] == []


def test_a_policy_of_somebody_else_is_not_overwritten() -> None:
    found = {MUTATING: [], VALIDATING: [policy(team="security")]}
    made = plan(policies=found)
    (refusal,) = made["refusals"]
    assert refusal["code"] == "GUARD_NAME_TAKEN"
    assert f"{VALIDATING} {guard.NAME}" in refusal["message"]
    assert plan(policies=found, guard="none")["data"]["removed"] == []


def test_a_list_that_is_forbidden_stops_only_who_needs_it() -> None:
    error = (
        'policies is forbidden: User "jane" cannot list resource "mutatingadmissionpolicies" in '
        'API group "admissionregistration.k8s.io" at the cluster scope'
    )
    (refusal,) = plan(policy_errors=[error])["refusals"]
    assert refusal["code"] == "CLUSTER_FORBIDDEN"
    assert plan("containerd", policy_errors=[error])["refusals"] == []


def test_the_namespace_of_the_plugin_is_always_exempt() -> None:
    made = plan(namespace="gpu", guard_exempt_namespaces=["ops", "ops"])
    assert exempt(made) == [["gpu", "ops"]] * 2


def test_versions_are_those_that_are_recorded() -> None:
    rows = {row["what"]: row["value"] for row in RECORD["policies"]["rows"]}
    assert rows == guard.NEEDS


def guards() -> tuple[Any, Any]:
    """Return the specifications of both policies."""
    mutation, _binding, validation, _its = guard.manifests(
        mutates=True, denies=True, exempt=[], resources=["nvidia.com/gpu"], handler="nvidia"
    )
    return mutation["spec"], validation["spec"]


def test_values_that_are_let_through_mean_nothing() -> None:
    rows = {row["what"]: row["value"] for row in RECORD["variable"]["rows"]}
    assert rows["void"] == rows[""] == "nothing"
    assert rows["not set with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA"] == "all"
    mutation, validation = guards()
    (patch,) = mutation["mutations"]
    assert "'value': 'void'" in patch["jsonPatch"]["expression"]
    rule = validation["validations"][0]
    assert "!has(e.valueFrom) && (!has(e.value) || e.value in ['', 'void'])" in rule["expression"]
    assert "A container may leave it out, or set it to void" in rule["message"]


@pytest.mark.parametrize("row", RECORD["annotation_values"]["rows"], ids=lambda row: row["value"])
def test_an_annotation_is_rejected_if_it_names_gpus_of_the_node(row: Any) -> None:
    """CDI has annotations of all vendors, and GPUs of virtual machines are none of ours."""
    _mutation, validation = guards()
    (rule,) = (one for one in validation["validations"] if "annotation" in one["message"])
    (prefix,) = (row for row in RECORD["requests"]["rows"] if row["what"] == "annotation")
    assert f"!k.startsWith('{prefix['value']}')" in rule["expression"]
    kinds = re.findall(r"annotations\[k\]\.contains\('([^']+)'\)", rule["expression"])
    assert any(kind in row["value"] for kind in kinds) is row["gives"]


def test_a_claim_of_a_dra_driver_is_a_request() -> None:
    _mutation, validation = guards()
    (rule,) = (one for one in validation["validations"] if "RuntimeClass" in one["message"])
    assert "|| (has(object.spec.resourceClaims) && size(" in rule["expression"]


def test_a_policy_that_is_as_it_should_be_is_not_applied_again() -> None:
    """With the defaults that the API server adds. Bindings are not listed, so they are applied."""
    made = plan()["data"]["manifests"]
    found: dict[str, Any] = {one["kind"]: [copy.deepcopy(one)] for one in made if "spec" in one}
    there = {kind: found[kind] for kind in (MUTATING, VALIDATING)}
    for (policy,) in there.values():
        del policy["apiVersion"], policy["kind"]
        policy["metadata"] |= {"uid": "1", "labels": {**guard.LABELS, "team": "ours"}}
        policy["spec"]["matchConstraints"] |= {"matchPolicy": "Equivalent", "objectSelector": {}}
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            rule["scope"] = "*"
        policy["status"] = {"observedGeneration": 1}
    bindings = [f"{MUTATING}Binding", f"{VALIDATING}Binding"]
    assert kinds(plan(policies=there)["data"]["manifests"]) == bindings
    there[VALIDATING][0]["spec"]["validations"].pop()
    assert kinds(plan(policies=there)["data"]["manifests"]) == [
        bindings[0],
        VALIDATING,
        bindings[1],
    ]
    assert plan(policies=there)["data"]["removed"] == []
