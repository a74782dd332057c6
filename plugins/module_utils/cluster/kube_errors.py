# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Errors of requests to the API server.

Every message names the server, quotes its answer and tells what to do.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of a kubeconfig. Nobody has asked the API server then.
NO_FILE = "does not exist"
ANONYMOUS = "system:anonymous"  # the user of a request without credentials

# `details.causes` of an eviction that a PodDisruptionBudget does not allow; kubernetes v1.37.1,
# pkg/registry/core/pod/storage/eviction.go.
_BUDGET = "DisruptionBudget"
# `reason` of a create whose name is taken. Another 409 to a create is a conflict with a
# ResourceQuota under many creates at once: kubernetes/kubernetes issue 67761.
_EXISTS = "AlreadyExists"


class KubeError(Exception):
    """Base class of every error of this library; a module catches this one."""


class ApiUnreachable(KubeError):
    """Nothing answers at the address, or the connection broke."""

    connected = True  # False if there was never a connection


class ApiStalled(ApiUnreachable):
    """There is a connection, but no answer in time."""


class ApiUntrusted(KubeError):
    """TLS failed, usually because the configured CA did not sign the server's certificate."""


class WatchCut(ApiUnreachable):
    """The server, or a proxy before it, closes each watch as soon as it starts."""


class ApiRefused(KubeError):
    """The server answered with an error."""

    def __init__(self, message: str, reply: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.reply = reply  # the server's own message
        self.status = status
        self.retry_after_s: float | None = None  # the wait that the server requests


class ApiUnauthorised(ApiRefused):
    """401: the server does not know these credentials."""


class ApiForbidden(ApiRefused):
    """403: the credentials lack a permission, or admission control rejected the request."""


class ApiMissing(ApiRefused):
    """404: the object does not exist."""


class ApiConflict(ApiRefused):
    """409: the object, or a quota that counts it, changed after it was read."""


class ApiExists(ApiConflict):
    """409 with the reason AlreadyExists: the name is taken."""


class ApiExpired(ApiRefused):
    """410: the server no longer has the version to continue from."""


class ApiBudget(ApiRefused):
    """A PodDisruptionBudget does not allow an eviction now."""


class ApiBusy(ApiRefused):
    """429 or 5xx: the server cannot answer now."""


_KINDS: dict[int, type[ApiRefused]] = {
    401: ApiUnauthorised,
    403: ApiForbidden,
    404: ApiMissing,
    409: ApiConflict,
    410: ApiExpired,
    429: ApiBusy,
}


def refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    request: str,
    url: str,
    source: str,
) -> ApiRefused:
    """Return the error for an unsuccessful answer. `request` is verb and resource."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    message = section(answer).get("message")
    reply = str(message or body[:200].decode(errors="replace").strip())
    kind = _KINDS.get(status, ApiBusy if status >= 500 else ApiRefused)
    if _is_budget(answer):
        kind = ApiBudget
    if kind is ApiConflict and section(answer).get("reason") == _EXISTS:
        kind = ApiExists
    text = f"The API server {url} rejected the request to {request} ({status}): {reply}"
    if kind is ApiUnauthorised:
        text = (
            f"The API server {url} does not accept these credentials (401 {reply}). Check that the "
            f"token or client certificate is correct and has not expired ({source})."
        )
    elif kind is ApiForbidden:
        verb, _space, resource = request.partition(" ")
        text = (
            f"The API server {url} denied the request to {request} (403): {reply}. Grant the verb "
            f"{verb!r} on {resource!r}, or use other credentials ({source})."
        )
    error = kind(text, reply, status)
    error.retry_after_s = _retry_after(headers)
    return error


def _is_budget(answer: Any) -> bool:
    causes = section(answer, "details").get("causes")
    rows = causes if isinstance(causes, list) else []
    return any(section(row).get("reason") == _BUDGET for row in rows)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in the header Retry-After; None without a valid one.

    The value is a number, or a date on the server's clock (RFC 9110, section 10.2.3).
    """
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    then, now = _date(value), _date(headers.get("Date", ""))
    if then is None:
        return None
    return max(0.0, (then - (now or datetime.now(timezone.utc))).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=timezone.utc)
