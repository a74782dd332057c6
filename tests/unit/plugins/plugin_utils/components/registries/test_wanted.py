# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variable registries_hosts: what it says, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries.wanted import read
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN,
    codes,
    plan,
)

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = PEM.replace("CERTIFICATE", "EC PRIVATE KEY")
SECRET = "hunter2"
URL = "https://mirror.example"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        pytest.param(["nvcr.io"], "no mapping", id="text"),
        pytest.param([{"mirrors": []}], "no valid host", id="no host"),
        pytest.param([{"host": "https://nvcr.io"}], "no valid host", id="address as host"),
        pytest.param([{"host": "nvcr.io/nvidia"}], "no valid host", id="path"),
        pytest.param([{"host": "nvcr.io"}, {"host": "nvcr.io"}], "twice", id="twice"),
        pytest.param([{"host": "nvcr.io", "mirror": URL}], "the keys mirror", id="unknown key"),
        pytest.param([{"host": "nvcr.io", "mirrors": URL}], "no list", id="mirrors as text"),
        pytest.param([{"host": "nvcr.io", "mirrors": [URL]}], "no mapping", id="mirror as text"),
        *(
            pytest.param([{"host": "nvcr.io", "mirrors": [{"url": url}]}], "no valid url", id=url)
            for url in (
                *("mirror.example", "ftp://mirror.example", f"https://me:{SECRET}@mirror.example"),
                *("https://mirror.example?x=1", "https://mirror.example:99999", "https://"),
            )
        ),
        *(
            pytest.param(
                [{"host": "nvcr.io", "mirrors": [{"url": url, "username": "a", "password": "b"}]}],
                "http://",
                id=f"login without TLS, {url}",
            )
            for url in ("http://m", "HTTP://m")
        ),
        pytest.param(
            [{"host": "nvcr.io", "mirrors": [{"url": "HTTP://m", "ca": PEM}]}],
            "http://",
            id="HTTP",
        ),
        pytest.param(
            [
                {"host": "nvcr.io", "mirrors": [{"url": URL, "username": "a", "password": SECRET}]},
                {"host": "quay.io", "mirrors": [{"url": URL.replace("https", "http")}]},
            ],
            "a login or a certificate, and http://",
            id="login elsewhere",
        ),
        pytest.param([{"host": "nvcr.io", "username": "me"}], "only one of", id="no password"),
        pytest.param([{"host": "nvcr.io", "password": SECRET}], "only one of", id="no username"),
        pytest.param(
            [{"host": "nvcr.io", "username": "me", "password": 7}], "no text", id="number"
        ),
        pytest.param(
            [{"host": "nvcr.io", "username": "a:b", "password": SECRET}], "colon", id="colon"
        ),
        pytest.param([{"host": "nvcr.io", "ca": "/etc/ca.crt"}], "no PEM", id="path of a CA"),
        pytest.param([{"host": "nvcr.io", "ca": KEY}], "no PEM", id="key as CA"),
        pytest.param(
            [{"host": "nvcr.io", "client_certificate": PEM, "client_key": PEM}],
            "client_key that is no PEM",
            id="certificate as key",
        ),
        *(
            pytest.param(
                [{"host": "nvcr.io", "client_certificate": PEM, "client_key": key}],
                "client_key with a passphrase",
                id=name,
            )
            for name, key in (
                ("encrypted key", KEY.replace("EC PRIVATE", "ENCRYPTED PRIVATE")),
                (
                    "encrypted key, older form",
                    KEY.replace("MIIB", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIIB"),
                ),
            )
        ),
        pytest.param([{"host": "*"}], "no mirrors", id="all without mirrors"),
        pytest.param(
            [{"host": "*", "mirrors": [{"url": URL}], "ca": PEM}], "a login or", id="CA of all"
        ),
        pytest.param([{"host": "nvcr.io", "fallback": False}], "no mirrors", id="nothing to ask"),
        pytest.param([{"host": "nvcr.io", "fallback": "no"}], "no truth value", id="fallback"),
        pytest.param(
            [
                {"host": "nvcr.io", "mirrors": [{"url": URL, "ca": PEM}]},
                {"host": "quay.io", "mirrors": [{"url": URL, "ca": PEM.replace("MIIB", "MIIC")}]},
            ],
            "two logins or certificates",
            id="two CAs of one server",
        ),
    ],
)
def test_mistakes(value: list[Any], found: str) -> None:
    problems = read(value).problems
    assert any(found in one.found for one in problems), problems
    assert SECRET not in repr(problems)
    refused = plan("registries", VIRGIN, hosts=value)
    assert set(codes(refused)) == {"VARIABLE_INVALID"}
    assert refused["steps"] == []


def test_all_mistakes_are_told_at_once() -> None:
    value = [{"host": "x y"}, {"host": "nvcr.io", "username": "me", "mirrors": [{"url": "x"}]}]
    assert len(read(value).problems) == 3


@pytest.mark.parametrize(
    ("url", "expected", "api"),
    [
        ("https://Mirror.example", "https://mirror.example", "https://mirror.example"),
        ("https://m.example:5000/", "https://m.example:5000", "https://m.example:5000"),
        ("https://m.example/hub", "https://m.example/hub", "https://m.example/v2/hub"),
        ("https://m.example/v2/hub/", "https://m.example/hub", "https://m.example/v2/hub"),
        ("http://m.example/v2", "http://m.example", "http://m.example"),
    ],
)
def test_addresses(url: str, expected: str, api: str) -> None:
    ((registry,), problems) = read([{"host": "nvcr.io", "mirrors": [{"url": url}]}])
    assert problems == ()
    assert (registry.mirrors[0].url, registry.mirrors[0].api) == (expected, api)
    assert registry.fallback


@pytest.mark.parametrize("is_first", [True, False])
def test_host_that_is_named_twice_has_its_login_once(*, is_first: bool) -> None:
    """Engines know certificates and logins by the host, so no mention of it may have less."""
    told = {"ca": PEM, "username": "me", "password": SECRET}
    bare = {"host": "ghcr.io", "mirrors": [{"url": f"{URL}/ghcr"}]}
    for of_login in (
        {"host": "nvcr.io", "mirrors": [{"url": f"{URL}/ngc", **told}]},
        {"host": "mirror.example", **told},
    ):
        value = [of_login, bare] if is_first else [bare, of_login]
        registries, problems = read([*value, {"host": "quay.io"}])
        assert problems == ()
        (mirror,) = next(one for one in registries if one.host == "ghcr.io").mirrors
        assert mirror.trust[0] == PEM
        assert mirror.trust[3:] == ("me", SECRET)
        assert mirror.is_bare
        assert not registries[2].trust.has_login
