# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Commands on this machine, without SSH."""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
from contextlib import suppress
from typing import cast

from metal_gpu.ssh.conversation import Pipe
from metal_gpu.ssh.sessions import CommandSession, unreachable

_CHUNK = 64 * 1024
_running: set[_Process] = set()


@atexit.register
def _stop_all() -> None:
    """End what runs if the program is interrupted."""
    for process in tuple(_running):
        process.stop()


class _Process:
    """A process as a Pipe."""

    def __init__(self, command_line: str) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", command_line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # so that sudo asks here, and not at the terminal
        )
        streams = [self.process.stdin, self.process.stdout, self.process.stderr]
        self._in, self._out, self._err = (one.fileno() for one in streams if one is not None)
        self._open = {self._out, self._err}
        _running.add(self)
        for stream in (self._in, self._out, self._err):
            os.set_blocking(stream, False)

    def send(self, data: bytes) -> int:
        try:
            return os.write(self._in, data)
        except BlockingIOError:
            return 0

    def end_input(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()

    def receive(self) -> tuple[bytes, bytes]:
        return self._read(self._out), self._read(self._err)

    def _read(self, stream: int) -> bytes:
        if stream not in self._open:
            return b""
        try:
            data = os.read(stream, _CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            self._open.discard(stream)
        return data

    def wait(self, timeout_s: float) -> None:
        if self._open:
            poll = select.poll()  # select() cannot wait for a file beyond the 1024th
            for stream in self._open:
                poll.register(stream, select.POLLIN)
            poll.poll(timeout_s * 1000)
        else:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def closed(self) -> bool:
        return not self._open and self.ended()

    def exit_status(self) -> int | None:
        rc = self.process.poll()
        return rc if rc is not None and rc >= 0 else None

    def stop(self) -> None:
        _running.discard(self)
        if self.process.poll() is None:
            # Programs of sudo belong to root, who ends them when sudo ends.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGTERM)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                with suppress(OSError):
                    stream.close()


class LocalSession(CommandSession):
    """This machine."""

    def start(self, command_line: str) -> Pipe:
        try:
            return _Process(command_line)
        except OSError as error:
            raise unreachable(self.host, error) from error

    def stop(self, pipe: Pipe) -> None:
        cast(_Process, pipe).stop()

    def close(self) -> None:
        """Nothing is open."""
