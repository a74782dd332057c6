# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask which machines have an SSH server: one connection to one port of each, and no byte sent.

The rate of new connections and their number are limited, so that no switch takes it for an attack.
OpenSSH 9.8 and later counts a connection that ends before a login as 1 s of penalty, and refuses
an address from 15 s on: a scan may ask a machine once, and connect.

Source: RFC 4253, section 4.2; sshd_config(5) of OpenSSH 9.8, PerSourcePenalties
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from threading import current_thread, main_thread
from typing import NamedTuple

from metal_gpu.banners import parse_identification
from metal_gpu.targets import Target

PORT = 22
RATE = 100.0  # new connections in a second
TIMEOUT_S = 3.0  # for a name, for a connection, and for the words of a server
_CONNECTIONS = 256  # below the 1,024 files that a process may have open
_LATE_S = 0.1  # by which a timer may be late, and the next ones make up for it
_RESOLVERS = 32
_MAX_BYTES = 16 * 1024  # a banner before the identification string


class State(StrEnum):
    """What became of a target."""

    SSH = "ssh"
    OTHER = "other"  # something answers, and is no SSH server
    REFUSED = "refused"  # the machine answers, and nothing listens on the port
    SILENT = "silent"
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    NOT_ASKED = "not asked"  # the configuration of ssh for the target cannot be used


class Answer(NamedTuple):
    """What a target answered."""

    target: Target
    port: int
    state: State
    identification: str | None = None  # of an SSH server
    error: str | None = None  # why there is none


def ask(
    targets: Sequence[Target],
    *,
    port: int = PORT,
    rate: float = RATE,
    timeout_s: float = TIMEOUT_S,
    heard: Callable[[Answer], None] = lambda _answer: None,
) -> list[Answer]:
    """Ask all targets, and return their answers in the same order.

    `heard` is called with each answer as it comes. Ctrl-C closes every connection.
    """
    with _ctrl_c():
        return asyncio.run(_ask_all(targets, port, rate, timeout_s, heard))


@contextmanager
def _ctrl_c() -> Iterator[None]:
    """Let asyncio cancel its tasks at Ctrl-C, and then do what the program does at Ctrl-C.

    asyncio does so only if the handler is that of Python. Another handler that raises SystemExit
    would do it in the middle of a task, and asyncio would print that nobody has retrieved it.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or current_thread() is not main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        handler(signal.SIGINT, None)
        raise
    finally:
        signal.signal(signal.SIGINT, handler)


async def _ask_all(
    targets: Iterable[Target],
    port: int,
    rate: float,
    timeout_s: float,
    heard: Callable[[Answer], None],
) -> list[Answer]:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_RESOLVERS, "resolve"))
    free = asyncio.Semaphore(_CONNECTIONS)

    async def one(target: Target) -> Answer:
        try:
            answer = await _ask(target, target.port or port, timeout_s)
        finally:
            free.release()
        heard(answer)
        return answer

    async with asyncio.TaskGroup() as group:
        tasks = []
        turn = loop.time()
        for target in targets:
            await free.acquire()
            await asyncio.sleep(turn - loop.time())
            # Time in which all connections were busy is not made up for.
            turn = max(turn, loop.time() - _LATE_S) + 1 / rate
            tasks.append(group.create_task(one(target)))
    return [task.result() for task in tasks]


async def _ask(target: Target, port: int, timeout_s: float) -> Answer:
    """Connect to a target and read what its server says first."""
    try:
        async with asyncio.timeout(timeout_s):
            address = await _resolve(target.host, port)
    except (OSError, UnicodeError) as error:
        return Answer(target, port, State.UNRESOLVED, error=_resolving_error(target.host, error))
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(address, port, limit=_MAX_BYTES)
    except TimeoutError:
        return Answer(target, port, State.SILENT, error=f"no answer within {timeout_s:g} s")
    except OSError as error:
        refused = error.errno == errno.ECONNREFUSED
        state = State.REFUSED if refused else State.UNREACHABLE
        return Answer(target, port, state, error=_words(error))
    try:
        return await _listen(target, port, timeout_s, reader)
    finally:
        writer.transport.abort()


async def _resolve(host: str, port: int) -> str:
    """Return the first address of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


async def _listen(
    target: Target, port: int, timeout_s: float, reader: asyncio.StreamReader
) -> Answer:
    """Read until the identification string of the server."""
    said, silent = b"", False
    try:
        async with asyncio.timeout(timeout_s):
            while len(said) < _MAX_BYTES and not parse_identification(
                said[: said.rfind(b"\n") + 1]
            ):
                part = await reader.read(1024)
                said += part
                if not part:
                    break
    except TimeoutError:
        silent = True
    except OSError as error:
        return Answer(target, port, State.UNREACHABLE, error=_words(error))
    identification = parse_identification(said)
    if identification:
        return Answer(target, port, State.SSH, identification)
    line = said.partition(b"\n")[0].decode("utf-8", "replace").strip()
    shown = "".join(sign if sign.isprintable() else "?" for sign in line[:60])
    end = f"nothing within {timeout_s:g} s" if silent else "nothing, and closed the connection"
    words = f"no SSH server: it said {repr(shown) if shown else end}"
    return Answer(target, port, State.OTHER, error=words)


def _resolving_error(host: str, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no name server answered for {host}"
    if isinstance(error, socket.gaierror):
        return f"the name {host} has no address: {error.strerror}"
    return f"the name {host} has no address: {error}"


def _words(error: OSError) -> str:
    """Return the reason of an error, without asyncio's frame around it."""
    return os.strerror(error.errno) if error.errno else str(error)
