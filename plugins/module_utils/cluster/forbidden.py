# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Why did the API server reject a request? No function does I/O.

Our modules and those of kubernetes.core pass its message on. Those of kubernetes.core embed it as
JSON in a text, or in the text of a Python value.

Source: kubernetes, staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go;
answers of kube-apiserver 1.37.1, as curl and kubernetes.core 6.6.0 showed them (November 2026)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ANONYMOUS,
    NO_FILE,
)
from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE, finding

# The message of kube_settings, and that of the finding.
NO_KUBECONFIG = re.compile(rf"(?:The|no) kubeconfig:? (?P<path>.+) {NO_FILE}(?:\.|$)")

_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)"'
    r' in API group "(?P<group>[^"]*)"(?: in the namespace "(?P<namespace>[^"]+)")?'
)
# Our message, and the API server's as kubernetes.core shows it. Other errors also contain 401.
_UNAUTHENTICATED = re.compile(
    r'does not accept these credentials \(401|"reason":"Unauthorized","code":401'
)
# The message of kube_settings.
_PLUGIN = re.compile(
    r"credential plugin '(?P<command>[^']*)'.* returned no credentials: (?P<error>.*?)"
    r"(?: \(installHint: (?P<hint>.*)\))?\Z",
    re.DOTALL,
)
# Words of kube_errors. A server that is only starting says 503, too.
_BUSY = re.compile(r"rejected the request to [^(]*\(429\): .*", re.DOTALL)
# A policy of admission, or a webhook. Answers of kube-apiserver 1.37.1.
_DENIED = re.compile(
    r"ValidatingAdmissionPolicy '(?P<policy>[^']+)'[^\"]*? denied request: [^\"]*"
    r'|admission webhook "(?P<webhook>[^"]+)" denied the request: [^"]*'
)
_CONFLICT = re.compile(
    r'conflict with "(?P<manager>[^"]+)" using [^"]*","field":"(?P<field>[^"]+)"'
)
_IMMUTABLE = re.compile(r'[\w.]+ "[^"]+" is invalid: [^{}]*?field is immutable')


def explain_error(error: str, host: str, otherwise: str, **evidence: str) -> dict[str, str]:
    """Return the finding for an error that is recognised, else one with the code `otherwise`."""
    text = re.sub(r'\\+"', '"', error)
    for recognise in _RECOGNISED:
        found = recognise(text)
        if found is not None:
            code, named = found
            return finding(code, host, **named)
    return finding(otherwise, host, error=error, **evidence)


def no_answer(error: str, host: str = "cluster") -> dict[str, str]:
    """Return the finding for an API server that gave no usable answer."""
    what, remedy = "the API server gave no usable answer", CATALOGUE["CLUSTER_UNUSABLE"].general
    return explain_error(error, host, "CLUSTER_UNUSABLE", what=what, remedy=remedy)


def missing_permission(user: str, verbs: str, resource: str, namespace: str) -> dict[str, str]:
    """Return the finding for a permission of one user; an empty namespace is the whole cluster."""
    named = _permission(user, verbs, resource, namespace)
    return finding("CLUSTER_FORBIDDEN", "cluster", **named)


def _permission(user: str, verbs: str, resource: str, namespace: str | None) -> dict[str, Any]:
    scope = f"in the namespace {namespace}" if namespace else "in the whole cluster"
    return {"user": user, "verb": verbs, "resource": resource, "scope": scope}


def _no_kubeconfig(text: str) -> tuple[str, dict[str, Any]] | None:
    match = NO_KUBECONFIG.match(text)
    if match is None:
        return None
    remedy = "set metal_gpu_kubeconfig in inventory.yml, or the environment variable KUBECONFIG"
    error = f"{match['path']} {NO_FILE}"
    return "CLUSTER_UNUSABLE", {"what": "no kubeconfig", "error": error, "remedy": remedy}


def _plugin(text: str) -> tuple[str, dict[str, Any]] | None:
    match = _PLUGIN.search(text)
    if match is None:
        return None
    hint = f"; the kubeconfig gives this hint: {match['hint']}" if match["hint"] else ""
    named = {"command": match["command"], "error": match["error"], "hint": hint}
    return "CLUSTER_PLUGIN_FAILED", named


def _unauthenticated(text: str) -> tuple[str, dict[str, Any]] | None:
    if _UNAUTHENTICATED.search(text):
        # The error page that kubernetes.core shows has no other useful text.
        own = text.startswith("The API server")
        return "CLUSTER_UNAUTHENTICATED", {"error": quote(text) if own else "401 Unauthorized"}
    match = _FORBIDDEN.search(text)
    if match and match["user"] == ANONYMOUS:
        return "CLUSTER_UNAUTHENTICATED", {"error": f"it treats the user as {ANONYMOUS}"}
    return None


def _forbidden(text: str) -> tuple[str, dict[str, Any]] | None:
    match = _FORBIDDEN.search(text)
    if match is None:
        return None
    resource = ".".join(filter(None, (match["resource"], match["group"])))
    named = _permission(match["user"], match["verb"], resource, match["namespace"])
    return "CLUSTER_FORBIDDEN", named


def _busy(text: str) -> tuple[str, dict[str, Any]] | None:
    match = _BUSY.search(text)
    return ("CLUSTER_BUSY", {"error": quote(match[0])}) if match else None


def _denied(text: str) -> tuple[str, dict[str, Any]] | None:
    match = _DENIED.search(text)
    if match is None or re.search(r'\bpods "', text):  # the caller knows more about a pod
        return None
    by = match["policy"] or match["webhook"]
    return "CLUSTER_REJECTED", {"by": by, "error": quote(match[0])}


def _conflict(text: str) -> tuple[str, dict[str, Any]] | None:
    pairs = _CONFLICT.findall(text)
    if not pairs:
        return None
    managers, fields = (", ".join(dict.fromkeys(one[place] for one in pairs)) for place in (0, 1))
    return "CLUSTER_CONFLICT", {"manager": managers, "fields": fields}


def _immutable(text: str) -> tuple[str, dict[str, Any]] | None:
    match = _IMMUTABLE.search(text)
    return ("CLUSTER_IMMUTABLE", {"error": match[0]}) if match else None


_RECOGNISED: tuple[Callable[[str], tuple[str, dict[str, Any]] | None], ...] = (
    _no_kubeconfig,
    _plugin,
    _unauthenticated,
    _forbidden,
    _busy,
    _denied,
    _conflict,
    _immutable,
)
