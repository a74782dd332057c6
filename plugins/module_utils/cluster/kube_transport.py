# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Send requests to an API server, with retries.

A request to a server that is busy (429, 5xx) or stalls is retried for as long as the caller's
timer allows, and for at least _PATIENCE_S. `ask`, `read`, `attempt`, `send` and `lines` do I/O.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiBusy,
    ApiConflict,
    ApiExists,
    ApiRefused,
    ApiStalled,
    ApiUnreachable,
    ApiUntrusted,
    KubeError,
    refusal,
)
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact

try:
    import urllib3
    from kubernetes.client.rest import RESTClientObject
    from urllib3 import exceptions as http
except ImportError:
    pass  # kube_settings reports it

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MANAGER = "metal.gpu"  # our name in managedFields

_CONNECT_S = 5.0
_READ_S = 15.0  # until the head of an answer, and between two pieces of it
_PATIENCE_S = 30.0
_PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0)  # before each retry; the last value repeats

_MERGE_PATCH = "application/merge-patch+json"
_METHODS = {
    "list": "GET",
    "watch": "GET",
    "get": "GET",
    "create": "POST",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_READING = ("list", "watch", "get")
# Resources outside the core group.
_GROUPS = {
    "clusterpolicies": "nvidia.com/v1",
    "controllerrevisions": "apps/v1",
    "daemonsets": "apps/v1",
    "leases": "coordination.k8s.io/v1",
    "mutatingadmissionpolicies": "admissionregistration.k8s.io/v1",
    "priorityclasses": "scheduling.k8s.io/v1",
    "runtimeclasses": "node.k8s.io/v1",
    "selfsubjectaccessreviews": "authorization.k8s.io/v1",
    "selfsubjectreviews": "authentication.k8s.io/v1",
    "validatingadmissionpolicies": "admissionregistration.k8s.io/v1",
}


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
    """The settings of a connection."""

    configuration: Any  # kubernetes.client.Configuration
    source: str  # where the settings come from, for messages


class Transport:
    """A connection to one API server."""

    def __init__(
        self,
        settings: Settings,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configuration, self._source = settings
        self._sleep = sleep
        self._clock = clock
        self._pool = RESTClientObject(self._configuration).pool_manager
        self.is_expected = False  # it has answered before, so its address is right
        self.url = self._configuration.host.rstrip("/")
        self.server_date = ""  # the Date header of the newest answer

    @property
    def shown(self) -> str:
        """The URL, for messages."""
        return redact(self.url)

    def pause(self, seconds: float) -> None:
        self._sleep(max(0.0, seconds))

    def ask(
        self, verb: str, resource: str, namespace: str | None, **request: Any
    ) -> dict[str, Any]:
        """Like `read`; return the parsed JSON object of the answer."""
        answer = self.read(verb, resource, namespace, **request)
        try:
            found = json.loads(answer)
        except ValueError as error:
            raise self.odd("JSON", answer) from error
        if not isinstance(found, dict):
            raise self.odd("an object", answer)
        return found

    def odd(self, expected: str, answer: bytes | str) -> ApiRefused:
        """Return the error for an answer that no API server gives, but a proxy before it may."""
        return ApiRefused(
            f"{self.shown} did not answer with {expected}: {answer[:80]!r}. "
            f"Check that this is the address of a Kubernetes API server ({self._source})."
        )

    def read(
        self,
        verb: str,
        resource: str,
        namespace: str | None,
        *,
        timer: Timer | None = None,
        **request: Any,
    ) -> bytes:
        """Return the whole body of an answer, after several attempts if necessary."""
        patience_s = max(_PATIENCE_S, timer.remaining_s() if timer else 0.0)
        patience = Timer(patience_s, self._clock)
        for failures in itertools.count():
            try:
                return self.attempt(verb, resource, namespace, **request)
            except (ApiUnreachable, ApiBusy, ApiConflict) as error:
                problem = error
            left_s = patience.remaining_s()
            if left_s <= 0 or not self._may_pass(problem, verb):
                break
            self.pause(min(pause_s(failures, problem), left_s))
        if failures:
            tried = f"tried {failures + 1} times in {patience.elapsed_s():.0f} s"
            problem.args = (f"{problem} ({tried})",)
        raise problem

    def attempt(self, verb: str, resource: str, namespace: str | None, **request: Any) -> bytes:
        """Return the whole body of an answer."""
        try:
            data: bytes = self.send(verb, resource, namespace, **request).data
        except http.HTTPError as error:
            raise self._unreachable(error, _READ_S) from error
        return data

    def send(
        self,
        verb: str,
        resource: str,
        namespace: str | None,
        *,
        path: str = "",
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        read_s: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request; return the answer if its status is a success."""
        read_s = _READ_S if read_s is None else read_s
        group = f"apis/{_GROUPS[resource]}" if resource in _GROUPS else "api/v1"
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        url = f"{self.url}/{group}{scope}/{resource}{path}?{urlencode(query or {})}"
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
                headers={**headers, "User-Agent": MANAGER},
                timeout=urllib3.Timeout(connect=_CONNECT_S, read=read_s),
                retries=False,
                preload_content=False,
            )
            self.is_expected = True
            self.server_date = response.headers.get("Date", "")
            if not 200 <= response.status < 300:
                target = resource + path[path.rfind("/") :] if path.count("/") > 1 else resource
                raise refusal(
                    response.status,
                    response.headers,
                    response.data,
                    request=f"{verb} {target}",
                    url=self.shown,
                    source=self._source,
                )
        except http.SSLError as error:
            raise self._untrusted(error) from error
        except http.HTTPError as error:
            raise self._unreachable(error, read_s) from error
        return response

    def lines(self, response: urllib3.BaseHTTPResponse, read_s: float) -> Iterator[bytes]:
        """Yield the complete lines of a stream; an incomplete last line is dropped."""
        rest = b""
        try:
            for chunk in response.stream(amt=None):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
        except http.HTTPError as error:
            raise self._unreachable(error, read_s) from error

    def _unreachable(self, error: Exception, read_s: float) -> ApiUnreachable:
        kind = ApiStalled if isinstance(error, http.ReadTimeoutError) else ApiUnreachable
        problem = kind(
            f"The API server {self.shown} is unreachable: {_cause(error, read_s)}. Check that it "
            "runs, that no firewall or proxy blocks the connection, and that the address is "
            f"correct ({self._source})."
        )
        problem.connected = not isinstance(error, _before_connection())
        return problem

    def _untrusted(self, error: Exception) -> ApiUntrusted:
        return ApiUntrusted(
            f"TLS with the API server {self.shown} failed: {_cause(error, 0)}. Set ca_cert, or "
            "certificate-authority in the kubeconfig, to the CA that signed the server's "
            f"certificate. Use an address that the certificate contains ({self._source})."
        )

    def _may_pass(self, error: ApiUnreachable | ApiBusy | ApiConflict, verb: str) -> bool:
        """Return whether a retry can succeed.

        An address that has never answered is more likely wrong than busy. An internal error often
        comes from an admission webhook that is down, which does not change within seconds. A create
        can conflict with other creates that count in the same quota.
        """
        if isinstance(error, ApiConflict):
            return verb == "create" and not isinstance(error, ApiExists)
        if isinstance(error, ApiUnreachable):
            return self.is_expected or error.connected
        return error.status != 500 or verb in _READING


def pause_s(failures: int, error: KubeError) -> float:
    """Return how long to wait after this error, given the number of failures in a row before it."""
    usual_s = _PAUSES_S[min(failures, len(_PAUSES_S) - 1)]
    return max(usual_s, getattr(error, "retry_after_s", None) or 0.0)


def _before_connection() -> tuple[type[Exception], ...]:
    """Return the errors that happen before there is a connection: no route, name or listener."""
    return (http.ConnectTimeoutError, http.NewConnectionError, http.ProxyError)


def _cause(error: BaseException, read_s: float) -> str:
    """Return the error text of the operating system or of OpenSSL."""
    if error.__class__ is http.ConnectTimeoutError:  # its subclasses have better texts
        return f"no connection within {_CONNECT_S:.0f} s"
    if isinstance(error, http.ReadTimeoutError):
        return f"no answer within {read_s:.0f} s"
    while True:
        inner = error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    text = (
        getattr(error, "verify_message", "")
        or getattr(error, "reason", "")
        or getattr(error, "strerror", "")
        or str(error)
    )
    return redact(str(text).rstrip("."))
