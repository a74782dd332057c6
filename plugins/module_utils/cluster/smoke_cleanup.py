# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Delete the pods of smoke tests and leak tests: of this run, and those of earlier runs.

All functions talk to the API server. A pod that cannot be deleted is reported, not raised.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    permissions,
    pod_status,
    proof_pod,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiForbidden,
    ApiMissing,
    KubeError,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.probe import process_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.proof_pod import (
        Common,
        Leftover,
    )

_SWEEP_S = 30.0


def read_leftovers(client: Client, namespace: str) -> dict[str, Leftover]:
    """Return the pods of runs that have ended, keyed by pod name.

    A run on this machine has ended if its process is gone. A run on another machine has ended if
    its pods are older than their lifetime, by the API server's clock.
    """
    pods = client.snapshot(
        "pods",
        proof_pod.parse_leftover,
        namespace=namespace,
        query={"labelSelector": proof_pod.ALL_RUNS},
    )
    now = server_time(client)
    return {
        name: pod
        for name, pod in pods.items()
        if process_identity.is_gone(pod.process) or _age_s(pod.created, now) > pod.lifetime_s
    }


def sweep(
    client: Client, namespace: str, *, check_mode: bool, clock: Callable[[], float]
) -> tuple[list[str], dict[str, str]]:
    """Delete the pods of earlier runs, except in check mode.

    Returns the pods that are gone, or would be, and why others may still exist, keyed by name.
    """
    leftovers = read_leftovers(client, namespace)
    left: dict[str, str] = {}
    if leftovers and not check_mode:
        left = remove_leftovers(client, namespace, leftovers, Timer(_SWEEP_S, clock))
    return sorted(leftovers.keys() - left.keys()), left


def refuse_leavings(client: Client, namespace: str) -> None:
    """Raise KubeError if no permission allows to delete the pods that this run creates."""
    wish = {"group": "", "resource": "pods", "namespace": namespace, "any": True}
    found = permissions.run(client, [{**wish, "verbs": ["deletecollection", "delete"]}])
    if found["missing"]:
        # The words of the API server for an action that it refuses.
        raise KubeError(
            f'User "{found["user"]}" cannot delete resource "pods" in API group "" '
            f'in the namespace "{namespace}": the pods would stay, so none was created'
        )


def remove_leftovers(
    client: Client, namespace: str, leftovers: Mapping[str, Leftover], timer: Timer
) -> dict[str, str]:
    """Delete pods of earlier runs; return why a pod may still exist, keyed by name."""
    runs = sorted({pod.run for pod in leftovers.values()})
    return remove(client, namespace, f"{proof_pod.RUN} in ({','.join(runs)})", leftovers, timer)


@contextlib.contextmanager
def removing(
    client: Client, template: Common, names: Collection[str], *, what: str, limit_s: float
) -> Iterator[dict[str, str]]:
    """Delete the pods of a run at the end of a block, also after an exception.

    `what` names the pods at the start of a sentence. Yields a mapping that has afterwards why a pod
    may still exist, keyed by name. A KubeError of the block gets the way to delete those.
    """
    selector = f"{proof_pod.RUN}={template.run}"
    left: dict[str, str] = {}
    problem: KubeError | None = None
    try:
        yield left
    except KubeError as error:
        problem = error
    finally:
        left.update(remove(client, template.namespace, selector, names, Timer(limit_s)))
    if problem and left:
        raise KubeError(
            f"{problem} {what} may still exist. To delete them: "
            f"kubectl --namespace {template.namespace} delete pods --selector {selector}"
        ) from problem
    if problem:
        raise problem


def remove(
    client: Client,
    namespace: str,
    selector: str,
    names: Iterable[str],
    timer: Timer,
) -> dict[str, str]:
    """Delete the pods with these labels and wait until their GPUs are free again.

    The first attempt leaves each pod its grace period, because a pod deleted by force holds its
    GPUs until the kubelet notices. Pods whose deletion no kubelet confirms in time are deleted by
    force. Returns why a pod may still exist, keyed by name.
    """
    left: dict[str, bool] = {}
    query = {"labelSelector": selector}
    try:
        _delete(client, namespace, selector, names, None, timer)
        for _round in client.follow(
            "pods", left, lambda pod: True, timer, namespace=namespace, query=query
        ):
            if not left:
                return {}
        _delete(client, namespace, selector, left, 0, timer)
    except KubeError as error:
        # A pod that is not listed is gone. Without an answer, each may exist.
        if isinstance(error, ApiForbidden):
            with contextlib.suppress(KubeError):
                names = client.snapshot("pods", lambda pod: True, namespace=namespace, query=query)
        return dict.fromkeys(names, str(error))
    return {}


def _delete(
    client: Client,
    namespace: str,
    selector: str,
    names: Iterable[str],
    grace_s: int | None,
    timer: Timer,
) -> None:
    """Delete pods; one by one if the permission to delete a collection is missing."""
    try:
        client.delete_collection("pods", namespace, selector=selector, grace_s=grace_s, timer=timer)
    except ApiForbidden:
        for name in names:
            with contextlib.suppress(ApiMissing):
                client.delete("pods", name, namespace, grace_s=grace_s, timer=timer)


def server_time(client: Client) -> datetime:
    """Return the time of the API server's newest answer."""
    try:
        return parsedate_to_datetime(client.server_date)
    except (TypeError, ValueError):
        return datetime.now(timezone.utc)


def _age_s(created: str, now: datetime) -> float:
    then = pod_status.parse_time(created)
    return 0.0 if then is None else (now - then).total_seconds()
