# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Run smoke pods on many nodes at once.

All functions talk to the API server. `smoke_pod` has the manifest and the verdicts,
`smoke_evidence` reads what else the cluster says, `smoke_causes` has the reasons for failures,
`smoke_cleanup` deletes. A verdict is final: it does not change when the API server stops answering
later, or when a pod cannot be deleted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    pod_status,
    proof_pod,
    smoke_causes,
    smoke_cleanup,
    smoke_evidence,
    smoke_pod,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiBusy,
    ApiConflict,
    ApiExists,
    ApiForbidden,
    ApiRefused,
    ApiUnauthorised,
    ApiUnreachable,
    KubeError,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import Cause
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_pod import (
        Request,
        Template,
    )

_PARALLEL = 8  # concurrent requests to create pods
_ROUND_S = 10  # how often waiting pods are checked for reasons that their status does not show
_EVENTS = 5  # number of newest events to report for a pod
_CLEANUP_S = 30.0

_VANISHED = Verdict("failed", "", "another client deleted the pod")


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


def prove(
    client: Client, template: Template, desired: Sequence[Request], timer: Timer
) -> list[Outcome]:
    """Run a pod for each request, all at once, and delete them all, also after an exception.

    Raises KubeError if the credentials are insufficient.
    """
    names = [smoke_pod.pod_name(template.run, request.node) for request in desired]
    named = {request.resource for request in desired if request.resource}
    with smoke_cleanup.removing(
        client, template, names, what="Smoke pods", limit_s=_CLEANUP_S
    ) as left:
        outcomes = _Run(client, template, timer, named).prove(desired)
    return [outcome._replace(left_behind=left.get(outcome.pod, "")) for outcome in outcomes]


class _Run:
    """The pods of one run, and their verdicts."""

    def __init__(
        self, client: Client, template: Template, timer: Timer, named: Collection[str]
    ) -> None:
        self.client = client
        self.template = template
        self.timer = timer
        self.kubelets = smoke_evidence.Kubelets(client, template.resource, timer, named)
        self.outcomes: list[Outcome] = []
        self.pods: dict[str, Request] = {}  # those without a final verdict, by name
        self.verdicts: dict[str, Verdict] = {}  # of the pods that exist, by name
        self.untouched: dict[str, float] = {}  # since when no kubelet has begun with it
        self.unexplained: dict[str, float] = {}  # since when nothing explains a lack of GPUs

    def prove(self, desired: Sequence[Request]) -> list[Outcome]:
        self._create(desired)
        state, why = "failed", f"the pod did not finish within {self.timer.limit_s:.0f} s"
        try:
            self._watch()
        except KubeError as error:
            # Without a permission, nothing can be proven. A token that expires takes nothing back.
            if isinstance(error, ApiForbidden) and not self.outcomes:
                raise
            state, why = "unknown", str(error)
        for name in list(self.pods):
            verdict = self.verdicts[name]
            message = f"{why}: {verdict.message}" if state == "failed" else why
            self._settle(name, verdict._replace(state=state, message=message))
        return self._explain()

    def _create(self, desired: Sequence[Request]) -> None:
        with ThreadPoolExecutor(_PARALLEL) as pool:
            answers = list(pool.map(self._create_pod, desired))
        # All verdicts are there before the watch starts, so that a pod that is gone by then counts
        # as a change.
        for request, answer in zip(desired, answers):
            name = smoke_pod.pod_name(self.template.run, request.node)
            if isinstance(answer, Verdict):
                pod = name if answer.state == "unknown" else ""
                self.outcomes.append(Outcome(request, pod, answer, self.timer.elapsed_s()))
            else:
                self.pods[name] = request
                self.verdicts[name] = self._judge(answer, request)

    def _create_pod(self, request: Request) -> dict[str, Any] | Verdict:
        """Create the pod of a request; return it, or the verdict if the server rejects it."""
        pod = smoke_pod.manifest(self.template, request)
        try:
            return proof_pod.create(self.client, self.template, pod, self.timer)
        except ApiExists:
            return pod  # our earlier attempt created it, and its answer was lost
        except ApiUnauthorised:
            raise
        except ApiRefused as error:
            # Admission control also answers 403, and its decision can differ between nodes.
            if "cannot create resource" in error.reply:
                raise
            # An internal error comes from an admission webhook, and counts as a rejection.
            is_busy = isinstance(error, ApiBusy) and error.status != 500
            if is_busy or isinstance(error, ApiConflict):
                return Verdict("unknown", "", str(error))
            message = f"the API server rejected the pod: {error.reply}"
            return Verdict("failed", "", message, refusal=error.reply)
        except ApiUnreachable as error:
            return Verdict("unknown", "", str(error))

    def _judge(self, pod: dict[str, Any], request: Request) -> Verdict:
        resource = request.resource or self.template.resource
        program = next(iter(self.template.exchange_command), "")
        return smoke_pod.judge(pod, request, resource, program)

    def _keep(self, pod: dict[str, Any]) -> Verdict | None:
        request = self.pods.get(pod["metadata"]["name"])
        return self._judge(pod, request) if request else None

    def _settle(self, name: str, verdict: Verdict) -> None:
        request = self.pods.pop(name)
        cause = None if verdict.has_program else smoke_causes.no_program(self.template, request)
        if verdict.state == pod_status.PREEMPTED:
            verdict = verdict._replace(state="busy", reason=pod_status.PREEMPTED)
        outcome = Outcome(request, name, verdict, self.timer.elapsed_s(), cause=cause)
        self.outcomes.append(outcome)

    def _watch(self) -> None:
        """Settle the pods as they end, until all have or time is up."""
        for changed in self.client.follow(
            "pods",
            self.verdicts,
            self._keep,
            self.timer,
            namespace=self.template.namespace,
            query={"labelSelector": f"{proof_pod.RUN}={self.template.run}"},
            round_s=_ROUND_S,
        ):
            for name in self.pods.keys() & changed:
                verdict = self.verdicts.get(name, _VANISHED)
                if verdict.state and verdict.state != "busy":
                    self._settle(name, verdict)
            is_round = not changed and self.timer.elapsed_s() >= _ROUND_S
            self._settle_short(self.pods if is_round else changed, is_round=is_round)
            if is_round:
                for name, why in self._read_hopeless():
                    verdict = self.verdicts[name]
                    self._settle(name, verdict._replace(state="failed", message=why, reason=""))
            if not self.pods:
                return

    def _settle_short(self, names: Collection[str], *, is_round: bool) -> None:
        """Read again the nodes whose free GPUs do not suffice for one of these pods."""
        pods = {
            name: request
            for name, request in self.pods.items()
            if name in names and self.verdicts[name].state == "busy"
        }
        for resource in {request.resource for request in pods.values()}:
            some = {name: one for name, one in pods.items() if one.resource == resource}
            self._settle_short_of(some, resource or self.template.resource, is_round=is_round)

    def _settle_short_of(
        self, pods: Mapping[str, Request], resource: str, *, is_round: bool
    ) -> None:
        nodes = {request.node for request in pods.values()}
        found = smoke_evidence.read_nodes(self.client, nodes, resource, self.timer)
        amounts = {name: node.allocatable for name, node in found.items() if node.allocatable}
        free = smoke_evidence.read_free_gpus(
            self.client, amounts, resource, self.timer, self.template.run
        )
        for name, request in pods.items():
            allocatable = int(amounts.get(request.node, 0))
            rest = free.get(request.node, smoke_evidence.NOTHING)
            verdict = smoke_pod.judge_shortage(
                self.verdicts[name], request, resource, allocatable, rest.gpus, rest.holders
            )
            since_s = self.unexplained.setdefault(name, self.timer.elapsed_s())
            # The scheduler counts a claim a moment before the API server shows it.
            is_last = is_round and self.timer.elapsed_s() - since_s >= _ROUND_S
            if verdict.state or is_last:
                self.pods[name] = request._replace(holders=rest.holders, claims=rest.claims)
                self._settle(name, verdict._replace(state=verdict.state or "failed"))

    def _read_hopeless(self) -> Iterator[tuple[str, str]]:
        """Yield pods that can no longer start, and why.

        The status of a pod does not show two reasons. Only events report a sandbox that cannot be
        created. After a kubelet has died, the API server keeps the last reported status.
        """
        namespace = self.template.namespace
        found = smoke_evidence.read_unstartable(self.client, namespace, self.pods)
        look = self.kubelets.read({request.node for request in self.pods.values()})
        for name, request in list(self.pods.items()):
            node = look.nodes.get(request.node)
            if name in found:
                yield name, found[name]
            elif request.node in look.silence:
                yield name, look.silence[request.node]
            elif node is not None and not node.ready:
                yield name, node.readiness
            elif smoke_causes.is_untouched(self.verdicts[name].status):
                since_s = self.untouched.setdefault(name, self.timer.elapsed_s())
                if self.timer.elapsed_s() - since_s >= smoke_causes.UNTOUCHED_S:
                    yield name, "the kubelet has not begun with the pod"

    def _explain(self) -> list[Outcome]:
        """Add causes and newest events to the outcomes of pods whose programs did not run.

        What cannot be read becomes a note. It does not change a verdict.
        """
        failed = [
            outcome
            for outcome in self.outcomes
            if outcome.verdict.state == "failed" and not outcome.verdict.ran
        ]
        if not failed:
            return self.outcomes
        names = {outcome.pod for outcome in failed if outcome.pod}
        events, notes = smoke_evidence.read_events(self.client, self.template.namespace, names)
        look = self.kubelets.read({outcome.request.node for outcome in failed})

        def explain(outcome: Outcome) -> Outcome:
            found, node = events.get(outcome.pod, []), outcome.request.node
            texts = list(dict.fromkeys(pod_status.event_text(event) for event in found))
            if any(event.get("reason") == "Preempted" for event in found):
                busy = Verdict("busy", "", "; ".join(texts), reason=pod_status.PREEMPTED)
                return outcome._replace(verdict=busy)
            facts = smoke_causes.Facts(
                outcome.request,
                outcome.verdict,
                self.template,
                found,
                look.nodes.get(node),
                look.silence.get(node, ""),
            )
            return outcome._replace(
                events=tuple(texts[-_EVENTS:]),
                cause=smoke_causes.find_cause(facts),
                notes=(*notes, *look.notes),
            )

        return [explain(outcome) if outcome in failed else outcome for outcome in self.outcomes]
