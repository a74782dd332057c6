# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What does the answer of a registry mean, and why does a connection to it fail?

Source: distribution's API, GET /v2/ (a registry answers 200, or 401 with a challenge); RFC 9110,
section 11; the reasons of OpenSSL's verification, which Python's ssl reports:
tests/recorded/registries.yml
"""

from __future__ import annotations

import re
from typing import NamedTuple

_EXPIRED = re.compile(r"certificate has expired|certificate is not yet valid", re.IGNORECASE)
_UNVERIFIED = re.compile(
    r"certificate.verify.failed|self.signed certificate|unable to get (?:local )?issuer"
    r"|Hostname mismatch|IP address mismatch|is not valid for",
    re.IGNORECASE,
)
# The alerts of a server about the certificate of the client. TLS 1.2 has none for its lack.
_CLIENT = re.compile(
    r"alert (?:certificate (?:required|unknown|revoked|expired)|(?:bad|unsupported) certificate"
    r"|unknown ca|access denied|handshake failure)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


class Problem(NamedTuple):
    """The finding about a registry, and its evidence."""

    code: str
    evidence: dict[str, str]


class Challenge(NamedTuple):
    """How a registry asks for a login."""

    scheme: str  # basic or bearer
    realm: str  # the address of tokens
    service: str


def parse_challenge(header: str) -> Challenge:
    """Parse the first challenge of WWW-Authenticate; everything is empty without one."""
    scheme, _blank, rest = header.strip().partition(" ")
    found = dict(_PARAMETER.findall(rest))
    return Challenge(scheme.lower(), found.get("realm", ""), found.get("service", ""))


def of_variable(error: str) -> Problem:
    """Return what a certificate or a key means that nobody can use."""
    evidence = {"name": "registries_hosts", "found": f"not usable: {error}", "role": "registries"}
    expected = "certificates and keys as PEM texts that belong together"
    return Problem("VARIABLE_INVALID", {**evidence, "expected": expected})


def of_connection(error: str, issuer: str = "") -> Problem:
    """Return what a failed connection means. `issuer`: who signed the server's certificate."""
    if _EXPIRED.search(error):
        return Problem("REGISTRY_CERTIFICATE_EXPIRED", {"error": error})
    if _UNVERIFIED.search(error):
        told = f", which {issuer} has issued" if issuer else ""
        return Problem("REGISTRY_UNTRUSTED", {"error": error, "issuer": told})
    if _CLIENT.search(error):
        return Problem(
            "REGISTRY_LOGIN_REFUSED", {"error": f"it wants a client certificate: {error}"}
        )
    return Problem("REGISTRY_UNREACHABLE", {"error": error})


def of_answer(
    status: int,
    challenge: Challenge,
    *,
    has_login: bool,
    has_certificate: bool,
    has_token: bool,
    basic_only: bool,
) -> Problem | None:
    """Return what an answer to GET /v2/ means; None: the registry can be used.

    `has_token`: the service of tokens has accepted the login. `basic_only`: the engine sends the
    login in a header, and asks for no token.
    """
    if status < 300:
        return None
    if status == 401 and not has_login:
        # A service of tokens also has tokens for nobody, which is enough for public images.
        if challenge.scheme == "bearer":
            return None
        return Problem("REGISTRY_LOGIN_MISSING", {"error": "it answers 401 without a login"})
    if status in (401, 403) and challenge.scheme == "bearer" and has_token:
        if not basic_only:
            return None
        return Problem("REGISTRY_TOKEN_ONLY", {})
    if status in (401, 403) and (has_login or has_certificate):
        return Problem("REGISTRY_LOGIN_REFUSED", {"error": f"it answers {status} to the login"})
    return Problem("REGISTRY_UNREACHABLE", {"error": f"GET /v2/ answers {status}"})
