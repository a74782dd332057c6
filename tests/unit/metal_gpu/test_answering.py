# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Servers on addresses of 127.0.0.0/8, which all belong to this machine."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from metal_gpu import answering
from metal_gpu.answering import Answer, State, ask
from metal_gpu.targets import Target, parse


@contextmanager
def _server(address: str, port: int, *words: bytes, closes: bool = True) -> Iterator[int]:
    """Run a server that says these words to whoever connects; return its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=64)
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection, _peer = listener.accept()
            except OSError:
                return
            for part in words:
                connection.sendall(part)
            if closes:
                connection.close()
            kept.append(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in kept:
            connection.close()


def _ask_one(port: int, host: str = "127.0.0.1", timeout_s: float = 5.0) -> Answer:
    (answer,) = ask([Target(host, port, None, "argument 1")], timeout_s=timeout_s)
    return answer


def test_four_of_254_addresses_answer() -> None:
    ours = ["127.9.8.10", "127.9.8.77", "127.9.8.200", "127.9.8.254"]
    heard: list[Answer] = []
    with ExitStack() as stack:
        port = stack.enter_context(_server(ours[0], 0, b"SSH-2.0-OpenSSH_9.2p1\r\n"))
        for address in ours[1:]:
            stack.enter_context(_server(address, port, b"SSH-2.0-OpenSSH_9.2p1\r\n"))
        start = time.monotonic()
        answers = ask(parse(["127.9.8.0/24"]), port=port, heard=heard.append)
        elapsed_s = time.monotonic() - start
    assert [one.target.host for one in answers if one.state is State.SSH] == ours
    assert {one.state for one in answers} == {State.SSH, State.REFUSED}
    assert len(heard) == len(answers) == 254
    assert elapsed_s < 10


def test_the_rate_is_kept() -> None:
    start = time.monotonic()
    ask(parse(["127.9.9.[1-11]"]), port=1, rate=20)
    assert time.monotonic() - start >= 0.5


def test_banner_before_the_identification() -> None:
    with _server("127.0.0.1", 0, b"Authorized", b" use only\r\nSSH-2.0-x y\r", b"\n") as port:
        answer = _ask_one(port)
    assert (answer.state, answer.identification) == (State.SSH, "SSH-2.0-x y")


def test_other_protocol() -> None:
    with _server("127.0.0.1", 0, b"220 ftp.example \x1b[1m ready\r\n") as port:
        answer = _ask_one(port)
    assert (answer.state, answer.error) == (
        State.OTHER,
        "no SSH server: it said '220 ftp.example ?[1m ready'",
    )


def test_endless_noise_is_cut() -> None:
    with _server("127.0.0.1", 0, b"x" * 100_000) as port:
        assert _ask_one(port).state is State.OTHER


def test_silent_server() -> None:
    with _server("127.0.0.1", 0, closes=False) as port:
        answer = _ask_one(port, timeout_s=0.2)
    assert (answer.state, answer.error) == (
        State.OTHER,
        "no SSH server: it said nothing within 0.2 s",
    )


def test_closing_server() -> None:
    with _server("127.0.0.1", 0) as port:
        assert _ask_one(port).error == "no SSH server: it said nothing, and closed the connection"


def test_nothing_listens() -> None:
    answer = _ask_one(1)
    assert (answer.state, answer.error) == (State.REFUSED, "Connection refused")


@contextmanager
def _silence(addresses: list[str], port: int) -> Iterator[None]:
    """Make addresses drop connections, as a firewall does: their queue of connections is full."""
    with ExitStack() as stack:
        for address in addresses:
            stack.enter_context(socket.create_server((address, port), backlog=0))
            waiting = stack.enter_context(socket.socket())
            waiting.connect((address, port))
        yield


def test_no_answer_to_a_connection() -> None:
    with _server("127.0.0.1", 0) as port, _silence(["127.0.0.2"], port):
        answer = _ask_one(port, "127.0.0.2", timeout_s=0.3)
    assert (answer.state, answer.error) == (State.SILENT, "no answer within 0.3 s")


def test_four_of_254_addresses_answer_and_the_others_are_silent() -> None:
    members = [target.host for target in parse(["127.9.7.0/24"])]
    ours = [members[number] for number in (0, 99, 180, 253)]
    with ExitStack() as stack:
        port = stack.enter_context(_server(ours[0], 0, b"SSH-2.0-OpenSSH_9.2p1\r\n"))
        for address in ours[1:]:
            stack.enter_context(_server(address, port, b"SSH-2.0-OpenSSH_9.2p1\r\n"))
        stack.enter_context(_silence([one for one in members if one not in ours], port))
        start = time.monotonic()
        answers = ask(parse(["127.9.7.0/24"]), port=port)
        elapsed_s = time.monotonic() - start
    assert [one.target.host for one in answers if one.state is State.SSH] == ours
    assert {one.state for one in answers} == {State.SSH, State.SILENT}
    assert elapsed_s < 10


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 64 + ".example"])
def test_name_without_address(host: str) -> None:
    answer = _ask_one(22, host)
    assert answer.state is State.UNRESOLVED
    assert answer.error
    assert host in answer.error


def test_the_rate_is_kept_after_all_connections_were_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []

    async def one(target: Target, port: int, _timeout_s: float) -> Answer:
        times.append(time.monotonic())
        await asyncio.sleep(0.5 if len(times) <= 4 else 0)
        return Answer(target, port, State.SILENT)

    monkeypatch.setattr(answering, "_ask", one)
    monkeypatch.setattr(answering, "_CONNECTIONS", 4)
    ask(parse(["127.9.9.[1-24]"]), rate=100)
    # Of 20 connections after the pause, those of a tenth of a second may come at once.
    assert times[-1] - times[4] >= 0.07
