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
    "adopt": "gpu/theirs",
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
        "cluster_policies": more.pop("cluster_policies", []),
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
OF_NAMESPACE = "kubernetes.io/metadata.name"
OTHERS = {MUTATING: [{"metadata": {"name": "another"}}], VALIDATING: []}


def guarding(policies: dict[str, Any], *exempt: str) -> Any:
    """Return policies that leave namespaces alone."""
    rule = {"key": OF_NAMESPACE, "operator": "NotIn", "values": [*exempt]}
    selector = {"namespaceSelector": {"matchExpressions": [rule]}}
    made = copy.deepcopy(policies)
    for found in made.values():
        for one in found or ():
            one["spec"] = {"matchConstraints": selector}
    return made


def warns(*exempt: str) -> Any:
    return guarding(WARNS, *exempt)


OLD = {MUTATING: None, VALIDATING: []}
OLDER = {MUTATING: None, VALIDATING: None}


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return [one["kind"] for one in objects if one["kind"] in ALL]


@pytest.mark.parametrize(
    ("engine", "wish", "policies", "applied", "removed"),
    [
        pytest.param("docker", "auto", NONE, VALIDATES, [], id="docker"),
        pytest.param("docker", "enforce", NONE, ALL, [], id="docker, on request"),
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
    codes = [one["code"] for one in made["notices"]]
    assert ("GUARD_WARNS" in codes) is (actions != ["Deny"])


@pytest.mark.parametrize("policies", [NONE, WARNS])
def test_a_guard_that_only_warns_says_so_until_an_admin_decides(policies: Any) -> None:
    *_more, notice = plan(policies=policies, guard_exempt_namespaces=["kube-system", "ops"])[
        "notices"
    ][:1]
    assert notice["code"] == "GUARD_WARNS"
    assert "It leaves alone: kube-system, ops" in notice["message"]
    for made in (plan("containerd"), plan(guard="enforce"), plan(guard="warn")):
        assert made["notices"] == []


def test_other_rules_of_a_guard_that_rejects_pods_are_announced() -> None:
    """With a newer release, pods can be rejected that were not before."""
    made = {one["kind"]: one for one in plan(guard="enforce")["data"]["manifests"]}
    there = copy.deepcopy({kind: [made[kind]] for kind in (MUTATING, VALIDATING)})
    assert plan(policies=there)["notices"] == []
    rules = there[VALIDATING][0]["spec"]["validations"]
    (rule,) = (one for one in rules if "annotation" in one["message"])
    rule["expression"] = "true"
    (notice,) = plan(policies=there)["notices"]
    assert notice["code"] == "GUARD_CHANGED"
    words = "new rules: an annotation cdi.k8s.io/ of the pod names GPUs, or devices of their driver"
    assert notice["message"].endswith(words)
    assert plan(policies=there, guard="warn")["notices"] == []
    assert plan(policies=warns("kube-system"), guard="enforce")["notices"] == []


def test_the_plugin_comes_after_what_is_about_its_pods() -> None:
    made = plan()
    assert made["data"]["manifests"][-1]["kind"] == "DaemonSet"


def test_default_runtime_of_containerd_needs_it_too() -> None:
    made = plan("containerd", gives_gpus_by_default=True)
    assert kinds(made["data"]["manifests"]) == VALIDATES


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


PLUGIN = "nvidia/k8s-device-plugin:1"


def test_an_adopted_plugin_is_guarded_only_on_demand() -> None:
    theirs = daemonset("gpu", PLUGIN)
    for wish, expected in (("auto", []), ("enforce", ALL)):
        made = plan(daemonsets=[theirs], foreign="adopt", guard=wish)
        assert made["data"]["is_adopted"] is True
        found = [one["kind"] for one in made["data"]["manifests"]]
        assert sorted(found) == sorted(["PriorityClass", *expected])


def owned(uid: str, **more: Any) -> dict[str, Any]:
    owner = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "name": "cluster-policy"}
    return {"ownerReferences": [{**owner, "uid": uid, "controller": True, **more}]}


POLICY = {"metadata": {"name": "cluster-policy", "uid": "1"}, "status": {"namespace": "operator"}}
BARE = {"metadata": POLICY["metadata"]}
DCGM, TOOLKIT = "dcgm-exporter:1", "registry.example/team-a/container-toolkit:1"


@pytest.mark.parametrize(
    ("found", "policies", "more"),
    [
        pytest.param(daemonset("operator", DCGM, **owned("1")), [POLICY], ["operator"], id="its"),
        pytest.param(daemonset("operator", DCGM, **owned("1")), [BARE], ["operator"], id="older"),
        pytest.param(daemonset("team-a", DCGM, **owned("1")), [POLICY], [], id="elsewhere"),
        pytest.param(daemonset("team-a", DCGM, **owned("2")), [POLICY], [], id="another uid"),
        pytest.param(daemonset("team-a", DCGM, **owned("1")), [], [], id="invented"),
        pytest.param(
            daemonset("operator", DCGM, **owned("1", controller=False)), [POLICY], [], id="no owner"
        ),
        pytest.param(
            daemonset("operator", DCGM, **owned("1", kind="Job")), [POLICY], [], id="another kind"
        ),
        pytest.param(daemonset("team-a", TOOLKIT), [POLICY], [], id="a name of an image"),
        pytest.param(daemonset("team-a", "nvidia/driver:1"), [POLICY], [], id="another name"),
    ],
)
def test_only_an_operator_that_exists_is_exempt(found: Any, policies: Any, more: list[str]) -> None:
    """Whoever may create a DaemonSet chooses its image and its owner."""
    made = plan(daemonsets=[found], cluster_policies=policies, guard="enforce")
    assert exempt(made) == [["kube-system", *more]] * 2
    changes = [one["message"] for one in made["notices"] if one["code"] == "GUARD_CHANGED"]
    assert bool(changes) is bool(more)


THEIRS = {"daemonsets": [daemonset("operator", DCGM, **owned("1"))], "cluster_policies": [POLICY]}
ADOPTED = {"daemonsets": [daemonset("gpu", PLUGIN)], "foreign": "adopt"}


@pytest.mark.parametrize(("more", "namespace"), [(THEIRS, "operator"), (ADOPTED, "gpu")])
def test_exemptions_never_grow_by_themselves(more: dict[str, Any], namespace: str) -> None:
    narrow = guarding(OURS, "kube-system")
    (refusal,) = plan(policies=narrow, **more)["refusals"]
    assert (refusal["code"], namespace in refusal["message"]) == ("GUARD_EXEMPTS", True)
    named = {**more, "guard_exempt_namespaces": ["kube-system", namespace]}
    for one, wish in ((more, "enforce"), (more, "warn"), (named, "auto")):
        made = plan(policies=narrow, guard=wish, **one)
        assert made["refusals"] == []
        assert {*map(tuple, exempt(made))} == {tuple(sorted(["kube-system", namespace]))}
        assert any(
            f"it leaves these namespaces alone: {namespace}" in one["message"]
            for one in made["notices"]
        )
    wide = plan(policies=guarding(OURS, "kube-system", namespace), **more)
    assert wide["refusals"] == []
    assert not any("leaves these" in one["message"] for one in wide["notices"])


def test_a_namespace_that_is_guarded_again_is_announced() -> None:
    """As after an update of a release that believed images."""
    (notice,) = plan(policies=guarding(OURS, "kube-system", "team-a"))["notices"]
    assert notice["message"].endswith("it no longer leaves these namespaces alone: team-a")


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
    assert [one["code"] for one in announced] == (["GUARD_WARNS"] if policies is OLD else [])
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
    made = plan(namespace="gpu", guard_exempt_namespaces=["ops", "ops"], guard="enforce")
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


def rule_about(words: str) -> str:
    _mutation, validation = guards()
    (rule,) = (one for one in validation["validations"] if words in one["message"])
    return str(rule["expression"])


def test_a_pod_with_a_node_name_requests_no_gpus_unless_its_kubelet_reports_it() -> None:
    """The scheduler does not see it, and the kubelet drops a resource that its node lacks."""
    rows = {row["what"]: row["value"] for row in RECORD["node_name"]["rows"]}
    assert rows["a limit of nvidia.com/gpu-none on a node without it"] == "admitted"
    rule = rule_about("nodeName")
    kubelet = "request.userInfo.username == 'system:node:' + object.spec.nodeName"
    assert f"!has(object.spec.nodeName) || {kubelet} || !(" in rule
    for name in ("containers", "initContainers"):
        assert f"object.spec.{name}.exists(c, has(c.resources)" in rule


def test_containers_that_come_later_are_as_others() -> None:
    """Only where the mutating policy is there, and has looked at the pod."""
    rule = rule_about("a webhook has added it too late")
    assert rule.startswith("!((has(object.spec.containers) && object.spec.containers.exists(c, ")
    for policies in (OLD, NONE):
        made = plan(policies=policies, guard="enforce")["data"]["manifests"]
        (validation,) = (one for one in made if one["kind"] == VALIDATING)
        texts = [one["message"] for one in validation["spec"]["validations"]]
        assert any("webhook" in text for text in texts) is (policies is NONE)


def of_strategy(strategy: str | None) -> list[dict[str, Any]]:
    """Return the DaemonSet of this role, if it is there."""
    if strategy is None:
        return []
    (made,) = plan("containerd", device_list_strategy=strategy)["data"]["manifests"][-1:]
    return [made]


@pytest.mark.parametrize(
    ("before", "wish", "always"),
    [
        pytest.param(None, "cdi-cri", True, id="new"),
        pytest.param("cdi-cri", "cdi-cri", True, id="stays"),
        pytest.param("cdi-cri", "cdi-annotations,cdi-cri", True, id="another one by CDI"),
        # Pods that start meanwhile get their GPUs by the variable.
        pytest.param("envvar", "cdi-cri", False, id="still runs"),
        pytest.param("cdi-cri", "envvar", False, id="comes"),
        pytest.param("envvar,cdi-cri", "envvar,cdi-cri", False, id="both"),
        pytest.param("volume-mounts", "volume-mounts", False, id="mounts"),
    ],
)
def test_with_cdi_a_request_needs_no_variable(before: Any, wish: str, always: bool) -> None:
    """Otherwise, an image with NVIDIA_VISIBLE_DEVICES=all gets all GPUs for a request of one."""
    made = plan(
        "containerd",
        gives_gpus_by_default=True,
        guard="enforce",
        daemonsets=of_strategy(before),
        device_list_strategy=wish,
    )
    (policy,) = (one for one in made["data"]["manifests"] if one["kind"] == MUTATING)
    (patch,) = policy["spec"]["mutations"]
    assert ("limits" not in patch["jsonPatch"]["expression"]) is always


def test_a_claim_of_a_dra_driver_is_a_request() -> None:
    _mutation, validation = guards()
    (rule,) = (one for one in validation["validations"] if "RuntimeClass" in one["message"])
    assert "|| (has(object.spec.resourceClaims) && size(" in rule["expression"]


def test_a_policy_that_is_as_it_should_be_is_not_applied_again() -> None:
    """With the defaults that the API server adds. Bindings are not listed, so they are applied."""
    made = plan(guard="enforce")["data"]["manifests"]
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
