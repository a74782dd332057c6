# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""SSH connections by paramiko: to a machine, and to the jump hosts on the way."""

from __future__ import annotations

import gc
import itertools
import logging
import select
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import paramiko
from paramiko.packet import Packetizer

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.secrets import redact
from metal_gpu.hosts import Host
from metal_gpu.ssh import host_keys, jumps, known_hosts, login
from metal_gpu.ssh.conversation import Pipe
from metal_gpu.ssh.sessions import KEPT_BACK, CommandSession, is_full, unreachable
from metal_gpu.ssh.settings import Settings, Unreachable
from metal_gpu.ssh.targets import ConfigInvalid, Target, resolve

_DEEPEST = 8  # jump hosts behind each other
_CHUNK = 64 * 1024
_PACKET = 256 * 1024  # bytes. Source: OpenSSH 9.2, packet.c, PACKET_MAX_SIZE
# The parts of a connection refer to each other, 30 KiB of them. Python looks for such parts only
# after its objects have become a quarter more, so that those of hundreds of machines would stay.
_KEPT = 32
_closed = itertools.count(1)
# Its warnings would go to standard error. The exceptions say the same.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

Way = Sequence[tuple[Host, Target]]
Stream = socket.socket | paramiko.Channel | paramiko.ProxyCommand


def connect(host: Host, settings: Settings) -> RemoteSession:
    """Log in to a machine. Raises Unreachable."""
    with _explained(host):
        transport, hop, is_proven = _reach(host, resolve(host, settings), settings)
    return RemoteSession(host, settings, transport, hop, is_proven=is_proven)


@contextmanager
def _explained(host: Host) -> Iterator[None]:
    """Turn whatever can go wrong into the finding about it."""
    try:
        yield
    except ConfigInvalid as error:
        raise unreachable(host, f"the configuration of ssh cannot be used: {error}") from error
    except socket.gaierror as error:
        words = error.strerror or error
        raise unreachable(host, f"the name cannot be resolved: {words}") from error
    except UnicodeError as error:  # such as a label with more than 63 characters
        raise unreachable(host, f"the name cannot be resolved: {error}") from error
    except TimeoutError as error:
        raise unreachable(host, str(error) or "no answer in time") from error
    except paramiko.ChannelException as error:
        raise unreachable(host, f"the jump host cannot connect to it: {error.text}") from error
    except EOFError as error:
        raise unreachable(host, "the machine closed the connection") from error
    except (paramiko.SSHException, OSError) as error:
        raise unreachable(host, error if is_full(error) else _words(error)) from error


def _words(error: Exception) -> str:
    """Return what paramiko or the kernel says, without the parts that only programmers need."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = str(error) or type(error).__name__
    if any(one in text for one in ("protocol banner", "protocol version", "Incompatible version")):
        return f"what answers there does not speak SSH: {text}"
    return text


def _reach(
    host: Host, target: Target, settings: Settings, way: Way = ()
) -> tuple[paramiko.Transport, jumps.Hop | None, bool]:
    """Return a connection that is logged in, its hop, and whether passwords may go there.

    `way` has the jump hosts, if known.
    """
    hop = None
    if target.jumps:
        spec = ",".join(target.jumps)
        own = _of_jump_host(host, settings)
        try:
            hop = jumps.enter(spec, own, lambda: _open_hop(host, target.jumps, own, way))
        except Unreachable as error:
            raise Unreachable(_about(error.finding, _jump_host(host, target.jumps))) from error
    try:
        transport, is_proven = _negotiate(host, target, settings, _stream(target, hop))
        return transport, hop, is_proven
    except BaseException:
        if hop:
            jumps.leave(hop)
        raise


def _about(found: dict[str, str], jump: Host) -> dict[str, str]:
    """Return a finding about a jump host, which another machine behind it has met first."""
    words = found["message"].removeprefix(found["host"])
    is_named = words != found["message"]
    return {**found, "host": jump.name, "message": f"{jump.name}{words}" if is_named else words}


def _open_hop(
    host: Host, specs: tuple[str, ...], settings: Settings, way: Way
) -> tuple[paramiko.Transport, jumps.Hop | None]:
    """Connect to the last of several jump hosts."""
    (jump, target), *before = way or _way(host, specs, settings)
    with _explained(jump):
        return _reach(jump, target, settings, before)[:2]


def _way(host: Host, specs: tuple[str, ...], settings: Settings) -> Way:
    """Return the jump hosts of a machine, the last one first, and how to reach each.

    Raises ConfigInvalid before a jump host waits for a connection that needs itself.
    """
    passed: list[tuple[str, ...]] = []
    way: list[tuple[Host, Target]] = []
    while specs:
        if specs in passed:
            raise ConfigInvalid(f"ProxyJump: the way to {specs[-1]} leads through {specs[-1]}")
        passed.append(specs)
        if len(passed) > _DEEPEST:
            raise ConfigInvalid(f"ProxyJump: more than {_DEEPEST} jump hosts behind each other")
        host = _jump_host(host, specs)
        target = resolve(host, settings)
        way.append((host, target))
        specs = target.jumps
    return way


def _jump_host(host: Host, specs: tuple[str, ...]) -> Host:
    """Return the last of several jump hosts. The others come before it."""
    *before, last = specs
    try:
        parsed = Host.parse(last.removeprefix("ssh://"))
    except ValueError as error:
        raise ConfigInvalid(f"ProxyJump: {error}") from error
    # The port and the user of the machine behind it are not those of the jump host.
    return Host(
        f"{host.name}, jump host {parsed.name}",
        parsed.address,
        parsed.port,
        parsed.user,
        jump=",".join(before) or None,
        options={k: v for k, v in host.options.items() if k in ("userknownhostsfile",)},
    )


def _of_jump_host(host: Host, settings: Settings) -> Settings:
    """Return the settings that hold for the jump host of a machine as well, as for `ssh -J`."""
    file = Path(host.config_file) if host.config_file else settings.config_file
    return replace(settings, user=None, port=None, jump=None, config_file=file)


def _stream(target: Target, hop: jumps.Hop | None) -> Stream:
    if hop:
        place = (target.address, target.port)
        opened = hop.transport.open_channel(
            "direct-tcpip", place, ("127.0.0.1", 0), timeout=target.timeout_s
        )
        return opened
    if target.proxy_command:
        return paramiko.ProxyCommand(_in_shell(target.proxy_command))
    try:
        return socket.create_connection((target.address, target.port), target.timeout_s)
    except TimeoutError as error:
        where = f"{target.address} port {target.port}"
        raise TimeoutError(f"{where} does not answer within {target.timeout_s:.0f} s") from error
    except OSError as error:
        if error.strerror and not isinstance(error, socket.gaierror):
            where = f"{target.address} port {target.port}"
            raise OSError(error.errno, f"{where}: {error.strerror}") from error
        raise


def _in_shell(command: str) -> str:
    """Return a ProxyCommand as ssh starts it: by a shell, which the command replaces."""
    line = command if command.startswith("exec ") else f"exec {command}"
    return shlex.join(["sh", "-c", line])


def _negotiate(
    host: Host, target: Target, settings: Settings, stream: Stream
) -> tuple[paramiko.Transport, bool]:
    is_proven = False
    try:
        transport = paramiko.Transport(cast(socket.socket, stream), packetizer_class=_Packets)
    except BaseException:
        stream.close()
        raise
    try:
        transport.banner_timeout = target.timeout_s
        transport.handshake_timeout = target.timeout_s
        # Someone may have to touch a key, or PAM waits for a directory service.
        transport.auth_timeout = max(30.0, target.timeout_s)
        known = host_keys.known(target)
        host_keys.prefer(transport, known)
        _leave_out_old(transport.get_security_options())
        transport.start_client(timeout=target.timeout_s * 2)
        key = transport.get_remote_server_key()
        is_proven = host_keys.check(host, target, settings, known, key)
        password = (host.password or settings.password) if is_proven else None
        login.log_in(transport, target, password, use_agent=settings.use_agent)
    except login.LoginRefused as error:
        transport.close()
        refused = finding(
            "LOGIN_REFUSED",
            host.name,
            user=target.user,
            machine=target.place,
            login=target.login,
            error=redact(f"{error}{'' if is_proven or not settings.password else KEPT_BACK}"),
        )
        raise Unreachable(refused) from error
    except BaseException:
        transport.close()
        raise
    return transport, is_proven


class _Packets(Packetizer):
    """Packets of a size that OpenSSH takes. paramiko would take each of up to 4 GiB."""

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        if n > _PACKET:
            raise paramiko.SSHException(f"a packet of {n} bytes, which no SSH server sends")
        return super().read_all(n, check_rekey)


def _leave_out_old(options: paramiko.transport.SecurityOptions) -> None:
    """Offer no algorithm that OpenSSH offers to nobody by default."""
    options.ciphers = [one for one in options.ciphers if not one.endswith("-cbc")]
    options.digests = [one for one in options.digests if not one.endswith(("-md5", "-96"))]
    options.kex = [one for one in options.kex if not one.endswith("-sha1")]


class _ChannelPipe:
    """A command on a channel as a Pipe."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self.channel = channel
        self._poll = select.poll()  # select() cannot wait for the files of hundreds of machines
        self._poll.register(channel.fileno(), select.POLLIN)

    def send(self, data: bytes) -> int:
        return self.channel.send(data) if self.channel.send_ready() else 0

    def end_input(self) -> None:
        self.channel.shutdown_write()

    def receive(self) -> tuple[bytes, bytes]:
        out = self.channel.recv(_CHUNK) if self.channel.recv_ready() else b""
        ready = self.channel.recv_stderr_ready()
        return out, self.channel.recv_stderr(_CHUNK) if ready else b""

    def wait(self, timeout_s: float) -> None:
        if self.channel.eof_received:  # the file is readable from now on
            self.channel.status_event.wait(timeout_s)
        else:
            self._poll.poll(timeout_s * 1000)

    def ended(self) -> bool:
        return bool(self.channel.exit_status_ready())

    def closed(self) -> bool:
        channel = self.channel
        is_over = bool(channel.closed or (channel.eof_received and channel.exit_status_ready()))
        return is_over and not channel.recv_ready() and not channel.recv_stderr_ready()

    def exit_status(self) -> int | None:
        status = self.channel.exit_status
        return status if self.channel.exit_status_ready() and status >= 0 else None


class RemoteSession(CommandSession):
    """A machine behind SSH."""

    def __init__(
        self,
        host: Host,
        settings: Settings,
        transport: paramiko.Transport,
        hop: jumps.Hop | None = None,
        *,
        is_proven: bool = True,
    ) -> None:
        super().__init__(host, settings, is_proven=is_proven)
        self._transport = transport
        self._hop = hop
        self.host_key = known_hosts.fingerprint(transport.get_remote_server_key().asbytes())

    def start(self, command_line: str) -> Pipe:
        with _explained(self.host):
            channel = self._transport.open_session(timeout=self._settings.timeout_s)
            try:
                channel.settimeout(self._settings.timeout_s)
                channel.exec_command(command_line)
            except BaseException:
                channel.close()
                raise
            return _ChannelPipe(channel)

    def stop(self, pipe: Pipe) -> None:
        with suppress(OSError, EOFError):
            cast(_ChannelPipe, pipe).channel.close()

    def close(self) -> None:
        self._transport.close()
        if self._hop:
            jumps.leave(self._hop)
            self._hop = None
        if next(_closed) % _KEPT == 0:
            gc.collect()
