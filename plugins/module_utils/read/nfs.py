# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Messages of NFS servers: remote procedure calls, the mount protocol, NFS 3 and NFS 4.

Only what shows whether a host could mount an export, so that it can be asked without a mount, and
on kernels that cannot mount it. Numbers are in the order of the network, texts are filled up to
four bytes.

Source: RFC 5531 (remote procedure calls), RFC 1833 (rpcbind), RFC 1813 (NFS 3 and its mount
protocol), RFC 7530 (NFS 4.0); tests/recorded/nfs.yml
"""

from __future__ import annotations

import struct
from typing import NamedTuple

PORTMAP, NFS, MOUNT = (100000, 2), 100003, (100005, 3)
PORTMAP_PORT, NFS_PORT = 111, 2049
# Procedures of these programs.
NULL, GETPORT, ACCESS_3, MNT, UMNT, EXPORTS, COMPOUND = 0, 3, 4, 1, 3, 5, 1
_TCP = 6
_PUTROOTFH, _LOOKUP, _ACCESS = 24, 15, 3
# Rights to a folder: to change entries of it, and to add some.
_WRITE = 0x04 | 0x08
_ALL = 0x3F
_AUTH_SYS = 1
_ATTRIBUTES = 84  # bytes, of NFS 3
LAST = 0x80000000  # of a record: no fragment follows

OK = 0
# Statuses of both versions, and of the mount protocol, which has the same numbers.
DENIED = (1, 13, 10016)  # no permission; no access; another kind of security
MISSING = (2, 20, 10006)  # no such name; no folder; no such export
MINOR_VERSION = 10021
LATER = 10008  # the server is busy with something, such as a file that is on a tape


class Malformed(ValueError):
    """An answer ends too early, or is none of the protocol."""


class Reply(NamedTuple):
    """What a server has answered to a call."""

    error: str  # empty: it has carried out the call
    versions: tuple[int, int] | None = None  # the lowest and the highest one that it has
    body: bytes = b""


class Access(NamedTuple):
    """Whether an export is there, and may be written to."""

    status: int
    writable: bool = False


class Reader:
    """The rest of a message."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def number(self) -> int:
        return int(struct.unpack(">I", self._take(4))[0])

    def text(self) -> bytes:
        length = self.number()
        found = self._take(length)
        self._take(-length % 4)
        return found

    def skip(self, length: int) -> None:
        self._take(length)

    def rest(self) -> bytes:
        return self._data[self._place :]

    def _take(self, length: int) -> bytes:
        found = self._data[self._place : self._place + length]
        if len(found) != length:
            raise Malformed("the answer ends too early")
        self._place += length
        return found


def numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def text(value: bytes) -> bytes:
    return numbers(len(value)) + value + b"\0" * (-len(value) % 4)


def call(
    identity: int, program: int, version: int, procedure: int, body: bytes, host: str
) -> bytes:
    """Return a call by root of this host, as one record."""
    credential = numbers(0) + text(host.encode()[:255]) + numbers(0, 0, 0)
    head = numbers(identity, 0, 2, program, version, procedure, _AUTH_SYS) + text(credential)
    message = head + numbers(0, 0) + body
    return numbers(LAST | len(message)) + message


def parse_reply(data: bytes, identity: int) -> Reply:
    """Read the answer to a call. Raise Malformed."""
    message = Reader(data)
    if message.number() != identity or message.number() != 1:
        raise Malformed("this is no answer to the call")
    if message.number() != 0:
        reason = "another version of the protocol" if message.number() == 0 else "the credentials"
        return Reply(f"the server rejects the call because of {reason}")
    message.number()  # the kind of the verifier
    message.text()
    state = message.number()
    if state == 1:
        return Reply("the server does not have this program")
    if state == 2:
        return Reply("the server does not have this version", (message.number(), message.number()))
    if state != 0:
        return Reply(f"the server cannot carry out the call (state {state})")
    return Reply("", body=message.rest())


def ask_port(program: int, version: int) -> bytes:
    return numbers(program, version, _TCP, 0)


def parse_exports(body: bytes) -> list[str]:
    """Return the exports of a server, by its mount protocol."""
    message, found = Reader(body), []
    while message.number():
        found.append(message.text().decode(errors="replace"))
        while message.number():
            message.text()  # a client
    return found


def parse_mount(body: bytes) -> tuple[int, bytes]:
    """Return the status, and the handle of the export."""
    message = Reader(body)
    status = message.number()
    return status, message.text() if status == OK else b""


def ask_access_3(handle: bytes) -> bytes:
    return text(handle) + numbers(_ALL)


def parse_access_3(body: bytes) -> Access:
    message = Reader(body)
    status = message.number()
    if message.number():
        message.skip(_ATTRIBUTES)
    return Access(status, status == OK and bool(message.number() & _WRITE))


def ask_compound(minor: int, path: str = "/") -> bytes:
    """Return what asks for access to a path. Minor versions from 1 on want a session for that."""
    operations = [
        numbers(_PUTROOTFH),
        *(numbers(_LOOKUP) + text(name.encode()) for name in path.split("/") if name),
        numbers(_ACCESS, _ALL),
    ]
    return text(b"") + numbers(minor, len(operations)) + b"".join(operations)


def parse_compound(body: bytes) -> Access:
    """Read the answer to `ask_compound`: operations up to the first that fails."""
    message = Reader(body)
    status = message.number()
    message.text()
    writable = False
    for _number in range(message.number()):
        operation, state = message.number(), message.number()
        if operation == _ACCESS and state == OK:
            message.number()  # what the server can tell
            writable = bool(message.number() & _WRITE)
    return Access(status, writable)
