# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node says about registries that it asks."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.modules import registry_check
from ansible_collections.metal.gpu.tests.unit.support.registry_server import (
    DAY,
    NOW,
    Kind,
    make,
    serve,
)

CA = make("Private CA")
OTHER = make("Other CA")
SERVER = make("registry", CA)
CLIENT = make("client", CA)
EXPIRED = make("old", CA, ends=NOW - DAY)
LOGIN = {"username": "me", "password": "hunter2"}
WRONG = {"username": "me", "password": "wrong"}


def ask(url: str, timeout_s: float = 5, **given: Any) -> list[dict[str, str]]:
    options = registry_check.ARGUMENT_SPEC["registries"]["options"]
    defaults = {name: one["default"] for name, one in options.items() if "default" in one}
    question = {**defaults, "url": f"{url}/v2/", "registry": "nvcr.io", **given}
    found: list[dict[str, str]] = registry_check.run("gpu-1", [question], timeout_s)["findings"]
    return found


@pytest.mark.parametrize(
    ("kind", "given", "code"),
    [
        pytest.param(Kind(), {"ca": CA.pem}, None, id="open"),
        pytest.param(Kind(login=True), {"ca": CA.pem, **LOGIN}, None, id="login"),
        pytest.param(Kind(login=True), {"ca": CA.pem}, "REGISTRY_LOGIN_MISSING", id="no login"),
        pytest.param(
            Kind(login=True), {"ca": CA.pem, **WRONG}, "REGISTRY_LOGIN_REFUSED", id="wrong login"
        ),
        pytest.param(Kind(tokens=True), {"ca": CA.pem, **LOGIN}, None, id="token"),
        pytest.param(Kind(tokens=True), {"ca": CA.pem}, None, id="token for nobody"),
        pytest.param(
            Kind(tokens=True), {"ca": CA.pem, **WRONG}, "REGISTRY_LOGIN_REFUSED", id="no token"
        ),
        pytest.param(
            Kind(tokens=True),
            {"ca": CA.pem, **LOGIN, "basic_only": True},
            "REGISTRY_TOKEN_ONLY",
            id="an engine that asks for no token",
        ),
        pytest.param(Kind(), {}, "REGISTRY_UNTRUSTED", id="unknown CA"),
        pytest.param(Kind(), {"ca": OTHER.pem}, "REGISTRY_UNTRUSTED", id="wrong CA"),
        pytest.param(
            Kind(client_ca=CA),
            {"ca": CA.pem, "certificate": CLIENT.pem, "key": CLIENT.key_pem},
            None,
            id="client certificate",
        ),
        pytest.param(
            Kind(client_ca=CA), {"ca": CA.pem}, "REGISTRY_LOGIN_REFUSED", id="no client certificate"
        ),
        pytest.param(Kind(status=502), {"ca": CA.pem}, "REGISTRY_UNREACHABLE", id="bad gateway"),
        pytest.param(
            Kind(tokens=True, realm="localhost"),
            {"ca": CA.pem, **LOGIN},
            None,
            id="service of tokens with the CA and another name",
        ),
        pytest.param(Kind(redirects=("127.0.0.1",)), {"ca": CA.pem}, None, id="redirect"),
        pytest.param(
            Kind(redirects=("127.0.0.1",), login=True),
            {"ca": CA.pem, **LOGIN},
            None,
            id="redirect, same host, login",
        ),
        pytest.param(
            Kind(redirects=("localhost", "127.0.0.1"), login=True),
            {"ca": CA.pem, **LOGIN},
            "REGISTRY_LOGIN_REFUSED",
            id="redirect, another host gets no login, and nobody after it",
        ),
        pytest.param(
            Kind(redirects=("127.0.0.1",) * 20),
            {"ca": CA.pem},
            "REGISTRY_UNREACHABLE",
            id="redirects without an end",
        ),
        pytest.param(Kind(drips="body"), {"ca": CA.pem}, None, id="body without an end"),
        pytest.param(Kind(), {"ca": f"# Zürich\n{CA.pem}"}, None, id="comment beside the CA"),
        pytest.param(Kind(), {"ca": f"\ufeff{CA.pem}"}, None, id="byte order mark"),
        pytest.param(
            Kind(), {"ca": CA.pem.replace("MII", "MÜI")}, "VARIABLE_INVALID", id="no ASCII in it"
        ),
        pytest.param(
            Kind(status=403), {"ca": CA.pem}, "REGISTRY_UNREACHABLE", id="forbidden without a login"
        ),
        pytest.param(
            Kind(status=403), {"ca": CA.pem, **LOGIN}, "REGISTRY_LOGIN_REFUSED", id="forbidden"
        ),
        pytest.param(
            Kind(status=403, client_ca=CA),
            {"ca": CA.pem, "certificate": CLIENT.pem, "key": CLIENT.key_pem},
            "REGISTRY_LOGIN_REFUSED",
            id="forbidden with a client certificate",
        ),
        pytest.param(
            Kind(login=True, client_ca=CA),
            {"ca": CA.pem, "certificate": CLIENT.pem, "key": CLIENT.key_pem},
            "REGISTRY_LOGIN_MISSING",
            id="no login with a client certificate",
        ),
        pytest.param(
            Kind(), {"ca": CA.pem.replace("MII", "XXX")}, "VARIABLE_INVALID", id="no certificate"
        ),
        pytest.param(
            Kind(),
            {"ca": CA.pem, "certificate": CLIENT.pem, "key": CLIENT.encrypted_key_pem},
            "VARIABLE_INVALID",
            id="encrypted key",
        ),
    ],
)
def test_registry(tmp_path: Path, kind: Kind, given: dict[str, str], code: str | None) -> None:
    with serve(tmp_path, kind, SERVER) as url:
        found = ask(url, **given)
    assert [one["code"] for one in found] == ([code] if code else [])
    assert "hunter2" not in repr(found)
    if code:
        place = f"{url}/v2/" if code == "VARIABLE_INVALID" else f"{url} (for nvcr.io)"
        assert place in found[0]["message"]


def test_server_that_never_ends_its_answer(tmp_path: Path) -> None:
    """Each byte comes in time, so only a limit for the whole question ends it."""
    with serve(tmp_path, Kind(drips="head"), SERVER) as url:
        (found,) = ask(url, timeout_s=0.2, ca=CA.pem)
    assert "no answer within the time limit" in found["message"]


def test_service_of_tokens_that_is_not_trusted_is_named(tmp_path: Path) -> None:
    with serve(tmp_path, Kind(tokens=True, realm="127.0.0.2"), SERVER) as url:
        (found,) = ask(url, ca=CA.pem, **LOGIN)
    assert found["code"] == "REGISTRY_UNREACHABLE"
    assert "it sends the node to 127.0.0.2:" in found["message"]


@pytest.mark.parametrize(
    "kind",
    [
        Kind(redirects=("svc:CANARY@127.0.0.2",)),
        Kind(tokens=True, realm="svc:CANARY@127.0.0.2"),
        Kind(tokens=True, realm="CANARY@127.0.0.2"),
    ],
)
def test_login_in_an_address_that_the_registry_names_is_not_shown(
    tmp_path: Path, kind: Kind
) -> None:
    with serve(tmp_path, kind, SERVER) as url:
        (found,) = ask(url, ca=CA.pem, **LOGIN)
    assert "it sends the node to 127.0.0.2:" in found["message"]
    assert "CANARY" not in repr(found)


def test_login_in_an_address_of_the_same_server_makes_it_no_other(tmp_path: Path) -> None:
    with serve(tmp_path, Kind(redirects=("svc:CANARY@127.0.0.1",) * 20), SERVER) as url:
        (found,) = ask(url, ca=CA.pem)
    assert f"the node cannot use {url} (for nvcr.io): it redirects more than" in found["message"]


def test_address_of_no_server_is_shown_without_its_secrets(tmp_path: Path) -> None:
    kind = Kind(location="ftp://svc:CANARY@m.example/x?Signature=CANARY")
    with serve(tmp_path, kind, SERVER) as url:
        (found,) = ask(url, ca=CA.pem)
    assert "ftp://m.example is no address of a server" in found["message"]
    assert "CANARY" not in repr(found)


@pytest.mark.parametrize(
    ("alert", "expected"),
    [
        (ssl.ALERT_DESCRIPTION_INTERNAL_ERROR, "REGISTRY_UNREACHABLE"),
        (ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME, "REGISTRY_UNREACHABLE"),
        (ssl.ALERT_DESCRIPTION_PROTOCOL_VERSION, "REGISTRY_UNREACHABLE"),
        (ssl.ALERT_DESCRIPTION_ACCESS_DENIED, "REGISTRY_LOGIN_REFUSED"),
        (ssl.ALERT_DESCRIPTION_UNKNOWN_CA, "REGISTRY_LOGIN_REFUSED"),
    ],
)
def test_only_some_alerts_want_a_client_certificate(
    tmp_path: Path, alert: ssl.AlertDescription, expected: str
) -> None:
    with serve(tmp_path, Kind(alert=alert), SERVER) as url:
        (found,) = ask(url.replace("127.0.0.1", "localhost"), ca=CA.pem)
    assert found["code"] == expected


def test_issuer_that_is_no_ca(tmp_path: Path) -> None:
    issuer = make("No CA", CA)
    with serve(tmp_path, Kind(), make("registry", issuer)) as url:
        (found,) = ask(url, ca=issuer.pem)
    assert found["code"] == "REGISTRY_UNTRUSTED"


def test_the_ca_that_was_found_is_named(tmp_path: Path) -> None:
    with serve(tmp_path, Kind(), SERVER) as url:
        (found,) = ask(url, ca=OTHER.pem)
    assert "which Private CA has issued" in found["message"]


def test_certificate_that_has_expired(tmp_path: Path) -> None:
    with serve(tmp_path, Kind(), EXPIRED) as url:
        (found,) = ask(url, ca=CA.pem)
    assert found["code"] == "REGISTRY_CERTIFICATE_EXPIRED"
    assert "certificate has expired" in found["message"]


def test_registry_without_tls(tmp_path: Path) -> None:
    with serve(tmp_path, Kind(), None) as url:
        assert ask(url) == []
        (found,) = ask(url.replace("http:", "https:"))
    assert found["code"] == "REGISTRY_UNREACHABLE"


def test_login_is_not_sent_without_tls(tmp_path: Path) -> None:
    with serve(tmp_path, Kind(), None) as url:
        (found,) = ask(url, **LOGIN)
    assert "would show the login" in found["message"]


@pytest.mark.parametrize("listens", [True, False])
def test_registry_that_does_not_answer(listens: bool) -> None:
    """One that listens accepts connections, and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        options = {"url": f"{url}/v2/", "registry": "nvcr.io"}
        spec = registry_check.ARGUMENT_SPEC["registries"]["options"]
        defaults = {name: one["default"] for name, one in spec.items() if "default" in one}
        (found,) = registry_check.run("gpu-1", [{**defaults, **options}], 0.3)["findings"]
    assert found["code"] == "REGISTRY_UNREACHABLE"
    expected = "no answer within the time limit" if listens else "Connection refused"
    assert expected in found["message"]
