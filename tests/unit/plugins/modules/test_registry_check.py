# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node says about registries that it asks."""

from __future__ import annotations

import socket
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


def ask(url: str, **given: Any) -> list[dict[str, str]]:
    options = registry_check.ARGUMENT_SPEC["registries"]["options"]
    defaults = {name: one["default"] for name, one in options.items() if "default" in one}
    question = {**defaults, "url": f"{url}/v2/", "registry": "nvcr.io", **given}
    found: list[dict[str, str]] = registry_check.run("gpu-1", [question], 5)["findings"]
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
    ],
)
def test_registry(tmp_path: Path, kind: Kind, given: dict[str, str], code: str | None) -> None:
    with serve(tmp_path, kind, SERVER) as url:
        found = ask(url, **given)
    assert [one["code"] for one in found] == ([code] if code else [])
    assert "hunter2" not in repr(found)
    if code:
        assert f"{url} (for nvcr.io)" in found[0]["message"]


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
