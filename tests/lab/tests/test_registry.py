# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ctypes
import datetime
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from metal_lab import delay, registry

ADDRESS = "127.0.0.1"


@pytest.fixture
def certificates(tmp_path):
    registry._write_certificates(tmp_path, [ADDRESS, "nvcr.io"])
    return tmp_path


def _handshake(folder: Path, certificate: str, name: str) -> None:
    """Let a client that trusts the registry's authority meet one of its certificates."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / f"{certificate}.crt", folder / f"{certificate}.key")
    client = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    theirs.settimeout(10)

    def answer() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:  # the client has refused the certificate
            theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        client.wrap_socket(ours, server_hostname=name).close()
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("name", [ADDRESS, "nvcr.io"])
def test_certificate_is_valid_for_address_and_upstreams_names(certificates, name):
    _handshake(certificates, registry.SERVER, name)


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (registry.EXPIRED, "certificate has expired"),
        (registry.STRANGER, "unable to get local issuer certificate"),
    ],
)
def test_wrong_certificates_are_refused(certificates, certificate, reason):
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        _handshake(certificates, certificate, ADDRESS)


def test_expired_certificate_was_valid_until_yesterday(certificates):
    content = (certificates / f"{registry.EXPIRED}.crt").read_bytes()
    ended = x509.load_pem_x509_certificate(content).not_valid_after_utc
    age = datetime.datetime.now(datetime.UTC) - ended
    assert datetime.timedelta(hours=23) < age < datetime.timedelta(hours=25)


def test_only_root_can_read_keys_and_passwords(certificates):
    registry._write_secret(certificates / "password", "secret")
    secrets = [*certificates.glob("*.key"), certificates / "password"]
    assert len(secrets) == 5
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}


def test_password_matches_its_hash():
    password = "word" + registry.AWKWARD
    hashed = registry.bcrypt(password)
    assert hashed.startswith("$2b$")  # the only kind that the registry accepts
    library = ctypes.CDLL("libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    assert library.crypt(password.encode(), hashed.encode()).decode() == hashed
    assert registry.bcrypt(password) != hashed  # another salt


def test_configuration():
    plain = yaml.safe_load(registry.configuration(Path("/storage"), "/socket", "unix"))
    assert plain["storage"]["filesystem"] == {"rootdirectory": "/storage"}
    assert (plain["http"]["addr"], plain["http"]["net"]) == ("/socket", "unix")
    assert "auth" not in plain
    guarded = yaml.safe_load(
        registry.configuration(
            Path("/storage"), "172.30.0.1:443", tls={"certificate": "a"}, htpasswd=Path("/b")
        )
    )
    assert guarded["http"]["tls"] == {"certificate": "a"}
    assert guarded["auth"] == {"htpasswd": {"realm": "metal-lab", "path": "/b"}}


def test_slow_line_delays_requests_and_not_answers():
    with socket.create_server((ADDRESS, 0)) as target:
        port = target.getsockname()[1]
        # Another address of this machine, because both ends have the same port.
        command = [sys.executable, "-m", "metal_lab.delay", "127.0.0.2", ADDRESS, str(port), "0.3"]
        lab = Path(delay.__file__).parent.parent
        with subprocess.Popen(command, cwd=lab) as process:
            try:
                client = _connect(("127.0.0.2", port))
                server, _address = target.accept()
                with client, server:
                    started = time.monotonic()
                    client.sendall(b"question")
                    assert server.recv(100) == b"question"
                    assert time.monotonic() - started >= 0.3
                    server.sendall(b"answer")
                    assert client.recv(100) == b"answer"
                    server.close()
                    assert client.recv(100) == b""
            finally:
                process.terminate()


def _connect(address: tuple[str, int]) -> socket.socket:
    """Connect to a process that is just starting."""
    for _try in range(500):
        try:
            return socket.create_connection(address, timeout=5)
        except ConnectionRefusedError:
            time.sleep(0.02)
    raise TimeoutError(address)
