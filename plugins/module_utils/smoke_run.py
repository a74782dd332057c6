# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Run smoke pods on many nodes at once, and take away what runs leave behind.

All functions talk to the API server. What the pods look like and what their state means is in
`smoke_pod`.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils import (
    kube,
    pod_status,
    process_identity,
    smoke_pod,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from decimal import Decimal

    from ansible_collections.metal.gpu.plugins.module_utils.smoke_pod import (
        Leftover,
        Template,
        Verdict,
        Wish,
    )

_PARALLEL = 8  # requests to create pods that are under way at once
_ROUND_S = 10  # how often nodes without the container runtime are looked for
_EVENTS_S = 2.0  # events are written a moment after the state they explain
_EVENTS = 5  # newest events to report of a pod
_CLEANUP_S = 30.0


_VANISHED = smoke_pod.Verdict("failed", "", "someone else deleted the pod")


class LeftBehind(kube.KubeError):
    """Pods could not be deleted."""


class Free(NamedTuple):
    """What is left of a node's GPUs."""

    gpus: int
    holders: tuple[str, ...]  # namespace/name of the pods that have claimed the others, sorted


class Outcome(NamedTuple):
    """What became of a wish."""

    wish: Wish
    pod: str  # name; empty where none was made
    verdict: Verdict
    seconds: float
    events: tuple[str, ...] = ()  # oldest first


def read_leftovers(client: kube.Client, namespace: str) -> dict[str, Leftover]:
    """Return the smoke pods of runs that cannot be alive any more, keyed by pod name.

    Runs of this machine are known by their process; those of others by the age of their pods,
    on the API server's clock.
    """
    pods = client.snapshot(
        "pods",
        smoke_pod.parse_leftover,
        namespace=namespace,
        query={"labelSelector": smoke_pod.OWNED},
    )
    now = _server_time(client)
    return {
        name: pod
        for name, pod in pods.items()
        if process_identity.is_gone(pod.process)
        or (now - _timestamp(pod.created)).total_seconds() > pod.lifetime_s
    }


def remove_leftovers(
    client: kube.Client, namespace: str, leftovers: Mapping[str, Leftover], timer: kube.Timer
) -> None:
    runs = sorted({pod.run for pod in leftovers.values()})
    remove(client, namespace, f"{smoke_pod.RUN} in ({','.join(runs)})", timer)


def read_free_gpus(
    client: kube.Client, allocatable: Mapping[str, Decimal], resource: str
) -> dict[str, Free]:
    """Return what no pod has claimed on each node, from what each has allocatable."""

    def keep(pod: dict[str, Any]) -> tuple[str, Decimal] | None:
        node = pod["spec"].get("nodeName")
        amount = pod_status.claimed(pod, resource)
        return (node, amount) if amount and node in allocatable else None

    alive = "status.phase!=Succeeded,status.phase!=Failed"
    query = kube.only("spec.nodeName", allocatable, alive)
    free = dict(allocatable)
    holders: dict[str, list[str]] = {node: [] for node in allocatable}
    for name, (node, amount) in sorted(client.snapshot("pods", keep, query=query).items()):
        free[node] -= amount
        holders[node].append(name)
    return {node: Free(max(0, int(free[node])), tuple(holders[node])) for node in allocatable}


def prove(
    client: kube.Client,
    namespace: str,
    template: Template,
    wishes: Sequence[Wish],
    timer: kube.Timer,
) -> list[Outcome]:
    """Run a pod for each wish, all at once, and leave none of them behind.

    Raises KubeError, LeftBehind when the pods could not be deleted.
    """
    selector = f"{smoke_pod.RUN}={template.run}"
    problem: kube.KubeError | None = None
    outcomes: list[Outcome] = []
    try:
        outcomes = _prove(client, namespace, template, wishes, timer)
        outcomes = _explain(client, namespace, outcomes)
    except kube.KubeError as error:
        problem = error
    finally:
        # Also on the way out of an interrupt.
        try:
            remove(client, namespace, selector, kube.Timer(_CLEANUP_S))
        except kube.KubeError as error:
            raise LeftBehind(
                f"{problem or error} Pods with the label {selector} may be left in namespace "
                f"{namespace}; the next run takes them away."
            ) from error
    if problem:
        raise problem
    return outcomes


def remove(client: kube.Client, namespace: str, selector: str, timer: kube.Timer) -> None:
    """Delete the pods with these labels and wait until their GPUs are free again.

    They get their grace period first, since a pod deleted by force holds its GPUs until the
    kubelet has noticed. By force only where no kubelet confirms in time.
    """
    client.delete_collection("pods", namespace, selector=selector)
    left: dict[str, bool] = {}
    for _round in client.follow(
        "pods",
        left,
        lambda pod: True,
        timer,
        namespace=namespace,
        query={"labelSelector": selector},
    ):
        if not left:
            return
    client.delete_collection("pods", namespace, selector=selector, grace_s=0)


def _prove(
    client: kube.Client,
    namespace: str,
    template: Template,
    wishes: Sequence[Wish],
    timer: kube.Timer,
) -> list[Outcome]:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        create = functools.partial(_create, client, namespace, template)
        answers = list(pool.map(create, wishes))

    outcomes: list[Outcome] = []
    pods: dict[str, Wish] = {}  # those without a verdict
    # Filled before the watch begins, so that a pod which is gone by then counts as a change.
    store: dict[str, Verdict] = {}
    for wish, answer in zip(wishes, answers):
        if isinstance(answer, smoke_pod.Verdict):
            outcomes.append(Outcome(wish, "", answer, timer.elapsed_s()))
        else:
            pods[answer["metadata"]["name"]] = wish
            store[answer["metadata"]["name"]] = smoke_pod.judge(answer, wish, template.resource)

    def keep(pod: dict[str, Any]) -> Verdict | None:
        wish = pods.get(pod["metadata"]["name"])
        return smoke_pod.judge(pod, wish, template.resource) if wish else None

    def settle(name: str, verdict: Verdict) -> None:
        outcomes.append(Outcome(pods.pop(name), name, verdict, timer.elapsed_s()))

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
            if verdict.state:
                settle(name, verdict)
        if not changed and timer.elapsed_s() >= _ROUND_S:
            for name, message in _read_unstartable(client, namespace, pods).items():
                settle(name, smoke_pod.Verdict("failed", "Pending", message))
        if not pods:
            break
    for name in list(pods):
        message = f"no verdict within {timer.limit_s:.0f} s: {store[name].message}"
        settle(name, store[name]._replace(state="failed", message=message))
    return outcomes


def _create(
    client: kube.Client, namespace: str, template: Template, wish: Wish
) -> dict[str, Any] | Verdict:
    """Create the pod of a wish; return it, or the verdict where the server does not take it."""
    try:
        return client.create("pods", smoke_pod.manifest(template, wish), namespace)
    except kube.ApiUnauthorised:
        raise
    except kube.ApiRefused as error:
        # 403 is also what admission control answers, and that can differ from node to node.
        if "cannot create resource" in error.found:
            raise
        return smoke_pod.Verdict("failed", "", f"the API server refuses the pod: {error.found}")


def _read_unstartable(client: kube.Client, namespace: str, pods: Collection[str]) -> dict[str, str]:
    """Return why pods can never start that wait for their sandbox, keyed by pod name."""

    def keep(event: dict[str, Any]) -> tuple[str, str] | None:
        name = event["involvedObject"]["name"]
        hit = name in pods and smoke_pod.no_runtime(event)
        return (name, pod_status.event_text(event)) if hit else None

    query = {"fieldSelector": "involvedObject.kind=Pod,reason=FailedCreatePodSandBox"}
    try:
        return dict(client.snapshot("events", keep, namespace=namespace, query=query).values())
    except kube.ApiForbidden:
        return {}  # without the permission to read events it takes until the time limit


def _explain(client: kube.Client, namespace: str, outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Add the newest events to the outcomes of pods that failed before nvidia-smi ran."""
    outcomes = list(outcomes)
    failed = {
        outcome.pod
        for outcome in outcomes
        if outcome.pod and outcome.verdict.state == "failed" and not outcome.verdict.ran
    }
    if not failed:
        return outcomes

    def keep(event: dict[str, Any]) -> tuple[str, str, str, str] | None:
        pod = event["involvedObject"]["name"]
        if pod not in failed:
            return None
        text = pod_status.event_text(event)
        return pod, pod_status.event_time(event), text, event.get("type", "")

    events: dict[str, tuple[str, str, str, str]] = {}
    query = kube.only("involvedObject.name", failed, "involvedObject.kind=Pod")
    try:
        for _round in client.follow(
            "events", events, keep, kube.Timer(_EVENTS_S), namespace=namespace, query=query
        ):
            if failed <= {pod for pod, _time, _text, kind in events.values() if kind == "Warning"}:
                break
    except kube.ApiForbidden as error:
        return [
            outcome._replace(events=(f"not readable: {error.found}",))
            if outcome.pod in failed
            else outcome
            for outcome in outcomes
        ]
    texts: dict[str, list[str]] = {pod: [] for pod in failed}
    for pod, _time, text, _kind in sorted(events.values(), key=lambda event: event[1]):
        if text not in texts[pod]:
            texts[pod].append(text)
    return [
        outcome._replace(events=tuple(texts.get(outcome.pod, ())[-_EVENTS:]))
        for outcome in outcomes
    ]


def _server_time(client: kube.Client) -> datetime:
    """Return the time of the API server's newest answer."""
    return parsedate_to_datetime(client.server_date)


def _timestamp(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
