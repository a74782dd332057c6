# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Ask a registry from a node, as a container engine does. `ask` does I/O.

A client certificate goes through a file that only root reads, because Python's ssl takes no text.
The file is gone before the first connection.

Source: tests/recorded/registries.yml
"""

from __future__ import annotations

import base64
import concurrent.futures
import http.client
import os
import socket
import ssl
import tempfile
import threading
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

from ansible_collections.metal.gpu.plugins.module_utils.read import registries, registry_answer

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from ansible_collections.metal.gpu.plugins.module_utils.read.registry_answer import Problem

REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 10
# A question has several connections, and a server can send each byte just before the limit. So the
# whole question has a limit, too: so many times that of a connection.
_LIMITS = 3
_TOO_LATE = "no answer within the time limit"
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
    location: str
    url: str  # which has answered, after redirects


class _Unusable(Exception):
    """A text of the variable that ssl cannot use."""


class _Unanswered(Exception):
    """A connection that has failed: to which address, and why."""

    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(url)
        self.url, self.error = url, error


def ask(question: Question, timeout_s: float) -> Problem | None:
    """Return why an engine cannot use a registry; None if it can.

    Each answer has the limit of time, and the whole question three times that.
    """
    try:
        context = _context(question)
    except _Unusable as error:
        return registry_answer.of_variable(str(error))
    answer: concurrent.futures.Future[Problem | None] = concurrent.futures.Future()

    def wait() -> None:
        try:
            answer.set_result(_answer(question, context, timeout_s))
        except Exception as error:  # for the thread that waits
            answer.set_exception(error)

    # Nothing of Python stops a connection from outside. The thread ends with the module.
    threading.Thread(target=wait, daemon=True).start()
    try:
        return answer.result(_LIMITS * timeout_s)
    except concurrent.futures.TimeoutError:
        return registry_answer.of_connection(_TOO_LATE)


def _answer(question: Question, context: ssl.SSLContext, timeout_s: float) -> Problem | None:
    try:
        return _ask(question, context, timeout_s)
    except _Unanswered as failed:
        issuer = _issuer(failed.url, timeout_s) if isinstance(failed.error, ssl.SSLError) else ""
        words, server = _words(failed.error), _server(failed.url)
        is_elsewhere = server != _server(question.url)
        text = f"it sends the node to {server}: {words}" if is_elsewhere else words
        return registry_answer.of_connection(text, issuer)
    except ValueError as error:  # an address that it names
        return registry_answer.of_connection(_words(error))


def _server(url: str) -> str:
    """Return the host and the port of an address, without a login."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _ask(question: Question, context: ssl.SSLContext, timeout_s: float) -> Problem | None:
    login = _login(question)
    answer = _follow(question.url, context, timeout_s, login)
    challenge = registry_answer.parse_challenge(answer.challenge)
    has_token = False
    if answer.status == 401 and challenge.scheme == "bearer" and login:
        realm = urlsplit(urljoin(answer.url, challenge.realm))
        query = urlencode({"service": challenge.service, "account": question.username})
        address = realm._replace(query="&".join(filter(None, (realm.query, query)))).geturl()
        # The engines trust the service of tokens by the CA of its registry, whatever its name is.
        token = _follow(address, context, timeout_s, login)
        has_token = token.status < 300
    return registry_answer.of_answer(
        answer.status,
        challenge,
        has_login=bool(login),
        has_certificate=bool(question.certificate),
        has_token=has_token,
        basic_only=question.basic_only,
    )


def _follow(url: str, context: ssl.SSLContext, timeout_s: float, login: str) -> _Answer:
    """Ask, and follow redirects as Go does: another host gets no login."""
    first = urlsplit(url).hostname or ""
    for _number in range(MOST_REDIRECTS):
        answer = _get(url, context, timeout_s, login)
        if answer.status not in REDIRECTS or not answer.location:
            return answer
        url = urljoin(url, answer.location)
        host = urlsplit(url).hostname or ""
        if host != first and not host.endswith(f".{first}"):
            login = ""
    raise _Unanswered(url, ValueError(f"it redirects more than {MOST_REDIRECTS} times"))


def _login(question: Question) -> str:
    if not question.username:
        return ""
    text = f"{question.username}:{question.password}".encode()
    return f"Basic {base64.b64encode(text).decode()}"


def _get(url: str, context: ssl.SSLContext, timeout_s: float, login: str) -> _Answer:
    """Return the head of an answer; the body says nothing more. Raises _Unanswered."""
    try:
        address = urlsplit(url)
        connection = _connection(address, context, timeout_s, login)
        try:
            path = address.path or "/"
            headers = {"Authorization": login} if login else {}
            target = f"{path}?{address.query}" if address.query else path
            connection.request("GET", target, headers=headers)
            response = connection.getresponse()
            challenge = response.getheader("WWW-Authenticate") or ""
            return _Answer(response.status, challenge, response.getheader("Location") or "", url)
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _Unanswered(url, error) from error


def _connection(
    address: SplitResult, context: ssl.SSLContext, timeout_s: float, login: str
) -> http.client.HTTPConnection:
    host = address.hostname or ""
    if not host or address.scheme not in ("http", "https"):
        named = f"{address.scheme}://{_server(address.geturl())}"
        raise ValueError(f"{named} is no address of a server")
    if address.scheme == "https":
        return http.client.HTTPSConnection(
            host, address.port or 443, timeout=timeout_s, context=context
        )
    if login:
        raise ValueError(f"http://{_server(address.geturl())} would show the login on its way")
    return http.client.HTTPConnection(host, address.port or 80, timeout=timeout_s)


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


def _context(question: Question) -> ssl.SSLContext:
    """Return whom to trust and who we are. Raises _Unusable."""
    context = _trust()
    if question.ca:
        try:
            context.load_verify_locations(cadata=_pem(question.ca))
        except (OSError, ValueError, TypeError) as error:  # TypeError: it is no ASCII text
            raise _Unusable(f"the ca for {question.url} is no certificate: {error}") from error
    if not question.certificate:
        return context
    descriptor, path = tempfile.mkstemp(prefix="metal-gpu-")  # with mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(_pem(question.certificate) + _pem(question.key))
        # Without a password, OpenSSL asks for one at the terminal.
        context.load_cert_chain(path, password="")
    except (OSError, ValueError) as error:
        what = f"the client_certificate with its client_key for {question.url}"
        raise _Unusable(f"{what} is unusable: {error}") from error
    finally:
        os.unlink(path)
    return context


def _pem(text: str) -> str:
    """Return what the engine gets of a text: neither comments nor a byte order mark."""
    return "".join(f"{block}\n" for block in registries.pem_blocks(text))


def _words(error: BaseException) -> str:
    if isinstance(error, (socket.timeout, TimeoutError)):
        return _TOO_LATE
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
