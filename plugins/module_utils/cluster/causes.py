# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out why a pod with GPUs, or the device plugin, does not run.

A cause is the code of one finding, with the values for its texts. If no known cause matches, the
caller reports the difference and quotes the error.

Source: the messages of the API server and of kube-scheduler are those of version 1.37.1 (recorded
in tests/unit/fixtures/kubernetes/refusals.yml). The messages of container engines are from issues
about GPU nodes: containerd 1.x and 2.x, CRI-O, dockershim, nvidia-container-runtime; those of
cri-dockerd are from its source (tests/recorded/engine_strategies.yml).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.scheduling import Taint

QUOTE = 300  # most characters of a message that a finding quotes
_HEAD = 100  # of these, characters of its start (what failed); the rest is its end (why)

# Parts of error chains that carry no information.
_NOISE = re.compile(r"rpc error: code = \w+ desc = |\(combined from similar events\): ")

# Logs and JSON quote a message once more, some of them twice: `\\"nvidia\\"`.
# Source: tests/recorded/symptoms.yml
_ESCAPES = re.compile(r'\\+(?=")')

_PRESSURE = re.compile(r"^node\.kubernetes\.io/(\w+)-pressure$")
_UNREADY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_CORDON = "node.kubernetes.io/unschedulable"

# The kubelet tries again forever, and only events have these words. Those of Docker, since 23 and
# before, were seen from `docker run`. Only cri-dockerd 0.4.0 and 0.4.1 can pass them on, for a
# runtime that Docker has just lost.
_NO_RUNTIME = re.compile(
    r'no runtime for "(?P<handler>[^"]+)" is configured'
    r"|failed to find runtime handler (?P<handler_crio>\S+) from runtime list"
    r"|(?:unknown or invalid runtime name:|[Uu]nknown runtime specified)"
    r" (?P<handler_moby>[\w./-]*\w)"
)
# Of cri-dockerd and dockershim, for each RuntimeClass but that of the handler `docker`. No
# configuration of Docker changes it.
_NO_RUNTIME_CLASS = re.compile(r'RuntimeHandler "(?P<handler>[^"]+)" not supported')

_ENGINE_WORDS = (
    ("RUNTIME_HANDLER_MISSING", _NO_RUNTIME),
    ("RUNTIME_CLASS_UNSUPPORTED", _NO_RUNTIME_CLASS),
    (
        "CDI_UNRESOLVABLE",
        re.compile(
            r"unresolvable CDI devices|conflicting device .* \(specs"
            r"|no CDI device driver registered|failed to stat CDI host device"
        ),
    ),
    ("GPU_BLOCKS_CONTAINERS", re.compile(r"GPU is lost|GPU has fallen off the bus")),
    (
        "ENGINE_SILENT",
        re.compile(
            r"container runtime is down|container runtime not ready"
            r"|dial unix \S*(?:containerd|docker|crio?)\S*\.sock: connect"
        ),
    ),
)

_QUOTA = re.compile(r"(?:exceeded|failed) quota: (?P<name>[^,:]+)")
_LIMIT_RANGE = re.compile(r"usage per (?:Container|Pod) is|max limit to request ratio per ")
_RUNTIME_CLASS = re.compile(r'RuntimeClass "(?P<name>[^"]+)" not found')
_NAMESPACE = re.compile(
    r'namespaces "(?P<name>[^"]+)" not found'
    r"|in namespace (?P<ending>\S+) because it is being terminated"
)
_PREEMPTS = re.compile(r"no PriorityClass with name \S+ was found|has the preemptionPolicy")
_REJECTED_BY = (
    (re.compile(r"ValidatingAdmissionPolicy '(?P<name>[^']+)'"), "the ValidatingAdmissionPolicy"),
    (re.compile(r'admission webhook "(?P<name>[^"]+)" denied'), "the admission webhook"),
    (re.compile(r'failed calling webhook "(?P<name>[^"]+)"'), "the admission webhook"),
    (re.compile(r'violates PodSecurity "(?P<name>[^"]+)"'), "the Pod Security Standard"),
)


class Cause(NamedTuple):
    """Why something differs from what is expected."""

    code: str  # of a finding
    evidence: dict[str, Any]  # the values for its texts

    def as_row(self) -> dict[str, Any]:
        return {"code": self.code, "evidence": dict(self.evidence)}


class Subject(NamedTuple):
    """The pod that a cause is about."""

    what: str  # "the smoke pod", "the device plugin"
    node: str
    namespace: str
    tolerations: str  # name of the variable that sets them
    place: str  # name of the variable that sets the namespace
    amounts: str  # how to give it cpu and memory


def quote(text: str) -> str:
    """Return a message in one line; the middle of a long message is cut out."""
    words = redact(" ".join(_NOISE.sub("", text).split()))
    if len(words) <= QUOTE:
        return words
    return f"{words[:_HEAD]} … {words[-(QUOTE - _HEAD - 3) :]}"


def unescape(text: str) -> str:
    """Return a text without the backslashes that stand before its quotes."""
    return _ESCAPES.sub("", text)


def has_no_runtime(text: str) -> bool:
    """Tell whether an engine says that it does not have the runtime of a pod."""
    words = unescape(text)
    return bool(_NO_RUNTIME.search(words) or _NO_RUNTIME_CLASS.search(words))


def takes_no_class(text: str) -> bool:
    """Tell whether an engine says that it accepts no RuntimeClass, whatever its runtimes are."""
    return bool(_NO_RUNTIME_CLASS.search(unescape(text)))


def of_words(text: str, subject: Subject) -> Cause | None:
    """Recognise an error of a container engine or of the kubelet about a container."""
    text = unescape(text)
    for code, pattern in _ENGINE_WORDS:
        match = pattern.search(text)
        if match:
            handler = next(filter(None, match.groupdict().values()), "")
            return Cause(code, {"what": subject.what, "handler": handler, "error": quote(text)})
    return None


def of_refusal(text: str, subject: Subject) -> Cause | None:
    """Recognise why the API server rejects a pod."""
    text = unescape(text)
    evidence = {
        "what": subject.what,
        "namespace": subject.namespace,
        "place": subject.place,
        "amounts": subject.amounts,
        "error": quote(text),
    }
    for pattern, kind in _REJECTED_BY:
        match = pattern.search(text)
        if match:
            return Cause("POD_REJECTED", {**evidence, "by": f"{kind} {match['name']}"})
    if _PREEMPTS.search(text):
        return Cause("PRIORITY_CLASS_UNFIT", evidence)
    match = _RUNTIME_CLASS.search(text)
    if match:
        return Cause("RUNTIME_CLASS_MISSING", {**evidence, "name": match["name"]})
    match = _NAMESPACE.search(text)
    if match:
        name, state = match["name"] or match["ending"], "does not exist"
        if match["ending"]:
            state = "is being deleted"
        return Cause("NAMESPACE_MISSING", {**evidence, "namespace": name, "state": state})
    match = _QUOTA.search(text)
    if match:
        return Cause("POD_OVER_QUOTA", {**evidence, "by": f"the ResourceQuota {match['name']}"})
    if _LIMIT_RANGE.search(text):
        return Cause("POD_OVER_QUOTA", {**evidence, "by": "a LimitRange"})
    return None


def of_taints(taints: Iterable[Taint], readiness: str, subject: Subject) -> Cause | None:
    """Return which of the taints that a pod does not tolerate explains the others."""
    taints = list(taints)
    for taint in taints:
        if taint.key in _UNREADY:
            error = readiness or f"the node has the taint {taint}"
            return Cause("NODE_NOT_READY", {"node": subject.node, "error": error})
    for taint in taints:
        match = _PRESSURE.match(taint.key)
        if match:
            return of_pressure(match[1], f"the node has the taint {taint}", subject)
    for taint in taints:
        removal = f"kubectl taint node {subject.node} {taint.key}:{taint.effect}-"
        if taint.key == _CORDON:
            removal = f"kubectl uncordon {subject.node}"
        evidence = {
            "what": subject.what,
            "taint": str(taint),
            "command": removal,
            "setting": subject.tolerations,
        }
        return Cause("NODE_TAINTED", evidence)
    return None


def of_pressure(kind: str, error: str, subject: Subject) -> Cause:
    evidence = {"node": subject.node, "kind": kind, "what": subject.what, "error": quote(error)}
    return Cause("NODE_PRESSURE", evidence)


def of_eviction(message: str, subject: Subject) -> Cause:
    """Return what the node ran out of when the kubelet evicted a pod.

    Source: kubernetes v1.37.1, pkg/kubelet/eviction/helpers.go
    """
    found = re.search(r"low on resource: ([\w-]+)|had condition: \[(\w+)Pressure", message)
    kind = (found[1] or found[2]).lower() if found else "resource"
    kind = {"ephemeral-storage": "disk", "inodes": "disk", "pids": "process"}.get(kind, kind)
    return of_pressure(kind, message, subject)


def telling_event(events: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the newest warning that states a cause of its own."""
    telling = [
        event
        for event in events
        if event.get("type") == "Warning" and event.get("reason") not in _SILENT_EVENTS
    ]
    return telling[-1] if telling else None


# The first concerns every pod of a node with many name servers, the second every retry. For the
# third, the pod's own condition has the reason.
_SILENT_EVENTS = ("DNSConfigForming", "BackOff", "FailedScheduling")
