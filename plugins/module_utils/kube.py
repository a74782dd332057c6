# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""A thin client of the Kubernetes API: list, follow, create, patch, evict, delete.

Requests and answers are plain JSON: turning thousands of Node objects into the model classes of
the `kubernetes` package costs far more than everything else here. `kube_settings` says how to
connect, `kube_transport` carries the requests, `kube_errors` says what can go wrong.

Every method of `Client` does I/O and raises `KubeError`s. A request may be made more than once, so
every one is such that this does no harm: an object is created under a name of its own, and never
by generateName.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.kube_errors import (
    ApiBudget,
    ApiBusy,
    ApiConflict,
    ApiExpired,
    ApiForbidden,
    ApiMissing,
    ApiRefused,
    ApiStalled,
    ApiUnauthorised,
    ApiUnreachable,
    ApiUntrusted,
    KubeError,
    WatchCut,
)
from ansible_collections.metal.gpu.plugins.module_utils.kube_transport import (
    MANAGER,
    Settings,
    Timer,
    Transport,
    pause_s,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
    from typing import TypeVar

    Record = TypeVar("Record")
    Store = MutableMapping[str, Record]

# Callers name the errors as kube.ApiForbidden and so on.
__all__ = [
    "ANONYMOUS",
    "MANAGER",
    "ApiBudget",
    "ApiBusy",
    "ApiConflict",
    "ApiExpired",
    "ApiForbidden",
    "ApiMissing",
    "ApiRefused",
    "ApiStalled",
    "ApiUnauthorised",
    "ApiUnreachable",
    "ApiUntrusted",
    "Client",
    "KubeError",
    "Settings",
    "Timer",
    "WatchCut",
    "only",
]

ANONYMOUS = "system:anonymous"  # whom the server calls so has sent no credentials

_PAGE = 500  # objects in one answer, as kubectl asks for
_PARALLEL = 8  # requests under way at once, where there is one for each of many names
_STALLED_S = 5.0  # how long after its end a round of a watch counts as stalled
_WATCH_S = 240  # below the idle limits of common load balancers (350 s and more)


class Client:
    """The verbs that this collection uses."""

    def __init__(
        self,
        settings: Settings,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = Transport(settings, sleep, clock)

    @property
    def url(self) -> str:
        url: str = self._transport.url
        return url

    @property
    def server_date(self) -> str:
        """The Date header of the newest answer."""
        return self._transport.server_date

    def snapshot(
        self,
        resource: str,
        keep: Callable[[dict[str, Any]], Record | None],
        *,
        namespace: str | None = None,
        query: Mapping[str, str] | None = None,
        timer: Timer | None = None,
    ) -> dict[str, Record]:
        """LIST a collection and return what `keep` makes of each object, less the Nones.

        Keyed by object name, or by namespace/name where all namespaces were listed.
        """
        return self._list(resource, keep, namespace, query or {}, timer)[0]

    def snapshot_each(
        self,
        resource: str,
        keep: Callable[[dict[str, Any]], Record | None],
        field: str,
        names: Iterable[str],
        *selectors: str,
        cached: bool = False,
        timer: Timer | None = None,
    ) -> dict[str, Record]:
        """As `snapshot`, by one LIST for each name that `field` may have, some of them at once.

        `cached` takes what the server's cache has, which may be a moment old. For pods it has an
        index by spec.nodeName, so that their list costs what there is on these nodes, and not what
        there is in the cluster. With 5,000 pods on 200 nodes, 1 node took 0.07 s, 32 took 0.25 s
        and all 200 took 0.9 s, while one list of all pods took 1.3 s and, past the cache, a list
        for each of 32 nodes 14 s (kube-apiserver 1.37.1 with etcd 3.4.23). By metadata.name, the
        way past the cache is as short.
        """
        version = {"resourceVersion": "0"} if cached else {}

        def read(name: str) -> dict[str, Record]:
            query = {**only(field, [name], *selectors), **version}
            return self.snapshot(resource, keep, query=query, timer=timer)

        with ThreadPoolExecutor(_PARALLEL) as pool:
            found = list(pool.map(read, names))
        return {key: record for records in found for key, record in records.items()}

    def follow(
        self,
        resource: str,
        store: Store[Record],
        keep: Callable[[dict[str, Any]], Record | None],
        timer: Timer,
        *,
        namespace: str | None = None,
        query: Mapping[str, str] | None = None,
        round_s: float = _WATCH_S,
    ) -> Iterator[Collection[str]]:
        """Hold `store` equal to a collection, by one LIST and then a WATCH, until time is up.

        Yields the keys whose record changed: first after the LIST, also when nothing did, then
        after each event that changed a record, and with no key at the end of each round of the
        watch, which lasts `round_s` at most. Keys and records as in `snapshot`.

        A watch that breaks is picked up where it broke. The collection is listed again where the
        server has forgotten that place (410), or where something ends every watch at once. Raises
        the error of the watch where that is still broken when time is up.
        """
        version, failures = "", 0
        problem: KubeError | None = None  # why the watch is broken
        while True:
            if not version:
                fresh, version = self._list(resource, keep, namespace, query or {}, timer)
                changed = {
                    key
                    for key in {*store, *fresh}
                    if key not in store or key not in fresh or store[key] != fresh[key]
                }
                store.clear()
                store.update(fresh)
                yield changed
            if timer.remaining_s() <= 0:
                if problem:
                    raise problem  # pylint: disable=raising-bad-type
                return
            length_s = min(round_s, timer.remaining_s())
            try:
                for kind, item in self._watch(
                    resource, namespace, query or {}, version, timer, length_s
                ):
                    failures, problem = 0, None
                    version = item["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        key = _key(item, namespace)
                        record = None if kind == "DELETED" else keep(item)
                        if store.get(key) != record:
                            if record is None:
                                del store[key]
                            else:
                                store[key] = record
                            yield {key}
                    if timer.remaining_s() <= 0:
                        return
            except (ApiExpired, WatchCut, ApiUnreachable, ApiBusy) as error:
                if isinstance(error, (ApiExpired, WatchCut)):
                    version, problem = "", None
                else:
                    problem = error
                self.pause(min(pause_s(failures, error), timer.remaining_s()))
                failures += 1
            else:
                failures, problem = 0, None  # also where nothing happened
                yield ()

    def create(
        self,
        resource: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        timer: Timer | None = None,
    ) -> dict[str, Any]:
        """Create an object by its name and return it as the server stored it.

        Raises ApiConflict where there is one of the name: after an answer that got lost, our own.
        """
        created: dict[str, Any] = self._transport.ask(
            "create", resource, namespace, body=body, timer=timer
        )
        return created

    def patch(
        self, resource: str, name: str, body: Mapping[str, Any], timer: Timer | None = None
    ) -> dict[str, Any]:
        """Merge fields into an object that belongs to no namespace; null removes a field.

        With metadata.resourceVersion in it, an object that has changed since raises ApiConflict.
        """
        query = {"fieldManager": MANAGER}
        patched: dict[str, Any] = self._transport.ask(
            "patch", resource, None, path=f"/{name}", query=query, body=body, timer=timer
        )
        return patched

    def evict(self, pod: str, namespace: str) -> None:
        """Ask once for the end of a pod. A budget that forbids it raises ApiBudget."""
        body = {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"name": pod, "namespace": namespace},
        }
        self._transport.attempt("create", "pods", namespace, path=f"/{pod}/eviction", body=body)

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str,
        *,
        grace_s: int | None = None,
        timer: Timer | None = None,
    ) -> None:
        """Delete one object; None leaves it its own grace period."""
        body = _delete_options(grace_s)
        self._transport.ask("delete", resource, namespace, path=f"/{name}", body=body, timer=timer)

    def delete_collection(
        self,
        resource: str,
        namespace: str,
        *,
        selector: str,
        grace_s: int | None = None,
        timer: Timer | None = None,
    ) -> None:
        """Delete all objects with the labels; None leaves each its own grace period."""
        query, body = {"labelSelector": selector}, _delete_options(grace_s)
        self._transport.ask(
            "deletecollection", resource, namespace, query=query, body=body, timer=timer
        )

    def log_tail(self, pod: str, namespace: str, container: str, lines: int) -> str:
        """Ask once for the last lines of a container's log."""
        query = {"container": container, "tailLines": str(lines)}
        answer = self._transport.attempt("get", "pods", namespace, path=f"/{pod}/log", query=query)
        return answer.decode(errors="replace")

    def is_allowed(self, attributes: Mapping[str, str], timer: Timer | None = None) -> bool:
        """Ask the server whether these credentials may do something.

        Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
        """
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        }
        answer = self.create("selfsubjectaccessreviews", review, timer=timer)
        return bool(section(answer, "status").get("allowed"))

    def user(self) -> str:
        """Return who these credentials are for the server; empty where it does not tell.

        Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#self-subject-review
        """
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = self.create("selfsubjectreviews", review)
        except ApiRefused:
            return ""  # before 1.28, and where it is forbidden
        return str(section(answer, "status", "userInfo").get("username") or "")

    def pause(self, seconds: float) -> None:
        self._transport.pause(seconds)

    def _list(
        self,
        resource: str,
        keep: Callable[[dict[str, Any]], Record | None],
        namespace: str | None,
        query: Mapping[str, str],
        timer: Timer | None,
    ) -> tuple[dict[str, Record], str]:
        """Return the records of a collection and its version.

        Page after page, so that never more than one of them is in memory as a whole. A list that
        the server has forgotten before its last page is begun anew, all of it in one answer.
        """
        records: dict[str, Record] = {}
        page = {**query, "limit": str(_PAGE)}
        while True:
            try:
                answer = self._transport.ask("list", resource, namespace, query=page, timer=timer)
            except ApiExpired:
                if "continue" not in page:
                    raise
                records, page = {}, dict(query)
                continue
            for item in answer["items"]:
                record = keep(item)
                if record is not None:
                    records[_key(item, namespace)] = record
            token = answer["metadata"].get("continue")
            if not token:
                return records, answer["metadata"]["resourceVersion"]
            page["continue"] = token

    def _watch(
        self,
        resource: str,
        namespace: str | None,
        query: Mapping[str, str],
        version: str,
        timer: Timer,
        round_s: float,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield type and object of the events of one round of a watch.

        Raises ApiExpired when the watch cannot go on from `version`.
        """
        started, silent = timer.elapsed_s(), True
        # The server ends the round. A little later we do, should it stall; where the round ends
        # with our own time, we do it to the split second.
        read_s = round_s + (_STALLED_S if round_s < timer.remaining_s() else 0.0)
        response = self._transport.send(
            "watch",
            resource,
            namespace,
            query={
                **query,
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(max(1, math.ceil(round_s))),
            },
            read_s=read_s,
        )
        try:
            for line in self._transport.lines(response, read_s):
                silent = False
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiExpired(
                        f"The API server {self._transport.shown} ended the watch of {resource}: "
                        f"{event['object'].get('message')}"
                    )
                yield event["type"], event["object"]
        except ApiStalled:
            if timer.remaining_s() > 0:
                raise
            return
        finally:
            response.close()
        if silent and timer.elapsed_s() - started < min(1.0, round_s):
            raise WatchCut(f"The API server {self._transport.shown} closes every watch at once.")


def only(field: str, names: Collection[str], *selectors: str) -> dict[str, str]:
    """Return the query for field selectors, with one for the name where only one is wanted."""
    wanted = [f"{field}={name}" for name in names] if len(names) == 1 else []
    return {"fieldSelector": ",".join([*selectors, *wanted])} if selectors or wanted else {}


def _delete_options(grace_s: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    body["propagationPolicy"] = "Background"
    if grace_s is not None:
        body["gracePeriodSeconds"] = grace_s
    return body


def _key(item: Mapping[str, Any], namespace: str | None) -> str:
    """Return the name of an object, with its namespace where several were asked for."""
    metadata = item["metadata"]
    scope = metadata.get("namespace")
    name: str = metadata["name"]
    return f"{scope}/{name}" if scope and not namespace else name
