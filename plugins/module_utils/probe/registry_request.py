# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Ask a registry from a node, as a container engine does. `ask` does I/O.

A client certificate goes through a file that only root reads, because Python's ssl takes no text.
"""

from __future__ import annotations

import base64
import http.client
import os
import socket
import ssl
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode, urlsplit

from ansible_collections.metal.gpu.plugins.module_utils.read import registry_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.metal.gpu.plugins.module_utils.read.registry_answer import Problem

_LONGEST = 65536  # bytes of an answer that are read
# The name is in Python 3.10 and later. Source: X509_V_FLAG_PARTIAL_CHAIN of OpenSSL.
_PARTIAL_CHAIN = 0x80000


class Question(NamedTuple):
    """A server, and how to talk to it. Empty texts are not set."""

    url: str  # of /v2/
    ca: str = ""
    certificate: str = ""
    key: str = ""
    username: str = ""
    password: str = ""
    basic_only: bool = False


class _Answer(NamedTuple):
    status: int
    challenge: str


def ask(question: Question, timeout_s: float) -> Problem | None:
    """Return why an engine cannot use a registry; None if it can. Each connection has the limit."""
    try:
        with _context(question) as context:
            return _ask(question, context, timeout_s)
    except (OSError, ValueError, http.client.HTTPException) as error:
        issuer = _issuer(question.url, timeout_s) if isinstance(error, ssl.SSLError) else ""
        return registry_answer.of_connection(_words(error), issuer)


def _ask(question: Question, context: ssl.SSLContext, timeout_s: float) -> Problem | None:
    login = _login(question)
    answer = _get(question.url, context, timeout_s, login)
    challenge = registry_answer.parse_challenge(answer.challenge)
    has_token = False
    if answer.status == 401 and challenge.scheme == "bearer" and login:
        realm = urlsplit(challenge.realm)
        query = urlencode({"service": challenge.service, "account": question.username})
        address = realm._replace(query="&".join(filter(None, (realm.query, query)))).geturl()
        # Only its own server gets the trust of a registry; a service elsewhere has a public one.
        is_own = realm.hostname == urlsplit(question.url).hostname
        trusted = context if is_own else _trust()
        token = _get(address, trusted, timeout_s, login)
        has_token = token.status < 300
    return registry_answer.of_answer(
        answer.status,
        challenge,
        has_login=bool(login),
        has_token=has_token,
        basic_only=question.basic_only,
    )


def _login(question: Question) -> str:
    if not question.username:
        return ""
    text = f"{question.username}:{question.password}".encode()
    return f"Basic {base64.b64encode(text).decode()}"


def _get(url: str, context: ssl.SSLContext, timeout_s: float, login: str) -> _Answer:
    address = urlsplit(url)
    host = address.hostname or ""
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        connection = http.client.HTTPSConnection(
            host, address.port or 443, timeout=timeout_s, context=context
        )
    elif login:
        raise ValueError(f"{address.scheme}://{address.netloc} would show the login on its way")
    else:
        connection = http.client.HTTPConnection(host, address.port or 80, timeout=timeout_s)
    try:
        path = address.path or "/"
        headers = {"Authorization": login} if login else {}
        target = f"{path}?{address.query}" if address.query else path
        connection.request("GET", target, headers=headers)
        response = connection.getresponse()
        response.read(_LONGEST)
        return _Answer(response.status, response.getheader("WWW-Authenticate") or "")
    finally:
        connection.close()


def _trust() -> ssl.SSLContext:
    """Return a context that trusts what Go trusts, in which all engines are written.

    Go accepts a CA without a key usage, and any certificate of the pool as the end of a chain. It
    takes no names from the subject. From 3.13 on, Python is stricter by default.
    """
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= _PARTIAL_CHAIN
    context.hostname_checks_common_name = False
    return context


@contextmanager
def _context(question: Question) -> Iterator[ssl.SSLContext]:
    context = _trust()
    if question.ca:
        context.load_verify_locations(cadata=question.ca)
    if not question.certificate:
        yield context
        return
    descriptor, path = tempfile.mkstemp(prefix="metal-gpu-")  # with mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{question.certificate}\n{question.key}\n")
        context.load_cert_chain(path)
        yield context
    finally:
        os.unlink(path)


def _words(error: BaseException) -> str:
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "no answer within the time limit"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    text = getattr(error, "strerror", None) or str(error)
    return str(text) or type(error).__name__


def _issuer(url: str, timeout_s: float) -> str:
    """Return who issued the certificate of a server that is not trusted; empty if unknown.

    ssl shows the parts of a certificate only after it has verified it. So the certificate is
    decoded as text by a function of its own, if this Python has it.
    """
    address = urlsplit(url)
    decode = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)
    if decode is None:
        return ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent to it
    host = address.hostname or ""
    try:
        with (
            socket.create_connection((host, address.port or 443), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host) as encrypted,
        ):
            der = encrypted.getpeercert(binary_form=True) or b""
        with tempfile.NamedTemporaryFile("w", prefix="metal-gpu-") as file:
            file.write(ssl.DER_cert_to_PEM_cert(der))
            file.flush()
            issuer = decode(file.name).get("issuer", ())
    except (OSError, ValueError):
        return ""
    names = dict(pair for part in issuer for pair in part)
    return str(names.get("commonName") or names.get("organizationName") or "")
