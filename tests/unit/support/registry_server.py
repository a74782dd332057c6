# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server on 127.0.0.1 that answers GET /v2/ as registries do, with TLS and a CA of its own."""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOGIN = "Basic " + base64.b64encode(b"me:hunter2").decode()
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self._key(serialization.NoEncryption())

    @property
    def encrypted_key_pem(self) -> str:
        return self._key(serialization.BestAvailableEncryption(b"passphrase"))

    def _key(self, encryption: serialization.KeySerializationEncryption) -> str:
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, form, encryption).decode()


def make(name: str, issuer: Pair | None = None, *, ends: datetime.datetime = NOW + DAY) -> Pair:
    """Return a CA, or a certificate that a CA has issued for 127.0.0.1 and localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    address = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    )
    public = issuer.key.public_key() if issuer else key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 9 * DAY)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    if issuer:
        builder = builder.add_extension(address, critical=False)
    else:
        usage = x509.KeyUsage(*(one in (5, 6) for one in range(9)))
        builder = builder.add_extension(usage, critical=True)
    return Pair(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


class Kind(NamedTuple):
    """How a registry behaves."""

    login: bool = False
    tokens: bool = False  # it wants a token, which its service gives for the login
    status: int = 200
    client_ca: Pair | None = None
    realm: str = "127.0.0.1"  # the name of the service of tokens
    redirects: tuple[str, ...] = ()  # names of servers, which are all this one
    location: str = ""  # an address to which it redirects
    drips: str = ""  # what it sends too slowly for ever: head or body
    alert: int | None = None  # with which it ends the handshake, if the client sends a name


@contextlib.contextmanager
def serve(folder: Path, kind: Kind, pair: Pair | None) -> Iterator[str]:
    """Run a registry, and return its address. Without a certificate, it has no TLS."""

    is_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            port = self.server.server_address[1]
            has_login = self.headers["Authorization"] == LOGIN
            done = int(self.path.partition("?")[2] or 0) if "/token" not in self.path else 0
            if kind.drips:
                self.drip()
            elif kind.location or done < len(kind.redirects):
                self.send_response(307)
                scheme = "https" if pair else "http"
                there = kind.location or f"{scheme}://{kind.redirects[done]}:{port}/v2/?{done + 1}"
                self.send_header("Location", there)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif self.path.startswith("/token"):
                self.answer(200 if has_login else 401)
            elif kind.tokens:
                realm = f"https://{kind.realm}:{port}/token"
                self.answer(401, f'Bearer realm="{realm}",service="registry"')
            elif kind.login and not has_login:
                self.answer(401, 'Basic realm="Registry"')
            else:
                self.answer(kind.status)

        def drip(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n")
            self.wfile.write(b"\r\n" if kind.drips == "body" else b"X-Slow: ")
            with contextlib.suppress(OSError):
                while not is_over.wait(0.05):
                    self.wfile.write(b"x")

        def answer(self, status: int, challenge: str = "") -> None:
            self.send_response(status)
            if challenge:
                self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if pair:
        file = folder / "server.pem"
        file.write_text(pair.pem + pair.key_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if kind.alert is not None:
            context.sni_callback = lambda *_arguments: kind.alert
        if kind.client_ca:
            context.load_verify_locations(cadata=kind.client_ca.pem)
            context.verify_mode = ssl.CERT_REQUIRED
            context.maximum_version = ssl.TLSVersion.TLSv1_2  # its refusal is in the handshake
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_arguments: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"{'https' if pair else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()
