# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Ask an NFS server for an export, as a mount would, and without one. `ask` does I/O.

It says whether the server answers this host, has the version, has the export for this host, and
lets root of this host write. Names and files of the export are not read.
"""

from __future__ import annotations

import random
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read import nfs

if TYPE_CHECKING:
    from types import TracebackType

OK, UNPROVEN = "ok", "unproven"
UNREACHABLE, VERSION, MISSING, READ_ONLY = "unreachable", "version", "missing", "read_only"
SYS, TCP = "sys", "tcp"
_PRIVILEGED = range(1023, 700, -1)  # servers trust these ports only, unless they are told otherwise
_LONGEST = 1 << 20


class Mount(NamedTuple):
    """What shall be mounted."""

    server: str
    export: str
    version: str = "4.2"
    read_only: bool = False
    port: int = 0  # of NFS; 0: the usual one, or with NFS 3 that of the server's list
    mount_port: int = 0  # of the mount protocol of NFS 3; 0: that of the server's list
    security: str = SYS  # other kinds need keys, which a question does not have
    transport: str = TCP


class Answer(NamedTuple):
    """What the server says about it."""

    state: str
    evidence: str = ""


class Refused(Exception):
    """The server answers, and does not do what it is asked for."""

    def __init__(self, reply: nfs.Reply) -> None:
        super().__init__(reply.error)
        self.reply = reply


class Connection:
    """A connection to one program of a server."""

    def __init__(self, server: str, port: int, timeout_s: float) -> None:
        self._socket = _connect(server, port, timeout_s)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def call(self, program: int, version: int, procedure: int, body: bytes = b"") -> bytes:
        """Return what the procedure returns. Raise OSError, Malformed or Refused."""
        identity = random.getrandbits(31)
        message = nfs.call(identity, program, version, procedure, body, socket.gethostname())
        self._socket.sendall(message)
        reply = nfs.parse_reply(self._record(), identity)
        if reply.error:
            raise Refused(reply)
        return reply.body

    def _record(self) -> bytes:
        found, is_last = b"", False
        while not is_last:
            (head,) = struct.unpack(">I", self._receive(4))
            is_last, length = bool(head & nfs.LAST), head & ~nfs.LAST
            if len(found) + length > _LONGEST:
                raise nfs.Malformed("the answer is too long")
            found += self._receive(length)
        return found

    def _receive(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            part = self._socket.recv(length - len(found))
            if not part:
                raise ConnectionError("the server closed the connection")
            found += part
        return found


def _connect(server: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to the first address of the server that answers."""
    failure: OSError | None = None
    for family, _kind, _protocol, _name, address in socket.getaddrinfo(
        server, port, type=socket.SOCK_STREAM
    ):
        found = _trusted(family)
        found.settimeout(timeout_s)
        try:
            found.connect(address)
        except OSError as error:
            found.close()
            failure = error
        else:
            return found
    raise failure or OSError("the name has no address")


def _trusted(family: int) -> socket.socket:
    """Return a socket with a port that only root can use, if one is free and this is root."""
    for own in _PRIVILEGED:
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            found.bind(("", own))
        except OSError:
            found.close()
        else:
            return found
    return socket.socket(family, socket.SOCK_STREAM)


def ask(mount: Mount, timeout_s: float = 10.0) -> Answer:
    """Ask the server of a mount."""
    if mount.transport != TCP:
        return Answer(UNPROVEN, f"only a mount can use {mount.transport}")
    try:
        if mount.version.partition(".")[0] == "3":
            return _ask_3(mount, timeout_s)
        return _ask_4(mount, timeout_s)
    except Refused as error:
        return _refused(mount, error.reply)
    except (OSError, ValueError) as error:  # also names that no host can have
        return Answer(UNREACHABLE, str(error) or type(error).__name__)


def _refused(mount: Mount, reply: nfs.Reply) -> Answer:
    if reply.versions:
        low, high = reply.versions
        return Answer(VERSION, f"{low}" if low == high else f"{low} to {high}")
    if mount.security != SYS:
        return _only_a_mount(mount)
    return Answer(UNREACHABLE, reply.error)


def _only_a_mount(mount: Mount) -> Answer:
    return Answer(UNPROVEN, f"the server answers, and only a mount can use {mount.security}")


def _judge(mount: Mount, status: int, *, writable: bool) -> Answer:
    if status == nfs.LATER:
        return Answer(UNPROVEN, f"the server says that it can answer later (error {status})")
    if status in nfs.DENIED:
        return Answer(MISSING, f"the server denies it to this host (error {status})")
    if status in nfs.MISSING:
        return Answer(MISSING, f"the server does not have it for this host (error {status})")
    if status != nfs.OK:
        return Answer(MISSING, f"the server answers with error {status}")
    return Answer(OK if writable or mount.read_only else READ_ONLY)


def _ask_4(mount: Mount, timeout_s: float) -> Answer:
    _major, is_one, minor_version = mount.version.partition(".")
    minor = int(minor_version or 0)
    with Connection(mount.server, mount.port or nfs.NFS_PORT, timeout_s) as server:
        server.call(nfs.NFS, 4, nfs.NULL)
        if mount.security != SYS:
            return _only_a_mount(mount)
        for number in dict.fromkeys((minor, 0)):
            body = nfs.ask_compound(number, mount.export if number == 0 else "/")
            found = nfs.parse_compound(server.call(nfs.NFS, 4, nfs.COMPOUND, body))
            if found.status == nfs.MINOR_VERSION and number == minor and is_one:
                return Answer(VERSION, f"4, without 4.{minor}")
    if found.status == nfs.MINOR_VERSION:
        # Later versions need a session for every question. A mount of any version 4 takes them.
        return Answer(UNPROVEN, "the server has no NFS 4.0, by which it could be asked for it")
    return _judge(mount, found.status, writable=found.writable)


def _ask_3(mount: Mount, timeout_s: float) -> Answer:
    ports = {nfs.NFS: mount.port, nfs.MOUNT[0]: mount.mount_port}
    if not all(ports.values()):
        with Connection(mount.server, nfs.PORTMAP_PORT, timeout_s) as server:
            for program in (one for one, port in ports.items() if not port):
                body = server.call(*nfs.PORTMAP, nfs.GETPORT, nfs.ask_port(program, 3))
                ports[program] = nfs.Reader(body).number()
    if not ports[nfs.NFS] or not ports[nfs.MOUNT[0]]:
        return Answer(VERSION, "no version 3")
    with Connection(mount.server, ports[nfs.NFS], timeout_s) as server:
        server.call(nfs.NFS, 3, nfs.NULL)
        if mount.security != SYS:
            return _only_a_mount(mount)
        with Connection(mount.server, ports[nfs.MOUNT[0]], timeout_s) as mounts:
            exports: list[str] = []
            with suppress(Refused):  # a server may keep its list to itself
                exports = nfs.parse_exports(mounts.call(*nfs.MOUNT, nfs.EXPORTS))
            path = nfs.text(mount.export.encode())
            status, handle = nfs.parse_mount(mounts.call(*nfs.MOUNT, nfs.MNT, path))
            if status != nfs.OK:
                found = _judge(mount, status, writable=False)
                listed = f"; it exports {', '.join(exports)}" if exports else ""
                return found._replace(evidence=found.evidence + listed)
            mounts.call(*nfs.MOUNT, nfs.UMNT, path)
        body = server.call(nfs.NFS, 3, nfs.ACCESS_3, nfs.ask_access_3(handle))
    access = nfs.parse_access_3(body)
    return _judge(mount, access.status, writable=access.writable)
