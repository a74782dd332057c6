# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Run the pods of a leak test. Every function talks to the API server.

`leak_pods` has the manifests and the results, `smoke_cleanup` deletes the pods.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    causes,
    leak_pods,
    node_status,
    proof_pod,
    smoke_cleanup,
    smoke_evidence,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiExists,
    ApiForbidden,
    ApiMissing,
    ApiRefused,
    ApiUnauthorised,
    ApiUnreachable,
    KubeError,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.leak_pods import Result, Try
from ansible_collections.metal.gpu.plugins.module_utils.cluster.pod_status import describe
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.module_utils.probe import process_identity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.leak_pods import Template
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus

_PARALLEL = 8  # concurrent requests to create pods
_ROUND_S = 10  # how often pods that wait are checked for what only events report
_CLEANUP_S = 60.0
_VANISHED = Result(leak_pods.UNPROVEN, message="another client deleted the pod")

_FORBIDDEN = 403
# Words of admission policies and of webhooks. A policy without a reason answers 422, a webhook
# without a code 400.
_DENIED = re.compile(r"denied (?:the )?request")
_OF_DENIALS = (400, _FORBIDDEN, 422)
# Words of 403 that say nothing about GPUs, and may be gone at the next request.
_OTHERWISE = re.compile(r"(?i)\bquota\b|being terminated|service ?account|PriorityClass")
# Where runc has to freeze a control group of version 1, it gives up after 2 s on a busy node.
# Source: https://github.com/kubernetes/kubernetes/issues/131087, opencontainers/runc#3803
# A new namespace gets its service account a moment later.
_PASSES = re.compile(
    r"error setting cgroup config .*unable to freeze|error looking up service account", re.DOTALL
)
_POD_NAME = re.compile(r' "metal-gpu-leak-[^"]*"')


def prove(
    client: Client, template: Template, desired: Sequence[Try], timer: Timer
) -> tuple[dict[Try, Result], dict[str, str]]:
    """Run a pod for each attempt, all at once, and delete them all, also after an exception.

    The privileged ones run in a namespace of this run: who may enter the pods of another one must
    not enter these. An attempt whose container the engine could not start, for a reason that
    passes, gets a second pod. Returns the results, and why a pod or the namespace may still exist,
    by its name. Raises KubeError if the credentials are insufficient.
    """
    inside = [one for one in desired if one.attempt == leak_pods.PRIVILEGED]
    outside = [one for one in desired if one not in inside]
    results, left = _prove_in(client, template, outside, timer)
    if inside:
        name = leak_pods.pod_name(template.run, inside[0])  # each batch has another
        timer = Timer(timer.limit_s)
        try:
            client.create("namespaces", _namespace(name, template), timer=timer)
        except ApiExists:
            pass  # our earlier attempt created it, and its answer was lost
        except (ApiRefused, ApiUnreachable) as error:
            return {**results, **dict.fromkeys(inside, _refused(error, "namespaces"))}, left
        try:
            own = template._replace(namespace=name)
            more, kept = _prove_in(client, own, inside, timer)
        finally:
            kept_namespace = remove_namespaces(client, [name])
        return {**results, **more}, {**left, **kept, **kept_namespace}
    return results, left


def _namespace(name: str, template: Template) -> dict[str, Any]:
    standard = {"pod-security.kubernetes.io/enforce": "privileged"}
    labels = {proof_pod.MANAGED_BY: proof_pod.MANAGER, proof_pod.RUN: template.run, **standard}
    mark = {proof_pod.PROCESS: template.process}
    metadata = {"name": name, "labels": labels, "annotations": mark}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def remove_namespaces(client: Client, names: Iterable[str]) -> dict[str, str]:
    """Delete namespaces of leak tests; return why one may still exist, by its name."""
    left = {}
    for name in names:
        try:
            client.delete("namespaces", name, None)
        except ApiMissing:
            pass
        except KubeError as error:
            left[name] = str(error)
    return left


def ended_namespaces(client: Client) -> list[str]:
    """Return the namespaces of runs on this machine that were killed; none if nobody may list."""

    def keep(item: dict[str, Any]) -> str | None:
        process = section(item, "metadata", "annotations").get(proof_pod.PROCESS, "")
        is_active = section(item, "status").get("phase") != "Terminating"
        return process if is_active and process_identity.is_gone(process) else None

    query = {"labelSelector": proof_pod.ALL_RUNS}
    try:
        return [*client.snapshot("namespaces", keep, query=query)]
    except ApiForbidden:
        return []


def _prove_in(
    client: Client, template: Template, desired: Sequence[Try], timer: Timer
) -> tuple[dict[Try, Result], dict[str, str]]:
    results, left = _prove_once(client, template, desired, timer)
    again = [
        one
        for one, result in results.items()
        if _PASSES.search(result.message) and leak_pods.pod_name(template.run, one) not in left
    ]
    if again:
        more, kept = _prove_once(client, template, again, Timer(timer.limit_s))
        return {**results, **more}, {**left, **kept}
    return results, left


def _prove_once(
    client: Client, template: Template, desired: Sequence[Try], timer: Timer
) -> tuple[dict[Try, Result], dict[str, str]]:
    if not desired:
        return {}, {}
    names = {leak_pods.pod_name(template.run, one): one for one in desired}
    run = _Run(client, template, timer, names)
    what = "Pods of the leak test"
    with smoke_cleanup.removing(client, template, names, what=what, limit_s=_CLEANUP_S) as left:
        run.prove()
    return {names[name]: result for name, result in run.results.items()}, left


class _Run:
    """The pods of one run, by name, and their results."""

    def __init__(
        self, client: Client, template: Template, timer: Timer, names: dict[str, Try]
    ) -> None:
        self.client = client
        self.template = template
        self.timer = timer
        self.names = names
        self.pods: dict[str, dict[str, Any]] = {}  # those that exist
        self.open: set[str] = set()  # those without a result
        self.added: set[str] = set()  # those that got their ephemeral container
        self.results: dict[str, Result] = {}

    def prove(self) -> None:
        with ThreadPoolExecutor(_PARALLEL) as pool:
            answers = dict(zip(self.names, pool.map(self._create, self.names)))
        for name, answer in answers.items():
            if isinstance(answer, Result):
                self.results[name] = answer
            else:
                self.pods[name] = answer
                self.open.add(name)
        why = f"the pod did not finish within {self.timer.limit_s:.0f} s"
        try:
            self._watch()
        except ApiUnreachable as error:
            why = str(error)
        for name in self.open:
            text = describe(self.pods[name]) if name in self.pods else ""
            self.results[name] = Result(leak_pods.UNPROVEN, message=": ".join((why, text)))

    def _create(self, name: str) -> dict[str, Any] | Result:
        pod = leak_pods.manifest(self.template, self.names[name])
        try:
            return proof_pod.create(self.client, self.template, pod, self.timer)
        except ApiExists:
            return pod  # our earlier attempt created it, and its answer was lost
        except (ApiRefused, ApiUnreachable) as error:
            return _refused(error, "pods")

    def _watch(self) -> None:
        if not self.open:
            return
        selector = f"{proof_pod.RUN}={self.template.run}"
        for changed in self.client.follow(
            "pods",
            self.pods,
            lambda pod: pod,
            self.timer,
            namespace=self.template.namespace,
            query={"labelSelector": selector},
            round_s=_ROUND_S,
        ):
            for name in [*self.open & {*changed}]:
                self._look(name)
            if self.open and not changed:
                self._look_at_events()
            if not self.open:
                return

    def _look(self, name: str) -> None:
        pod, attempt = self.pods.get(name), self.names[name].attempt
        if pod is None:
            self._settle(name, _VANISHED)
            return
        result = leak_pods.judge(pod, attempt, self.template.resource)
        if result is not None:
            self._settle(name, result)
        elif name not in self.added and leak_pods.needs_ephemeral(pod, attempt):
            self.added.add(name)
            try:
                self.client.ask(
                    "patch",
                    "pods",
                    self.template.namespace,
                    path=f"/{name}/ephemeralcontainers",
                    body=leak_pods.ephemeral(self.template),
                    timer=self.timer,
                )
            except (ApiRefused, ApiUnreachable) as error:
                self._settle(name, _refused(error, "pods/ephemeralcontainers"))

    def _look_at_events(self) -> None:
        """Settle the pods whose RuntimeClass the engine of their node does not have.

        An engine that accepts no RuntimeClass closes this way for good. A runtime that is missing
        may be there after the next run of a role: what it gives then, nobody has tried.
        """
        found = smoke_evidence.read_unstartable(self.client, self.template.namespace, self.open)
        for name, why in found.items():
            state = leak_pods.REFUSED if causes.takes_no_class(why) else leak_pods.UNPROVEN
            self._settle(name, Result(state, message=why))

    def _settle(self, name: str, result: Result) -> None:
        self.open.discard(name)
        self.results[name] = result


def _refused(error: ApiRefused | ApiUnreachable, resource: str) -> Result:
    """Return the result of a pod that the API server did not accept.

    A permission that these credentials lack is none of admission: it protects from nobody else.
    Neither does a namespace that is missing or full, or a webhook that does not answer.
    """
    if isinstance(error, ApiUnauthorised):
        raise error
    if isinstance(error, ApiUnreachable):
        return Result(leak_pods.UNPROVEN, message=str(error))
    lacks_permission = "cannot" in error.reply and f'resource "{resource}"' in error.reply
    if lacks_permission and resource == "pods":
        raise error
    is_denied = error.status in _OF_DENIALS and _DENIED.search(error.reply)
    is_forbidden = error.status == _FORBIDDEN and not _OTHERWISE.search(error.reply)
    is_refused = not lacks_permission and (is_denied or is_forbidden)
    if is_refused:
        return Result(leak_pods.REFUSED, message=error.reply)
    # Without names of pods, so that a finding has each reason once.
    text = _POD_NAME.sub("", error.reply or str(error))
    return Result(leak_pods.UNPROVEN, message=text)


def nodes_of(
    client: Client,
    names: Sequence[str],
    resource: str,
    others: Collection[str],
    machines: Mapping[str, Mapping[str, str | None]] | None = None,
) -> dict[str, NodeStatus]:
    """Return those of these nodes that the cluster has, by name. `others` are GPUs as well."""

    def keep(node: dict[str, Any]) -> NodeStatus | None:
        name = str(section(node, "metadata").get("name"))
        if name not in names or node_status.another(node, (machines or {}).get(name)):
            return None
        return node_status.parse_node(node, resource, others)

    return client.snapshot("nodes", keep)
