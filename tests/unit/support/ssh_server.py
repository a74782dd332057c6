# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""An SSH server on a loopback port that runs real commands on this machine.

It stands in for sshd where a test needs what an sshd of the machine does not have: accounts with
passwords, another shell, a connection that is cut. The scenario `command` has the real one.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

_REPLY_S = 0.02


@dataclass
class Machine:
    """What is behind the port."""

    keys: Sequence[paramiko.PKey] = ()  # that may log in
    password: str | None = None
    keyboard: bool = False  # the password is asked for by keyboard-interactive only
    shell: Sequence[str] = ("sh", "-c")  # what runs commands
    environment: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None  # bytes of output, then the connection ends
    runs_commands: bool = True
    host_keys: Sequence[paramiko.PKey] = ()
    logins: list[str] = field(default_factory=list)  # how somebody logged in
    commands: list[str] = field(default_factory=list)
    forwarded: list[tuple[str, int]] = field(default_factory=list)
    connections: int = 0


class _Interface(paramiko.ServerInterface):
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.started: dict[int, str] = {}
        self.destinations: dict[int, tuple[str, int]] = {}

    def get_allowed_auths(self, username):
        ways = ["publickey"] if self.machine.keys else []
        if self.machine.password is not None:
            ways.append("keyboard-interactive" if self.machine.keyboard else "password")
        return ",".join(ways)

    def _answer(self, is_right, way):
        if is_right:
            self.machine.logins.append(way)
        return paramiko.AUTH_SUCCESSFUL if is_right else paramiko.AUTH_FAILED

    def check_auth_publickey(self, username, key):
        return self._answer(key in self.machine.keys, f"{username} with a key")

    def check_auth_password(self, username, password):
        is_right = password == self.machine.password and not self.machine.keyboard
        return self._answer(is_right, f"{username} with the password")

    def check_auth_interactive(self, username, submethods):
        if not self.machine.keyboard:
            return paramiko.AUTH_FAILED
        return paramiko.InteractiveQuery("", "", ("Password: ", False))

    def check_auth_interactive_response(self, responses):
        return self._answer(list(responses) == [self.machine.password], "by the keyboard")

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(self, chanid, origin, destination):
        self.destinations[chanid] = destination
        self.machine.forwarded.append(destination)
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        if not self.machine.runs_commands:
            return False
        self.machine.commands.append(command.decode())
        # paramiko sends its reply when this function returns, and says so nowhere.
        threading.Timer(_REPLY_S, self._run, (channel, command)).start()
        return True

    def _run(self, channel, command):
        process = subprocess.Popen(
            [*self.machine.shell, command.decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self.machine.environment},
            bufsize=0,
        )
        left = [self.machine.cut_after]

        def forward(stream, send):
            while data := stream.read(4096):
                if left[0] is not None:
                    left[0] -= len(data)
                    if left[0] < 0:
                        channel.get_transport().close()
                        return
                with suppress(OSError):
                    send(data)

        threads = [
            threading.Thread(target=forward, args=(process.stdout, channel.sendall), daemon=True),
            threading.Thread(
                target=forward, args=(process.stderr, channel.sendall_stderr), daemon=True
            ),
            threading.Thread(target=_feed, args=(channel, process), daemon=True),
        ]
        for thread in threads:
            thread.start()
        status = process.wait()
        for thread in threads[:2]:
            thread.join()
        with suppress(OSError, EOFError):
            channel.send_exit_status(status)
            channel.close()


def _feed(channel, process):
    with suppress(OSError):
        while data := channel.recv(32768):
            process.stdin.write(data)
    with suppress(OSError):
        process.stdin.close()


class Server:
    """A machine that listens. Use it as a context."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self._socket.getsockname()[1]
        self._transports: list[paramiko.Transport] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        for transport in self._transports:
            transport.close()

    def stop(self) -> None:
        """Answer no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()

    @property
    def place(self) -> str:
        return f"[127.0.0.1]:{self.port}"

    def _listen(self) -> None:
        while True:
            try:
                client, _address = self._socket.accept()
            except OSError:
                return
            self.machine.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        transport = paramiko.Transport(client)
        self._transports.append(transport)
        for key in self.machine.host_keys:
            transport.add_server_key(key)
        interface = _Interface(self.machine)
        with suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(server=interface)
        while transport.is_active():
            channel = transport.accept(timeout=1)
            if channel is not None and channel.get_id() in interface.destinations:
                destination = interface.destinations[channel.get_id()]
                threading.Thread(target=_tunnel, args=(channel, destination), daemon=True).start()


def _tunnel(channel: paramiko.Channel, destination: tuple[str, int]) -> None:
    try:
        other = socket.create_connection(destination, 5)
    except OSError:
        channel.close()
        return

    def pump(source, target):
        with suppress(OSError):
            while data := source.recv(32768):
                target.sendall(data)
        for end in (channel, other):
            with suppress(OSError):
                end.close()

    threading.Thread(target=pump, args=(channel, other), daemon=True).start()
    pump(other, channel)


def new_key(path: Path, passphrase: str | None = None) -> paramiko.PKey:
    """Write a key pair as ssh-keygen does, and return it."""
    private = ed25519.Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.OpenSSH
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase.encode())
    path.write_bytes(private.private_bytes(serialization.Encoding.PEM, form, encryption))
    path.chmod(0o600)
    key = paramiko.PKey.from_path(path, passphrase and passphrase.encode())
    line = f"{key.get_name()} {base64.b64encode(key.asbytes()).decode()} test\n"
    path.with_name(f"{path.name}.pub").write_text(line)
    return key


def plant_sudo(folder: Path, password: str | None) -> dict[str, str]:
    """Write an `id` of a user who is not root and a `sudo`; return the environment with both.

    The sudo asks for the password as sudo -S does: the prompt goes to the errors, and one line is
    read from the input. None: it asks for none.
    """
    folder.mkdir(exist_ok=True)
    asking = f"""
printf '%s' "$prompt" >&2; IFS= read -r given
if [ "$given" != {password!r} ]; then
  echo 'Sorry, try again.' >&2; printf '%s' "$prompt" >&2; IFS= read -r given
  echo 'sudo: 1 incorrect password attempt' >&2; exit 1
fi"""
    texts = {
        "id": "echo 1000",
        "sudo": f"""[ "$1" = -S ] && [ "$2" = -p ] && [ "$4" = -- ] || exit 64
prompt=$3; shift 4; {asking if password is not None else ""}
exec "$@\"""",
    }
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}
