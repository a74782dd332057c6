# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Written by hand after the forms that apt_auth.conf(5), dnf.conf(5), containerd's hosts.toml,
Docker's config.json and daemon.json, kubeconfig files and curl's output have."""

from __future__ import annotations

import random
import string
import time

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact

HIDDEN_TABLE = [
    pytest.param("https://u:CANARY@host/x", "https://***@host/x", id="url"),
    pytest.param("https://CANARY@host/x", "https://***@host/x", id="url-token-alone"),
    pytest.param("https://u:CAN@ARY@host/x", "https://***@host/x", id="url-at-in-password"),
    pytest.param("https://u:CAN/ARY@host/x", "https://***@host/x", id="url-slash-in-password"),
    pytest.param("socks5h://u:CANARY@[::1]:1080", "socks5h://***@[::1]:1080", id="url-ipv6"),
    pytest.param(
        "E: Failed to fetch https://u:CANARY@a/ubuntu/x.deb  401 Unauthorized [IP: ::1 443]",
        "E: Failed to fetch https://***@a/ubuntu/x.deb  401 Unauthorized [IP: ::1 443]",
        id="url-in-words",
    ),
    pytest.param(
        "https://a/x?token=CANARY&v=1 https://b:CANARY@c",
        "https://a/x?token=***&v=1 https://***@c",
        id="url-query",
    ),
    pytest.param(
        'Environment="HTTP_PROXY=u:CANARY@proxy:3128"',
        'Environment="HTTP_PROXY=***@proxy:3128"',
        id="proxy-without-scheme",
    ),
    pytest.param('{"auth": "CANARY", "x": 1}', '{"auth": "***", "x": 1}', id="json"),
    pytest.param('{"auth":"CAN\\"ARY"}', '{"auth":"***"}', id="json-escaped-quote"),
    pytest.param('{"password":12345678}', '{"password":***}', id="json-number"),
    pytest.param('  "password": 12345678,\n', '  "password": ***,\n', id="json-number-on-line"),
    pytest.param('"{\\"auth\\":\\"CANARY\\"}"', '"{\\"auth\\":\\"***\\"}"', id="json-in-json"),
    pytest.param('{"secret": ["CANARY", "CANARY"]}', '{"secret": [***]}', id="json-list"),
    pytest.param('identitytoken = "CANARY"', 'identitytoken = "***"', id="toml"),
    pytest.param("auth = '''CAN\nARY'''", "auth = '''***'''", id="toml-long"),
    pytest.param('x = { username = "u", password = "CANARY" }', None, id="toml-inline"),
    pytest.param(
        '[host."https://a".header]\n  authorization = ["Bearer CANARY"]',
        '[host."https://a".header]\n  authorization = [***]',
        id="toml-header",
    ),
    pytest.param("password: CANARY CANARY\nx: 1", "password: ***\nx: 1", id="yaml"),
    pytest.param("- registryPassword: 'CAN''ARY'\n", "- registryPassword: '***'\n", id="yaml-item"),
    pytest.param("{user: u, password: CANARY}", "{user: u, password: ***}", id="yaml-flow"),
    pytest.param(
        "a:\n  token: |\n    CANARY\n\n    CANARY\n  x: 1\n",
        "a:\n  token: ***\n  x: 1\n",
        id="yaml-block",
    ),
    pytest.param("    client-key-data: CANARY==", "    client-key-data: ***", id="kubeconfig"),
    pytest.param(
        "[r]\nusername=u\npassword = CANARY CANARY\ngpgcheck=1\n",
        "[r]\nusername=u\npassword = ***\ngpgcheck=1\n",
        id="ini",
    ),
    pytest.param("#proxy_password=CANARY", "#proxy_password=***", id="commented-out"),
    pytest.param("export NGC_API_KEY=CANARY", "export NGC_API_KEY=***", id="environment"),
    pytest.param("curl --x-token=CANARY -v", "curl --x-token=*** -v", id="flag"),
    pytest.param("kubeadm join --token CANARY --v 1", "kubeadm join --token *** --v 1", id="words"),
    pytest.param('["--token", "CANARY"]', '["--token", "***"]', id="argument-list"),
    pytest.param("curl -H 'X-Auth-Token: CANARY'", "curl -H 'X-Auth-Token: ***'", id="header"),
    pytest.param("> Authorization: Bearer CANARY.x", "> Authorization: ***", id="bearer"),
    pytest.param("Proxy-Authorization: Basic CANARY==", "Proxy-Authorization: ***", id="basic"),
    pytest.param(
        'Authorization: Digest username="u", response="CANARY"', "Authorization: ***", id="digest"
    ),
    pytest.param("machine h login u password CANARY", "machine h login u password ***", id="netrc"),
    pytest.param(
        "-----BEGIN RSA PRIVATE KEY-----\nCANARY\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----",
        id="private-key",
    ),
    pytest.param('{"auth": "CANARY', None, id="cut-off"),
    pytest.param("-----BEGIN PRIVATE KEY-----\nCANARY", None, id="private-key-cut-off"),
]

KEPT = [
    pytest.param("https://download.docker.com/linux/debian/gpg", id="url"),
    pytest.param("https://host:8443/a@b/c", id="url-at-in-path"),
    pytest.param("http://[fd00::1]:5000/image@sha256:0a", id="url-ipv6"),
    pytest.param("docker-pullable://nginx@sha256:0a", id="digest"),
    pytest.param("admin@example.com: no such host", id="mail"),
    pytest.param('{"auths": {"a": {}}, "authorization-plugins": ["x"]}', id="names-alike"),
    pytest.param("authorization:\n  mode: Webhook\n", id="kubelet-authorization"),
    pytest.param('{"authorization":{"mode":"Webhook"}}', id="kubelet-authorization-json"),
    pytest.param("--authentication-token-webhook=true --token-auth-file=/x", id="flags-alike"),
    pytest.param("secretName: x\nimagePullSecrets:\n- name: y\n", id="names-of-secrets"),
    pytest.param('password: ""\ntoken: null\nauth: false\n', id="empty"),
    pytest.param("line 3: unexpected token: ']'", id="parser"),
    pytest.param("pass the password with `--ask-become-pass` or -K", id="words"),
    pytest.param("token: ***\nauth: ***\nx: https://***@y", id="redacted-already"),
    pytest.param("", id="nothing"),
]


@pytest.mark.parametrize(("text", "expected"), HIDDEN_TABLE)
def test_credentials_are_hidden(text, expected):
    shown = redact(text)
    assert "CANARY" not in shown
    assert "CAN" not in shown
    assert "ARY" not in shown
    assert expected is None or shown == expected


@pytest.mark.parametrize("text", KEPT)
def test_everything_else_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize(("text", "expected"), HIDDEN_TABLE)
def test_a_second_time_changes_nothing(text, expected):
    once = redact(text)
    assert redact(once) == once


def test_any_text_comes_out_and_the_second_time_changes_nothing():
    pieces = [
        *("password", "token", "auth", "://", "@", ":", "=", '"', "'", "\\", "[", "]", "{", "}"),
        *(",", " ", "\n", "|", ">", "--", "***", "Authorization", "Bearer", "proxy", "true", "no"),
        *string.ascii_lowercase[:4],
    ]
    for seed in range(3000):
        chance = random.Random(seed)
        text = "".join(chance.choice(pieces) for _ in range(chance.randrange(40)))
        once = redact(text)
        twice = redact(once)
        assert redact(twice) == twice, (seed, text)
        assert twice == once, (seed, text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('  "insecure-registries": ["10.0.0.1"],\n' * 10_000, id="lines"),
        pytest.param("A" * 200_000, id="one-word"),
        pytest.param("token=" + "," * 200_000, id="commas"),
        pytest.param("://a:b" * 20_000, id="urls-without-end"),
        pytest.param("x: {password: 1}\n" * 10_000, id="many-keys"),
        pytest.param("{" + '"password": "x", ' * 10_000, id="many-keys-in-one-line"),
        pytest.param("password:\n x\n" + "\n" * 20_000, id="empty-lines"),
        pytest.param("://" + "a" * 200_000, id="url-without-end"),
        pytest.param("password=" * 20_000, id="key-after-key"),
        pytest.param("token = [" * 10_000, id="open-lists"),
        pytest.param('auth = """' * 10_000, id="open-strings"),
        pytest.param("-----BEGIN PRIVATE KEY-----" * 6_000, id="open-keys"),
        pytest.param(" " * 200_000, id="blanks"),
        pytest.param("token" * 40_000, id="word-after-word"),
    ],
)
def test_a_long_text_takes_no_long_time(text):
    begin = time.process_time()
    redact(text)
    assert time.process_time() - begin < 2
