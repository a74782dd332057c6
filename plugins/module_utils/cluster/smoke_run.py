# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Run smoke pods on many nodes at once.

All functions talk to the API server. `smoke_pod` has the manifest and the verdicts,
`smoke_causes` the reasons for failures, `smoke_cleanup` the deletion. A verdict is final: it does
not change when the API server stops answering later, or when a pod cannot be deleted.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    kube,
    node_status,
    pod_status,
    smoke_causes,
    smoke_cleanup,
    smoke_pod,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_causes import Heartbeats
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import Verdict
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from decimal import Decimal

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import (
        Request,
        Template,
    )

    Kubelets = tuple[dict[str, NodeStatus], dict[str, str], list[str]]

_PARALLEL = 8  # concurrent requests to create pods
_ROUND_S = 10  # how often waiting pods are checked for reasons that their status does not show
_EVENTS_S = 2.0  # events appear a moment after the state they explain
_EVENTS = 5  # number of newest events to report for a pod
_CLEANUP_S = 30.0
_FEW = 32  # up to this many nodes, one LIST for each is cheaper than a LIST of all nodes
_LEASES = "kube-node-lease"

_VANISHED = Verdict("failed", "", "another client deleted the pod")


class Free(NamedTuple):
    """The GPUs of a node that no pod claims."""

    gpus: int
    holders: tuple[str, ...]  # namespace/name of the pods that claim the others, sorted


NOTHING = Free(0, ())


class Outcome(NamedTuple):
    """The result of a request."""

    request: Request
    pod: str  # name; empty if none was created
    verdict: Verdict
    seconds: float
    events: tuple[str, ...] = ()  # oldest first
    cause: Cause | None = None
    notes: tuple[str, ...] = ()  # what could not be read
    left_behind: str = ""  # why the pod may still exist


def read_free_gpus(
    client: kube.Client,
    allocatable: Mapping[str, Decimal],
    resource: str,
    timer: kube.Timer,
    run: str = "",
) -> dict[str, Free]:
    """Return the GPUs of each node that no pod claims, given its allocatable amount.

    Pods of the run `run` do not count: one may get its GPUs at this very moment.
    """

    def keep(pod: dict[str, Any]) -> tuple[str, Decimal] | None:
        if run and section(pod, "metadata", "labels").get(smoke_pod.RUN) == run:
            return None
        node = pod["spec"].get("nodeName")
        amount = pod_status.claimed(pod, resource)
        return (node, amount) if amount and node in allocatable else None

    alive = "status.phase!=Succeeded,status.phase!=Failed"
    pods = client.snapshot_each(
        "pods", keep, "spec.nodeName", allocatable, alive, cached=True, timer=timer
    )
    free = dict(allocatable)
    holders: dict[str, list[str]] = {node: [] for node in allocatable}
    for name, (node, amount) in sorted(pods.items()):
        free[node] -= amount
        holders[node].append(name)
    return {node: Free(max(0, int(free[node])), tuple(holders[node])) for node in allocatable}


def read_nodes(
    client: kube.Client, names: Collection[str], resource: str, timer: kube.Timer
) -> dict[str, NodeStatus]:
    """Return the nodes with these names; a name without a node is left out."""

    def keep(node: dict[str, Any]) -> NodeStatus | None:
        return node_status.parse_node(node, resource) if node["metadata"]["name"] in names else None

    if len(names) > _FEW:
        return client.snapshot("nodes", keep, timer=timer)
    return client.snapshot_each("nodes", keep, "metadata.name", names, timer=timer)


def prove(
    client: kube.Client,
    namespace: str,
    template: Template,
    desired: Sequence[Request],
    timer: kube.Timer,
) -> list[Outcome]:
    """Run a pod for each request, all at once, and delete them all, also after an exception.

    Raises KubeError if the credentials are insufficient.
    """
    names = [smoke_pod.pod_name(template.run, request.node) for request in desired]
    selector = f"{smoke_pod.RUN}={template.run}"
    outcomes: list[Outcome] = []
    problem: kube.KubeError | None = None
    kubelets = functools.partial(_read_kubelets, client, template, Heartbeats(), timer)
    try:
        outcomes = _prove(client, namespace, template, desired, timer, kubelets)
        outcomes = _explain(client, namespace, template, outcomes, kubelets)
    except kube.KubeError as error:
        problem = error
    finally:
        cleanup = kube.Timer(_CLEANUP_S)
        left = smoke_cleanup.remove(client, namespace, selector, names, cleanup)
    if problem and left:
        raise kube.KubeError(
            f"{problem} Smoke pods may still exist. To delete them: "
            f"kubectl --namespace {namespace} delete pods --selector {selector}"
        ) from problem
    if problem:
        raise problem
    return [outcome._replace(left_behind=left.get(outcome.pod, "")) for outcome in outcomes]


def _prove(
    client: kube.Client,
    namespace: str,
    template: Template,
    desired: Sequence[Request],
    timer: kube.Timer,
    read_kubelets: Callable[[Collection[str]], Kubelets],
) -> list[Outcome]:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        create = functools.partial(_create, client, namespace, template, timer)
        answers = list(pool.map(create, desired))

    outcomes: list[Outcome] = []
    pods: dict[str, Request] = {}  # those without a verdict
    # Filled before the watch starts, so that a pod that is gone by then counts as a change.
    store: dict[str, Verdict] = {}
    for request, answer in zip(desired, answers):
        name = smoke_pod.pod_name(template.run, request.node)
        if isinstance(answer, Verdict):
            pod = name if answer.state == "unknown" else ""
            outcomes.append(Outcome(request, pod, answer, timer.elapsed_s()))
        else:
            pods[name] = request
            store[name] = smoke_pod.judge(answer, request, template.resource)

    def keep(pod: dict[str, Any]) -> Verdict | None:
        request = pods.get(pod["metadata"]["name"])
        return smoke_pod.judge(pod, request, template.resource) if request else None

    def settle(name: str, verdict: Verdict) -> None:
        outcomes.append(Outcome(pods.pop(name), name, verdict, timer.elapsed_s()))

    unexplained: dict[str, float] = {}  # since when nothing explains a lack of GPUs
    state, why = "failed", f"the pod did not finish within {timer.limit_s:.0f} s"
    try:
        for changed in client.follow(
            "pods",
            store,
            keep,
            timer,
            namespace=namespace,
            query={"labelSelector": f"{smoke_pod.RUN}={template.run}"},
            round_s=_ROUND_S,
        ):
            for name in pods.keys() & changed:
                verdict = store.get(name, _VANISHED)
                if verdict.state and verdict.state != "busy":
                    settle(name, verdict)
            is_round = not changed and timer.elapsed_s() >= _ROUND_S
            short = {
                name: request
                for name, request in pods.items()
                if store[name].state == "busy" and (is_round or name in changed)
            }
            for name, request, verdict in _judge_short(client, short, store, template, timer):
                since_s = unexplained.setdefault(name, timer.elapsed_s())
                # The scheduler counts a claim a moment before the API server shows it.
                is_last = is_round and timer.elapsed_s() - since_s >= _ROUND_S
                if verdict.state or is_last:
                    pods[name] = request
                    settle(name, verdict._replace(state=verdict.state or "failed"))
            if is_round:
                for name, message in _read_hopeless(client, namespace, pods, read_kubelets):
                    settle(name, store[name]._replace(state="failed", message=message, reason=""))
            if not pods:
                break
    except kube.KubeError as error:
        # Without a permission, nothing can be proven. A token that expires takes nothing back.
        if isinstance(error, kube.ApiForbidden) and not outcomes:
            raise
        state, why = "unknown", str(error)
    for name in list(pods):
        message = f"{why}: {store[name].message}" if state == "failed" else why
        settle(name, store[name]._replace(state=state, message=message))
    return outcomes


def _create(
    client: kube.Client, namespace: str, template: Template, timer: kube.Timer, request: Request
) -> dict[str, Any] | Verdict:
    """Create the pod of a request; return it, or the verdict if the server rejects it."""
    pod = smoke_pod.manifest(template, request)
    try:
        return client.create("pods", pod, namespace, timer)
    except kube.ApiExists:
        return pod  # our earlier attempt created it, and its answer was lost
    except kube.ApiUnauthorised:
        raise
    except kube.ApiRefused as error:
        # Admission control also answers 403, and its decision can differ between nodes.
        if "cannot create resource" in error.reply:
            raise
        # An internal error comes from an admission webhook, and counts as a rejection.
        is_busy = isinstance(error, kube.ApiBusy) and error.status != 500
        if is_busy or isinstance(error, kube.ApiConflict):
            return Verdict("unknown", "", str(error))
        message = f"the API server rejected the pod: {error.reply}"
        return Verdict("failed", "", message, refusal=error.reply)
    except kube.ApiUnreachable as error:
        return Verdict("unknown", "", str(error))


def _judge_short(
    client: kube.Client,
    pods: Mapping[str, Request],
    store: Mapping[str, Verdict],
    template: Template,
    timer: kube.Timer,
) -> Iterator[tuple[str, Request, Verdict]]:
    """Read again the nodes whose free GPUs did not suffice; yield the requests and verdicts."""
    if not pods:
        return
    names = {request.node for request in pods.values()}
    nodes = read_nodes(client, names, template.resource, timer)
    allocatable = {name: node.allocatable for name, node in nodes.items() if node.allocatable}
    free = read_free_gpus(client, allocatable, template.resource, timer, template.run)
    for name, request in pods.items():
        found, rest = int(allocatable.get(request.node, 0)), free.get(request.node, NOTHING)
        verdict = smoke_pod.judge_shortage(
            store[name], request, template.resource, found, rest.gpus, rest.holders
        )
        yield name, request._replace(holders=rest.holders), verdict


def _read_hopeless(
    client: kube.Client,
    namespace: str,
    pods: Mapping[str, Request],
    read_kubelets: Callable[[Collection[str]], Kubelets],
) -> Iterator[tuple[str, str]]:
    """Yield pods that can no longer start, and why.

    The status of a pod does not show two reasons. Only events report a sandbox that cannot be
    created. After a kubelet has died, the API server keeps the last reported status.
    """
    found = _read_unstartable(client, namespace, pods)
    nodes, silence, _notes = read_kubelets({request.node for request in pods.values()})
    for name, request in list(pods.items()):
        node = nodes.get(request.node)
        if name in found:
            yield name, found[name]
        elif request.node in silence:
            yield name, silence[request.node]
        elif node is not None and not node.ready:
            yield name, node.readiness


def _read_unstartable(client: kube.Client, namespace: str, pods: Collection[str]) -> dict[str, str]:
    """Return why the sandbox of a pod can never be created, keyed by pod name."""

    def keep(event: dict[str, Any]) -> tuple[str, str] | None:
        name = event["involvedObject"].get("name")
        hit = name in pods and smoke_pod.no_runtime(event)
        return (name, pod_status.event_text(event)) if hit else None

    query = {"fieldSelector": "involvedObject.kind=Pod,reason=FailedCreatePodSandBox"}
    try:
        return dict(client.snapshot("events", keep, namespace=namespace, query=query).values())
    except kube.KubeError:
        return {}  # such a pod then fails at the time limit


def _read_kubelets(
    client: kube.Client,
    template: Template,
    heartbeats: Heartbeats,
    clock: kube.Timer,
    names: Collection[str],
) -> Kubelets:
    """Return the nodes, for how long their kubelets have been silent, and what was not readable."""
    nodes: dict[str, NodeStatus] = {}
    silence: dict[str, str] = {}
    notes = []

    def keep(lease: dict[str, Any]) -> dict[str, Any] | None:
        return lease if lease["metadata"]["name"] in names else None

    timer = kube.Timer(0.0)
    try:
        nodes = read_nodes(client, names, template.resource, timer)
    except kube.KubeError as error:
        notes.append(f"the nodes could not be read: {error}")
        if not isinstance(error, kube.ApiForbidden):  # other requests would fail likewise
            return nodes, silence, notes
    asked_s = clock.elapsed_s()
    try:
        leases = client.snapshot("leases", keep, namespace=_LEASES, timer=timer)
    except kube.KubeError as error:
        notes.append(f"the Leases of the kubelets could not be read: {error}")
        leases = {}
    answered_s = clock.elapsed_s()
    for name, lease in leases.items():
        text = heartbeats.read_silence(name, lease, asked_s, answered_s)
        if text:
            silence[name] = text
    return nodes, silence, notes


def _explain(
    client: kube.Client,
    namespace: str,
    template: Template,
    outcomes: Iterable[Outcome],
    read_kubelets: Callable[[Collection[str]], Kubelets],
) -> list[Outcome]:
    """Add causes and newest events to the outcomes of pods that failed before nvidia-smi ran.

    What cannot be read becomes a note. It does not change a verdict.
    """
    outcomes = list(outcomes)
    failed = [
        outcome
        for outcome in outcomes
        if outcome.verdict.state == "failed" and not outcome.verdict.ran
    ]
    if not failed:
        return outcomes
    pods = {outcome.pod for outcome in failed if outcome.pod}
    events, notes = _read_events(client, namespace, pods) if pods else ({}, [])
    names = {outcome.request.node for outcome in failed}
    nodes, silence, more = read_kubelets(names)

    def explain(outcome: Outcome) -> Outcome:
        found = events.get(outcome.pod, [])
        texts = list(dict.fromkeys(pod_status.event_text(event) for event in found))
        facts = smoke_causes.Facts(
            outcome.request,
            outcome.verdict,
            namespace,
            template.resource,
            template.tolerations,
            found,
            nodes.get(outcome.request.node),
            silence.get(outcome.request.node, ""),
        )
        return outcome._replace(
            events=tuple(texts[-_EVENTS:]),
            cause=smoke_causes.find_cause(facts),
            notes=(*notes, *more),
        )

    return [explain(outcome) if outcome in failed else outcome for outcome in outcomes]


def _read_events(
    client: kube.Client, namespace: str, pods: Collection[str]
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Return the events of pods, oldest first, and a note if they could not be read."""

    def keep(event: dict[str, Any]) -> dict[str, Any] | None:
        return event if event["involvedObject"].get("name") in pods else None

    events: dict[str, dict[str, Any]] = {}
    notes = []
    query = kube.only("involvedObject.name", pods, "involvedObject.kind=Pod")
    try:
        for _round in client.follow(
            "events", events, keep, kube.Timer(_EVENTS_S), namespace=namespace, query=query
        ):
            warned = {
                event["involvedObject"]["name"]
                for event in events.values()
                if event.get("type") == "Warning"
            }
            if warned.issuperset(pods):
                break
    except kube.KubeError as error:
        notes.append(f"the events could not be read: {error}")
    found: dict[str, list[dict[str, Any]]] = {}
    for event in sorted(events.values(), key=pod_status.event_time):
        found.setdefault(event["involvedObject"]["name"], []).append(event)
    return found, notes
