# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What can go wrong between here and the API server. No I/O.

Every error says which server, what it answered and what to do about it.

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

# `details.causes` of an eviction that a PodDisruptionBudget does not allow; kubernetes v1.37.1,
# pkg/registry/core/pod/storage/eviction.go.
_BUDGET = "DisruptionBudget"
# `reason` of a create whose name is taken. Another 409 to a create is a conflict with a
# ResourceQuota under many creates at once: kubernetes/kubernetes issue 67761.
_EXISTS = "AlreadyExists"


class KubeError(Exception):
    """Root of every error of this library; a module catches this one class."""


class ApiUnreachable(KubeError):
    """Nothing answers at the address, or the connection broke."""

    connected = True  # False where no connection came about


class ApiStalled(ApiUnreachable):
    """There is a connection, and no answer in time."""


class ApiUntrusted(KubeError):
    """TLS failed: most often the server's certificate is not signed by the known CA."""


class WatchCut(ApiUnreachable):
    """Something between here and the server ends each watch as soon as it begins."""


class ApiRefused(KubeError):
    """The server answered with an error."""

    def __init__(self, message: str, found: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.found = found  # what the server said
        self.status = status
        self.retry_after_s: float | None = None  # when it wants to be asked again


class ApiUnauthorised(ApiRefused):
    """401: the server does not know these credentials."""


class ApiForbidden(ApiRefused):
    """403: the credentials lack a permission, or admission control said no."""


class ApiMissing(ApiRefused):
    """404: there is no such object."""


class ApiConflict(ApiRefused):
    """409: something has changed since it was read: the object, or a quota that it counts in."""


class ApiExists(ApiConflict):
    """409 with the reason AlreadyExists: there is an object of the name."""


class ApiExpired(ApiRefused):
    """410: the server has forgotten the version to continue from."""


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
    asked: str,
    url: str,
    source: str,
) -> ApiRefused:
    """Make the error of an answer that is not a success. `asked` is verb and resource."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    message = section(answer).get("message")
    found = str(message or body[:200].decode(errors="replace").strip())
    kind = _KINDS.get(status, ApiBusy if status >= 500 else ApiRefused)
    if _is_budget(answer):
        kind = ApiBudget
    if kind is ApiConflict and section(answer).get("reason") == _EXISTS:
        kind = ApiExists
    text = f"The API server {url} refused to {asked} ({status}): {found}"
    if kind is ApiUnauthorised:
        text = (
            f"The API server {url} does not know these credentials (401 {found}). Check the token "
            f"or client certificate, which may have expired ({source})."
        )
    elif kind is ApiForbidden:
        verb, _space, resource = asked.partition(" ")
        text = (
            f"The API server {url} forbids to {asked} (403): {found}. Grant the verb {verb!r} on "
            f"{resource!r}, or use other credentials ({source})."
        )
    error = kind(text, found, status)
    error.retry_after_s = _retry_after(headers)
    return error


def _is_budget(answer: Any) -> bool:
    causes = section(answer, "details").get("causes")
    rows = causes if isinstance(causes, list) else []
    return any(section(row).get("reason") == _BUDGET for row in rows)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the header Retry-After asks for, None where it asks for nothing.

    It has a number, or a date on the server's clock (RFC 9110, section 10.2.3).
    """
    wanted = headers.get("Retry-After", "").strip()
    if wanted.isdecimal():
        return float(wanted)
    then, now = _date(wanted), _date(headers.get("Date", ""))
    if then is None:
        return None
    return max(0.0, (then - (now or datetime.now(timezone.utc))).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=timezone.utc)
