# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""A thin client of the Kubernetes API: list, follow, create, patch, evict, delete.

The `kubernetes` package keeps the credentials and opens the connections. Requests and answers stay
plain JSON: turning thousands of Node objects into its model classes costs far more than everything
else here. `kube_settings` says how to connect.

Every method of `Client` does I/O. All errors are `KubeError`s that say which server, what was
found and what to do about it. Nothing is retried behind the caller's back; only `follow` picks a
broken watch up again.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

try:
    import urllib3
    from kubernetes.client.rest import RESTClientObject
    from urllib3 import exceptions as http
except ImportError:
    pass  # kube_settings tells the user

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
    from typing import TypeVar

    Record = TypeVar("Record")
    Store = MutableMapping[str, Record]

_CONNECT_S = 5.0
_READ_S = 30.0
_PAGE = 500  # objects in one answer, as kubectl asks for
_WATCH_S = 240  # below the idle limits of common load balancers (350 s and more)
_PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0)  # before a broken watch is picked up again

_MERGE_PATCH = "application/merge-patch+json"
_METHODS = {
    "list": "GET",
    "watch": "GET",
    "get": "GET",
    "create": "POST",
    "patch": "PATCH",
    "deletecollection": "DELETE",
}


class KubeError(Exception):
    """Root of every error this library raises; a module catches this one class."""


class ApiUnreachable(KubeError):
    """Nothing answers at the address, or the connection broke."""


class ApiUntrusted(KubeError):
    """TLS failed: most often the server's certificate is not signed by the known CA."""


class ApiRefused(KubeError):
    """The server answered with an error; `found` is what it said."""

    def __init__(self, message: str, found: str = "") -> None:
        super().__init__(message)
        self.found = found


class ApiUnauthorised(ApiRefused):
    """401: the server does not know these credentials."""


class ApiForbidden(ApiRefused):
    """403: the credentials lack a permission, or admission control said no."""


class ApiMissing(ApiRefused):
    """404: there is no such object."""


class ApiBusy(ApiRefused):
    """429 or 5xx: the server cannot answer now."""


class ApiExpired(ApiRefused):
    """410: the server has forgotten the version to continue from."""


class Timer:
    """A stopwatch with a limit."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self.limit_s = limit_s

    def elapsed_s(self) -> float:
        return self._clock() - self._start

    def remaining_s(self) -> float:
        return self.limit_s - self.elapsed_s()


class Settings(NamedTuple):
    """How to connect."""

    configuration: Any  # kubernetes.client.Configuration
    source: str  # where it comes from, for messages


class Client:
    """A connection to one API server, for the resources of the core group."""

    def __init__(self, settings: Settings, sleep: Callable[[float], None] = time.sleep) -> None:
        self._configuration, self._source = settings
        self._sleep = sleep
        self._pool = RESTClientObject(self._configuration).pool_manager
        self.url = self._configuration.host.rstrip("/")
        self.server_date = ""  # the Date header of the newest answer

    def snapshot(
        self,
        resource: str,
        keep: Callable[[dict[str, Any]], Record | None],
        *,
        namespace: str | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Record]:
        """LIST a collection and return what `keep` makes of each object, less the Nones.

        Keyed by object name, or by namespace/name where all namespaces were listed.
        """
        return self._list(resource, keep, namespace, query or {})[0]

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

        The first LIST fails at once. Later the watch is picked up where it broke, and the
        collection is listed again where the server has forgotten that place (410); only a server
        that stays away for all of the pauses is an error.
        """
        version, listed, failures = "", False, 0
        while True:
            try:
                if not version:
                    fresh, version = self._list(resource, keep, namespace, query or {})
                    changed = {
                        key
                        for key in {*store, *fresh}
                        if key not in store or key not in fresh or store[key] != fresh[key]
                    }
                    store.clear()
                    store.update(fresh)
                    listed = True
                    yield changed
                if timer.remaining_s() <= 0:
                    return
                length_s = min(round_s, timer.remaining_s())
                for kind, item in self._watch(
                    resource, namespace, query or {}, version, timer, length_s
                ):
                    failures = 0
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
                yield ()
            except (ApiUnreachable, ApiBusy, ApiExpired) as error:
                if not listed or failures == len(_PAUSES_S):
                    raise
                if isinstance(error, ApiExpired):
                    version = ""
                self._sleep(min(_PAUSES_S[failures], max(0.0, timer.remaining_s())))
                failures += 1

    def create(self, resource: str, body: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Create an object and return it as the server stored it."""
        created: dict[str, Any] = self._json("create", resource, namespace, body=body)
        return created

    def patch(self, resource: str, name: str, body: Mapping[str, Any]) -> None:
        """Merge fields into an object that belongs to no namespace; null removes a field."""
        self._json("patch", resource, None, path=f"/{name}", body=body)

    def evict(self, pod: str, namespace: str) -> None:
        """Ask for the end of a pod. A budget that forbids it raises ApiBusy."""
        body = {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"name": pod, "namespace": namespace},
        }
        self._json("create", "pods", namespace, path=f"/{pod}/eviction", body=body)

    def delete_collection(
        self, resource: str, namespace: str, *, selector: str, grace_s: int | None = None
    ) -> None:
        """Delete all objects with the labels; None leaves each its own grace period."""
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        body["propagationPolicy"] = "Background"
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        query = {"labelSelector": selector}
        self._json("deletecollection", resource, namespace, query=query, body=body)

    def log_tail(self, pod: str, namespace: str, container: str, lines: int) -> str:
        """Return the last lines of a container's log."""
        query = {"container": container, "tailLines": str(lines)}
        answer = self._read("get", "pods", namespace, path=f"/{pod}/log", query=query)
        return answer.decode(errors="replace")

    def _list(
        self,
        resource: str,
        keep: Callable[[dict[str, Any]], Record | None],
        namespace: str | None,
        query: Mapping[str, str],
    ) -> tuple[dict[str, Record], str]:
        """Return the records of a collection and its version.

        Page after page, so that never more than one of them is in memory as a whole.
        """
        records = {}
        page = {**query, "limit": str(_PAGE)}
        while True:
            answer = self._json("list", resource, namespace, query=page)
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
        response = self._send(
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
            # The server ends the round. A little later we do, should the connection be dead;
            # where the round ends with our own time, we do it to the split second.
            read_s=round_s + (5.0 if round_s < timer.remaining_s() else 0.0),
        )
        try:
            for line in _lines(response):
                silent = False
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiExpired(
                        f"The API server {self.url} ended the watch of {resource}: "
                        f"{event['object'].get('message')}"
                    )
                yield event["type"], event["object"]
        except http.ReadTimeoutError:
            return
        except http.HTTPError as error:
            raise self._unreachable(error) from error
        finally:
            response.close()
        if silent and timer.elapsed_s() - started < min(1.0, round_s):
            # Something between here and the server ends watches: do not spin.
            raise ApiUnreachable(f"The API server {self.url} closes every watch at once.")

    def _json(self, verb: str, resource: str, namespace: str | None, **request: Any) -> Any:
        answer = self._read(verb, resource, namespace, **request)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise ApiRefused(
                f"{self.url} does not answer with JSON: {answer[:80]!r}. "
                f"Check that this is the address of a Kubernetes API server ({self._source})."
            ) from error

    def _read(self, verb: str, resource: str, namespace: str | None, **request: Any) -> bytes:
        """Return the whole body of an answer."""
        try:
            data: bytes = self._send(verb, resource, namespace, **request).data
        except http.HTTPError as error:
            raise self._unreachable(error) from error
        return data

    def _send(
        self,
        verb: str,
        resource: str,
        namespace: str | None,
        *,
        path: str = "",
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        read_s: float = _READ_S,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request; return the answer once its head says success."""
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        url = f"{self.url}/api/v1{scope}/{resource}{path}?{urlencode(query or {})}"
        headers = {
            setting["key"]: setting["value"]
            for setting in self._configuration.auth_settings().values()
        }
        headers["Content-Type"] = _MERGE_PATCH if verb == "patch" else "application/json"
        try:
            response = self._pool.request(
                _METHODS[verb],
                url,
                body=None if body is None else json.dumps(body),
                headers={**headers, "User-Agent": "metal.gpu"},
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=read_s),
                retries=False,
                preload_content=False,
            )
            self.server_date = response.headers.get("Date", "")
            if not 200 <= response.status < 300:
                asked = resource + path[path.rfind("/") :] if path.count("/") > 1 else resource
                raise self._refusal(response.status, response.data, verb, asked)
        except http.SSLError as error:
            raise self._untrusted(error) from error
        except http.HTTPError as error:
            raise self._unreachable(error) from error
        return response

    def _unreachable(self, error: Exception) -> ApiUnreachable:
        return ApiUnreachable(
            f"The API server {self.url} is unreachable: {_cause(error)}. Check that it runs, that "
            f"nothing blocks the way to it, and that the address is right ({self._source})."
        )

    def _untrusted(self, error: Exception) -> ApiUntrusted:
        return ApiUntrusted(
            f"The API server {self.url} is not trusted: {_cause(error)}. Give the CA that signed "
            "its certificate as ca_cert or as certificate-authority of the kubeconfig, and call "
            f"it by a name in its certificate ({self._source})."
        )

    def _refusal(self, status: int, body: bytes, verb: str, resource: str) -> ApiRefused:
        """Make the error of an answer that is not a success."""
        try:
            found = str(json.loads(body)["message"])
        except (ValueError, LookupError, TypeError):
            found = body[:200].decode(errors="replace").strip()
        if status == 401:
            return ApiUnauthorised(
                f"The API server {self.url} does not know these credentials (401 {found}). Check "
                f"the token or client certificate, which may have expired ({self._source}).",
                found,
            )
        if status == 403:
            return ApiForbidden(
                f"The API server {self.url} forbids to {verb} {resource} (403): {found}. "
                f"Grant the verb {verb!r} on {resource!r}, or use other credentials "
                f"({self._source}).",
                found,
            )
        kind = ApiRefused
        if status == 404:
            kind = ApiMissing
        elif status == 410:
            kind = ApiExpired
        elif status == 429 or status >= 500:
            kind = ApiBusy
        return kind(
            f"The API server {self.url} refused to {verb} {resource} ({status}): {found}", found
        )


def only(field: str, names: Collection[str], *selectors: str) -> dict[str, str]:
    """Return the query for field selectors, with one for the name where only one is wanted."""
    wanted = [f"{field}={name}" for name in names] if len(names) == 1 else []
    return {"fieldSelector": ",".join([*selectors, *wanted])} if selectors or wanted else {}


def _key(item: Mapping[str, Any], namespace: str | None) -> str:
    """Return the name of an object, with its namespace where several were asked for."""
    metadata = item["metadata"]
    scope = metadata.get("namespace")
    name: str = metadata["name"]
    return f"{scope}/{name}" if scope and not namespace else name


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the complete lines of a stream; what a broken stream ends with is dropped."""
    rest = b""
    for chunk in response.stream(amt=None):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def _cause(error: BaseException) -> str:
    """Return what the operating system or OpenSSL said, in a few words."""
    if error.__class__ is http.ConnectTimeoutError:  # a base of errors that say more
        return f"no connection within {_CONNECT_S:.0f} s"
    if isinstance(error, http.ReadTimeoutError):
        return f"no answer within {_READ_S:.0f} s"
    while True:
        inner = error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    said = (
        getattr(error, "verify_message", "")
        or getattr(error, "reason", "")
        or getattr(error, "strerror", "")
        or str(error)
    )
    return str(said).rstrip(".")
