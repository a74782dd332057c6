# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A key that the controller cannot fetch. The servers listen on the loopback device."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.failure import is_passing
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import url_problem
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repository_key import (
    KeyUnavailable,
    read_signing_key,
)


@pytest.fixture
def server() -> Iterator[Any]:
    """Return a function that starts a server with one answer, and returns its host and port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start(answer: bytes) -> str:
            def serve() -> None:
                connection, _address = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

            threading.Thread(target=serve, daemon=True).start()
            return f"127.0.0.1:{listener.getsockname()[1]}"

        yield start


def why(key: str) -> str:
    with pytest.raises(KeyUnavailable) as error:
        read_signing_key(key, "F" * 40, lambda _name: None, datetime.now(UTC))
    assert error.value.__cause__ is None
    return str(error.value)


@pytest.mark.parametrize(
    ("answer", "reason", "passes"),
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc",
            "the server ended the connection too early",
            True,
            id="half",
        ),
        pytest.param(
            b"",
            "Remote end closed connection without response",
            True,
            id="nothing",
        ),
        pytest.param(
            b"CANARY\r\n\r\n",
            "the server's answer is not valid HTTP (BadStatusLine)",
            False,
            id="not HTTP",
        ),
    ],
)
def test_broken_download(server: Any, answer: bytes, reason: str, passes: bool) -> None:
    place = server(answer)
    found = why(f"http://me:CANARY@{place}/gpg")
    reason_without_address = found.partition(": ")[2]
    assert found.startswith("cannot fetch the signing key http://")
    assert reason_without_address == reason
    assert "CANARY" not in found
    assert is_passing(found) is passes


@pytest.mark.parametrize(
    "url",
    [
        "http://me:CANARY#1@host.example/x",
        "http://me:CANARY/1@host.example/x",
        "http://me:CANARY?1@host.example/x",
        "http://me:CANARY 1@host.example/x",
        "http://me:123#CANARY@host.example/x",
        "http://me:[CANARY@host.example/x",
    ],
)
def test_password_that_cannot_be_told_from_the_address(url: str) -> None:
    assert url_problem(url)
    found = why(url)
    assert found.startswith("the URL of the signing key cannot be used: write special characters")
    assert "CANARY" not in found


@pytest.mark.parametrize(
    "url",
    [
        "https://me:CANARY%231@mirror.example:8443/a@b/$basearch?x=y",
        "https://mirror.example",
        "http://[::1]:80/x",
        "file:///srv/mirror",
    ],
)
def test_addresses_that_can_be_used(url: str) -> None:
    assert url_problem(url) is None
