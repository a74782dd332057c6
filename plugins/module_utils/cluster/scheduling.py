# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out why a pod may not run on a node: labels, affinity, taints.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ and
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NO_ROOM = ("NoSchedule", "NoExecute")  # PreferNoSchedule only ranks nodes

# The DaemonSet controller adds these tolerations to each of its pods, the last one only to pods
# with hostNetwork; kubernetes v1.37.1, pkg/controller/daemon/util/daemonset_util.go.
_DAEMON_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
    for name, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    )
)


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Return it as `kubectl taint` writes it."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


def parse_taints(node: Mapping[str, Any]) -> tuple[Taint, ...]:
    return tuple(
        Taint(taint["key"], taint.get("value") or "", taint.get("effect") or "")
        for taint in section(node, "spec").get("taints") or ()
    )


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Mapping[str, Any]]
) -> tuple[Taint, ...]:
    """Return the taints that repel a pod with these tolerations."""
    tolerations = list(tolerations)
    return tuple(
        taint
        for taint in taints
        if taint.effect in _NO_ROOM and not any(_tolerates(one, taint) for one in tolerations)
    )


def daemon_tolerations(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tolerations of the pods of a DaemonSet with this pod template."""
    added = _DAEMON_TOLERATIONS if spec.get("hostNetwork") else _DAEMON_TOLERATIONS[:-1]
    return [*(spec.get("tolerations") or ()), *added]


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key, exists = toleration.get("key"), toleration.get("operator") == "Exists"
    if not key:
        return exists
    return key == taint.key and (exists or (toleration.get("value") or "") == taint.value)


def missing_labels(labels: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a pod's nodeSelector that a node lacks or has with another value."""
    required = section(spec, "nodeSelector")
    return {key: value for key, value in required.items() if labels.get(key) != value}


def selects(name: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> bool:
    """Tell whether the node selector and the node affinity of a pod allow a node."""
    return not missing_labels(labels, spec) and not unmet_affinity(name, labels, spec)


def unmet_affinity(name: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> str:
    """Return which rule of a pod's required node affinity a node does not meet; empty for none.

    One met term is enough. If no term is met, the rule is from the first term.
    """
    terms = section(spec, "affinity", "nodeAffinity", _REQUIRED).get("nodeSelectorTerms")
    if not terms:
        return ""
    unmet = [_unmet_term(name, labels, term) for term in terms]
    return "" if "" in unmet else unmet[0]


def _unmet_term(name: str, labels: Mapping[str, str], term: Mapping[str, Any]) -> str:
    for rule in term.get("matchExpressions") or ():
        if not _meets(labels.get(rule["key"]), rule):
            return _describe_rule(rule)
    for rule in term.get("matchFields") or ():
        if not _meets(name, rule):
            return _describe_rule(rule)
    return ""


def _meets(value: str | None, rule: Mapping[str, Any]) -> bool:
    operator, values = rule.get("operator"), rule.get("values") or ()
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return True  # Gt and Lt are not evaluated


def _describe_rule(rule: Mapping[str, Any]) -> str:
    values = ", ".join(rule.get("values") or ())
    return f"{rule['key']} {rule.get('operator')}{f' ({values})' if values else ''}"


def selector_text(selector: Mapping[str, Any]) -> str:
    """Return a label selector of an object in the form of the API's query parameter."""
    texts = [f"{key}={value}" for key, value in section(selector, "matchLabels").items()]
    for rule in selector.get("matchExpressions") or ():
        values = ",".join(rule.get("values") or ())
        texts.append(
            {
                "In": f"{rule['key']} in ({values})",
                "NotIn": f"{rule['key']} notin ({values})",
                "Exists": rule["key"],
                "DoesNotExist": f"!{rule['key']}",
            }[rule["operator"]]
        )
    return ",".join(texts)
