# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Policies of the API server that keep GPUs from containers that request none.

Where `nvidia` is the default runtime of an engine, each container gets all GPUs of its node if its
image sets NVIDIA_VISIBLE_DEVICES=all, as CUDA images do. The mutating policy sets the variable to
`void` in every container that requests no GPU. The validating policy rejects what else leads past
the device plugin. They need no server of their own.

The first value of the variable decides. `void` and an empty one mean nothing at all: an old image
(CUDA_VERSION, no NVIDIA_REQUIRE_CUDA) means all GPUs if the variable is not set.

Source: tests/recorded/isolation.yml; https://kubernetes.io/docs/reference/access-authn-authz/
mutating-admission-policy/ and validating-admission-policy/. The laboratory runs both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import no_answer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.proof_pod import MANAGED_BY, MANAGER
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    operators,
    strategy,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.manifest import (
    HANDLER,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Data,
    Desired,
    Manifest,
    Object,
    Observed,
    Values,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Plan

NAME = "metal-gpu-guard"
VARIABLE = "NVIDIA_VISIBLE_DEVICES"
LABELS = {"app.kubernetes.io/name": NAME, MANAGED_BY: MANAGER}
MUTATING, VALIDATING = "MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"
# What each policy needs of the cluster: v1 of its kind, without feature gates.
NEEDS = {MUTATING: "1.36", VALIDATING: "1.30"}

_MODE = "metal.gpu/guard"  # annotation: what the policy does, enforce or warn
_API = "admissionregistration.k8s.io/v1"
_OF_NAMESPACE = "kubernetes.io/metadata.name"
_LISTS = ("containers", "initContainers", "ephemeralContainers")
# Ephemeral containers are added by an update of their own; the others cannot change.
_RULES: list[Values] = [
    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
    {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["pods/ephemeralcontainers"],
    },
]
_IS_NEW = "request.operation == 'CREATE'"
# How a container names devices in the strategy volume-mounts. Nobody writes that by hand.
_MOUNTS = "nvidia-container-devices"
# How a pod names devices for NVIDIA's runtime, where the engine passes annotations to it. The kinds
# are those of what the driver of the node serves, also runtime.nvidia.com/gpu=, and of claims.
# nvidia.com/pgpu= is a GPU for a virtual machine: pods of Kata Containers name it in this way.
_ANNOTATIONS = "cdi.k8s.io/"
_KINDS = (
    *(f"nvidia.com/{kind}=" for kind in ("gpu", "imex-channel", "gds", "mofed")),
    "gpu.nvidia.com/",
)
_REMEDY = (
    "Request GPUs by resources.limits, or ask the admin of the cluster to exempt the namespace "
    "(device_plugin_guard_exempt_namespaces)"
)


def manifests(
    *,
    mutates: bool,
    denies: bool,
    exempt: Iterable[str],
    resources: Sequence[str],
    handler: str,
    by_cdi: bool = False,
) -> list[Manifest]:
    """Return the policies and their bindings, in the order in which they are applied.

    `denies` is whether the validating policy rejects pods; otherwise the API server warns the
    client, and audits. `handler` is the RuntimeClass of the NVIDIA runtime. `by_cdi` is whether a
    container gets the GPUs that it requests by CDI alone, and needs no variable for them.
    """
    found: list[Manifest] = []
    if mutates:
        found += _pair(MUTATING, exempt, _mutation(resources, by_cdi), {}, "enforce")
    actions, mode = (["Deny"], "enforce") if denies else (["Warn", "Audit"], "warn")
    validation = {"validations": _validations(resources, handler, mutates)}
    return found + _pair(VALIDATING, exempt, validation, {"validationActions": actions}, mode)


def _pair(
    kind: str, exempt: Iterable[str], spec: Values, binding: Values, mode: str
) -> list[Manifest]:
    """Return a policy and its binding. Without a binding, a policy has no effect."""
    selector = {
        "key": _OF_NAMESPACE,
        "operator": "NotIn",
        "values": sorted({*exempt}),
    }
    policy: Values = {
        # An error would be a leak that nobody sees.
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchExpressions": [selector]},
            "resourceRules": _RULES,
        },
        **spec,
    }
    return [
        _object(kind, policy, mode),
        _object(f"{kind}Binding", {"policyName": NAME, **binding}, mode),
    ]


def _object(kind: str, spec: Values, mode: str) -> Manifest:
    metadata = {"name": NAME, "labels": LABELS, "annotations": {_MODE: mode}}
    return {"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": spec}


# --- expressions (CEL) --------------------------------------------------------------------------


def _requests(container: str, resources: Sequence[str]) -> str:
    """Return whether a container requests a GPU. Resources are given by their prefixes."""
    # dyn: the API server's check of types does not know the field, and would warn in the status.
    limits = f"dyn({container}.resources).limits"
    named = " || ".join(f"r.startsWith({json.dumps(prefix)})" for prefix in resources)
    return (
        f"has({container}.resources) && has({limits}) && "
        f"{limits}.exists(r, ({named}) && string({limits}[r]) != '0')"
    )


def _has_variable(container: str) -> str:
    return f"has({container}.env) && {container}.env.exists(e, e.name == '{VARIABLE}')"


def _was_there(container: str) -> str:
    """Return whether an ephemeral container existed before: it can no longer change."""
    old = "oldObject.spec.ephemeralContainers"
    return f"(has({old}) && {old}.exists(o, o.name == {container}.name))"


def _requesting(resources: Sequence[str]) -> str:
    """Return whether a container of the pod requests a GPU. Ephemeral ones cannot."""
    return " || ".join(
        f"(has(object.spec.{name}) && object.spec.{name}.exists(c, {_requests('c', resources)}))"
        for name in _LISTS[:2]
    )


def _mutation(resources: Sequence[str], by_cdi: bool) -> Values:
    """Return the patch that sets the variable wherever it is not set and not needed."""
    patches = []
    for name in _LISTS:
        is_open = f"!({_has_variable('c')})"
        if name == "ephemeralContainers":  # they cannot request anything
            condition = f"!{_was_there('c')} && {is_open}"
        elif by_cdi:
            condition = is_open
        else:
            condition = f"!({_requests('c', resources)}) && {is_open}"
        item = f"{{'name': '{VARIABLE}', 'value': 'void'}}"
        patch = (
            "JSONPatch{op: 'add', "
            f"path: '/spec/{name}/' + string(i) + (has(c.env) ? '/env/-' : '/env'), "
            f"value: has(c.env) ? dyn({item}) : dyn([{item}])}}"
        )
        every = f"object.spec.{name}.transformList(i, c, {condition}, {patch})"
        when = f"{_IS_NEW} == {'false' if name == 'ephemeralContainers' else 'true'}"
        patches.append(f"({when} && has(object.spec.{name}) ? {every} : [])")
    return {
        # Again after a webhook that adds a container.
        "reinvocationPolicy": "IfNeeded",
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(patches)}},
        ],
    }


def _every(predicate: str) -> str:
    """Return whether a predicate is true of each container `c` that the request adds."""
    rules = []
    for name in _LISTS:
        items = f"object.spec.{name}"
        if name == "ephemeralContainers":
            rule = f"{_IS_NEW} || !has({items}) || {items}.all(c, {_was_there('c')} || {predicate})"
        else:
            rule = f"!({_IS_NEW}) || !has({items}) || {items}.all(c, {predicate})"
        rules.append(f"({rule})")
    return " && ".join(rules)


def _validations(resources: Sequence[str], handler: str, mutates: bool) -> list[Values]:
    foreign = (
        f"(!has(c.env) || c.env.all(e, e.name != '{VARIABLE}' || "
        # The API server drops an empty value, so that of a valueFrom looks the same.
        "(!has(e.valueFrom) && (!has(e.value) || e.value in ['', 'void']))))"
    )
    mounts = f"(!has(c.volumeMounts) || c.volumeMounts.all(m, !m.mountPath.contains('{_MOUNTS}')))"
    named = " || ".join(f"object.metadata.annotations[k].contains('{kind}')" for kind in _KINDS)
    is_void = f"e.name == '{VARIABLE}' && has(e.value) && e.value == 'void'"
    is_patched = " || ".join(
        f"(has(object.spec.{name}) && object.spec.{name}.exists(c, "
        f"has(c.env) && c.env.exists(e, {is_void})))"
        for name in _LISTS
    )
    lets = f"(({_has_variable('c')}) || ({_requests('c', resources)}))"
    # The device plugin gives a container its variable; one in the pod has precedence.
    rules = [
        (
            _every(foreign),
            f"only the device plugin names GPUs in {VARIABLE}. A container may leave it out, or "
            "set it to void: with another value, it may see GPUs that it does not request. "
            f"{_REMEDY}",
        ),
        (
            _every(mounts),
            f"only the device plugin mounts {_MOUNTS}, by which a container names its GPUs. "
            f"{_REMEDY}",
        ),
        (
            f"!({_IS_NEW}) || !has(object.metadata.annotations) || "
            f"object.metadata.annotations.all(k, !k.startsWith('{_ANNOTATIONS}') || !({named}))",
            f"an annotation {_ANNOTATIONS} of the pod names GPUs, or devices of their driver. "
            f"{_REMEDY}",
        ),
        (
            f"!({_IS_NEW}) || !has(object.spec.volumes) || object.spec.volumes.all(v, "
            r"!has(v.hostPath) || !v.hostPath.path.matches('^/+([.]/+)*dev/+([.]/+)*nvidia'))",
            f"a hostPath volume has a device file of a GPU. {_REMEDY}",
        ),
        (
            f"!({_IS_NEW}) || !has(object.spec.runtimeClassName) || "
            f"object.spec.runtimeClassName != {json.dumps(handler)} || "
            "(has(object.spec.resourceClaims) && size(object.spec.resourceClaims) > 0) || "
            + _requesting(resources),
            f"the pod has the RuntimeClass {handler}, and requests no GPU. {_REMEDY}",
        ),
        (
            # Without the scheduler, nobody counts what such a pod requests, and a kubelet ignores a
            # resource that its node does not have. A kubelet itself may report a static pod.
            f"!({_IS_NEW}) || !has(object.spec.nodeName) || "
            "request.userInfo.username == 'system:node:' + object.spec.nodeName || "
            f"!({_requesting(resources)})",
            "the pod has a nodeName, and requests GPUs: no scheduler has counted them. Leave out "
            "nodeName; to choose a node, use nodeSelector with kubernetes.io/hostname",
        ),
    ]
    if mutates:  # and has looked at this pod: the API server may not ask the mutating policy
        rules.append(
            (
                f"!({is_patched}) || ({_every(lets)})",
                f"a container without a request lacks {VARIABLE}, which others of the pod have: a "
                "webhook has added it too late. Set the variable to void in what the webhook adds",
            )
        )
    return [
        {"expression": expression, "message": message, "reason": "Forbidden"}
        for expression, message in rules
    ]


# --- plan -----------------------------------------------------------------------------------------


def plan_guard(
    plan: Plan[Data], observed: Observed, desired: Desired, ways: Iterable[str | None]
) -> None:
    """Plan the policies: those to apply come first, before the pods that they are about.

    `ways` are the strategies of the device plugin, now and after this run, if they are known.
    """
    data, wish = plan.data, str(desired["guard"])
    found, is_auto = observed["policies"] or {}, wish == "auto"
    is_needed = any(member["gives_gpus_by_default"] for member in observed["members"])
    if is_auto:
        # The nodes of this run may be others than those that need it. Pods of the whole cluster are
        # rejected only if an admin asks for it.
        wish = _mode(found)
        if wish == "none" and is_needed and not data["is_adopted"]:
            wish = "warn"
    if wish == "none":
        data["removed"] = removed(found)
        return
    for error in observed["policy_errors"]:
        plan.refusals.append(no_answer(error, plan.host))
    for kind, policies in found.items():
        if any(one["metadata"]["name"] == NAME and not _is_ours(one) for one in policies or ()):
            plan.refuse("GUARD_NAME_TAKEN", kind=kind, name=NAME)
    lacking = [kind for kind in NEEDS if found.get(kind, []) is None]
    if lacking:
        needs = " and ".join(f"{kind} (Kubernetes {NEEDS[kind]})" for kind in lacking)
        plan.notice("GUARD_UNSUPPORTED", kinds=needs)
    mutates = wish == "enforce" and MUTATING not in lacking
    exempt, widened = _exempt(data, observed, desired)
    before = _exempt_now(found)
    if before is not None and is_auto and widened - before:
        plan.refuse("GUARD_EXEMPTS", namespaces=", ".join(sorted(widened - before)))
    handler = desired["runtime_class"] or HANDLER
    wanted = manifests(
        mutates=mutates,
        denies=wish == "enforce",
        exempt=exempt,
        resources=desired["guard_resources"],
        handler=handler,
        by_cdi=all(way and {*way.split(",")} <= {*strategy.CDI} for way in ways),
    )
    served = [one for one in wanted if one["kind"].removesuffix("Binding") not in lacking]
    if is_auto and is_needed and wish == "warn" and served:
        plan.notice("GUARD_WARNS", namespaces=", ".join(sorted(exempt)))
    rules = _validations(desired["guard_resources"], handler, mutates) if wish == "enforce" else []
    changed = _changed_rules(rules, found)
    changes = [f"it rejects pods by new rules: {'; '.join(changed)}"] if changed else []
    changes += _changed_exemptions(exempt, before, widened)
    if changes:
        plan.notice("GUARD_CHANGED", changes=". ".join(changes))
    applied = [one for one in served if not _is_there(one, found)]
    data["manifests"] = [*applied, *data["manifests"]]
    kept = {one["kind"] for one in served}
    data["removed"] = [one for one in removed(found) if one["kind"] not in kept]


def _mode(found: Mapping[str, list[Object] | None]) -> str:
    """Return what the policies of this role do now. Their bindings are not listed."""
    ours = [one for policies in found.values() for one in _own(policies)]
    if _own(found.get(MUTATING)) or any(
        section(one, "metadata", "annotations").get(_MODE) == "enforce" for one in ours
    ):
        return "enforce"
    return "warn" if ours else "none"


def _changed_rules(rules: Iterable[Values], found: Mapping[str, list[Object] | None]) -> list[str]:
    """Return what the rules say by which policies of this role did not reject pods before."""
    ours = _own(found.get(VALIDATING))
    if _mode(found) != "enforce" or not ours:
        return []
    now = {one["expression"] for one in (ours[0].get("spec") or {}).get("validations", ())}
    return [
        str(rule["message"]).removesuffix(_REMEDY).rstrip(". ")
        for rule in rules
        if rule["expression"] not in now
    ]


def _exempt(data: Data, observed: Observed, desired: Desired) -> tuple[set[str], set[str]]:
    """Return the namespaces whose pods the policies leave alone, and those that no variable names.

    The device plugin sees all GPUs without a request, and so do pods of the GPU Operator.
    """
    declared = {*desired["guard_exempt_namespaces"], desired["namespace"]}
    found = operators.namespaces(observed)
    if data["is_adopted"]:
        found.add(data["used"]["namespace"])
    return declared | found, found - declared


def _exempt_now(found: Mapping[str, list[Object] | None]) -> set[str] | None:
    """Return the namespaces that every policy of this role leaves alone; None without a policy."""
    ours = [one for policies in found.values() for one in _own(policies)]
    each = [
        {
            name
            for rule in section(one, "spec", "matchConstraints", "namespaceSelector").get(
                "matchExpressions", ()
            )
            if rule["key"] == _OF_NAMESPACE
            for name in rule["values"]
        }
        for one in ours
    ]
    return set.intersection(*each) if each else None


def _changed_exemptions(
    exempt: set[str], before: set[str] | None, widened: set[str]
) -> Iterator[str]:
    if before is None:  # what the variables name is no news
        before = exempt - widened
    for names, text in (
        (exempt - before, "it leaves these namespaces alone"),
        (before - exempt, "it no longer leaves these namespaces alone"),
    ):
        if names:
            yield f"{text}: {', '.join(sorted(names))}"


def removed(found: Mapping[str, list[Object] | None]) -> list[Manifest]:
    """Return the policies and the bindings of this role that exist. Bindings go first."""
    return [
        {"apiVersion": _API, "kind": name, "metadata": {"name": NAME}}
        for kind, policies in found.items()
        if _own(policies)
        for name in (f"{kind}Binding", kind)
    ]


def _is_there(wanted: Manifest, found: Mapping[str, list[Object] | None]) -> bool:
    """Tell whether a policy is as it should be.

    The API server and its controller write the managers of fields of a new policy in another order
    than the next apply, which then counts as a change.
    """
    return any(_has(one, wanted) for one in _own(found.get(wanted["kind"])))


def _has(found: object, wanted: object) -> bool:
    """Tell whether an object has every value of another one. The API server adds defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            _has(found.get(key), value)
            for key, value in wanted.items()
            if key not in ("apiVersion", "kind")  # items of a list lack them
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list) and len(found) == len(wanted) and all(map(_has, found, wanted))
        )
    return found == wanted


def _own(policies: list[Object] | None) -> list[Object]:
    return [one for one in policies or () if one["metadata"]["name"] == NAME and _is_ours(one)]


def _is_ours(policy: Object) -> bool:
    """Tell whether this role created a policy."""
    labels: Mapping[str, str] = policy["metadata"].get("labels") or {}
    return LABELS.items() <= labels.items()
