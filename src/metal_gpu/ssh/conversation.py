# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run a command of `sh`, as root if necessary, and talk with sudo.

The command line first prints a mark, then becomes root, then prints a second mark, and only then
gets its input. sudo asks for the password with a mark of its own. So a password goes to sudo where
sudo is called, and never into an argument or a log. A machine without `sh` prints no mark.
"""

from __future__ import annotations

import secrets
import shlex
import time
from typing import Protocol

from metal_gpu.ssh.settings import Answer

_BRIEFLY_S = 0.05  # while there is input to send
_STEP_S = 0.25  # otherwise; the end of a command has no event of its own
_AFTER_END_S = 1.0  # for a process that the command leaves behind, and that keeps its output open
_CHUNK = 32 * 1024
_MOST = 8 * 1024 * 1024  # bytes of output; no command of ours prints a tenth of it
_MOST_BEFORE = 1024 * 1024  # bytes that login shells and sudo print before it


class NotRoot(Exception):
    """The user cannot become root; the message has sudo's words."""


class TooSlow(Exception):
    """The command did not end in time; the message says what it waited for."""


class Pipe(Protocol):
    """A running command: a channel of SSH, or a process of this machine."""

    def send(self, data: bytes) -> int:
        """Send a part that does not block; return its length. Raises OSError if nobody reads."""

    def end_input(self) -> None: ...

    def receive(self) -> tuple[bytes, bytes]:
        """Return what was printed since the last time, without waiting."""

    def wait(self, timeout_s: float) -> None:
        """Wait until something is printed or the command ends."""

    def ended(self) -> bool:
        """Tell whether the command has ended; its output may be open still."""

    def closed(self) -> bool:
        """Tell whether nothing can be printed any more."""

    def exit_status(self) -> int | None: ...


class Conversation:
    """One command on one machine."""

    def __init__(self, command: str, *, root: bool, password: str | None) -> None:
        self._shell, self._prompt, self._ready = (  # none can be guessed from another one
            f"metal-gpu-{word}-{secrets.token_hex(8)}".encode()
            for word in ("shell", "password", "ready")
        )
        self._password = password if root else None
        self._asked = False
        ready = self._ready.decode()
        inner = f"echo {ready}; echo {ready} >&2; {command}"
        as_root = (
            f'if [ "$(id -u)" = 0 ]; then {inner}; else exec sudo -S '
            f"-p {self._prompt.decode()} -- sh -c {shlex.quote(inner)}; fi"
        )
        outer = f"echo {self._shell.decode()} >&2; {as_root if root else inner}"
        self.command_line = f"sh -c {shlex.quote(outer)}"

    def hold(self, pipe: Pipe, stdin: bytes, start_s: float, timeout_s: float) -> Answer:
        """Return the answer of the command. Raises NotRoot and TooSlow.

        `start_s` is how long the shell and sudo may take.
        """
        early, errors, is_ready = self._become_ready(pipe, time.monotonic() + start_s)
        if not is_ready:
            return Answer(pipe.exit_status(), early, errors)
        output, rest, printed = [early], [errors], 0
        left, deadline, ended_at = memoryview(stdin), time.monotonic() + timeout_s, None
        is_open = True
        while True:
            out, err = pipe.receive()
            output.append(out)
            rest.append(err)
            printed += len(out) + len(err)
            if printed > _MOST:
                raise TooSlow(f"the command prints without end: more than {_MOST // 2**20} MiB")
            if pipe.closed() and not out and not err:
                break
            if pipe.ended() and not out and not err:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() > ended_at + _AFTER_END_S:
                    break
            try:
                while left and (sent := pipe.send(bytes(left[:_CHUNK]))):
                    left = left[sent:]
                if not left and is_open:
                    is_open = False
                    pipe.end_input()
            except OSError:
                left, is_open = memoryview(b""), False  # the command ended without reading
            if time.monotonic() > deadline:
                raise TooSlow(f"no answer within {timeout_s:.0f} s")
            pipe.wait(_BRIEFLY_S if left else _STEP_S)
        # What a login shell prints before belongs to nobody.
        own = b"".join(output).partition(self._ready + b"\n")[2]
        return Answer(pipe.exit_status(), own, b"".join(rest))

    def _become_ready(self, pipe: Pipe, deadline: float) -> tuple[bytes, bytes, bool]:
        """Wait for the second mark. Return what was printed so far, and whether it came.

        The errors are those of the command itself. Without a mark, they are all.
        """
        output, heard = b"", b""
        while True:
            out, err = pipe.receive()
            output, heard = output + out, heard + err
            if len(output) + len(heard) > _MOST_BEFORE:
                raise TooSlow(f"the login shell prints without end{self._last(heard or output)}")
            before, ready, after = heard.partition(self._ready + b"\n")
            if ready:
                return output, after, True
            spoken = self._own_words(before)
            if self._prompt in spoken:
                self._answer(pipe, spoken)
            if pipe.closed() and not out and not err:
                break
            if time.monotonic() > deadline:
                what = "sudo did not finish" if self._shell in heard else "no shell answered"
                raise TooSlow(f"{what} in time{self._last(heard or output)}")
            pipe.wait(_STEP_S)
        if self._shell in heard and pipe.exit_status() is not None:
            raise NotRoot(self._last(heard).removeprefix(": ") or "sudo printed nothing")
        return output, heard, False

    def _own_words(self, heard: bytes) -> bytes:
        return heard.partition(self._shell + b"\n")[2]

    def _answer(self, pipe: Pipe, spoken: bytes) -> None:
        if spoken.count(self._prompt) > 1:
            raise NotRoot("sudo: the password is wrong")
        if self._password is None:
            raise NotRoot("sudo: a password is required")
        if not self._asked:
            self._asked = True
            pipe.send(self._password.encode() + b"\n")

    def _last(self, heard: bytes) -> str:
        """Return the last line without marks, as the end of a sentence."""
        for mark in (self._shell, self._prompt):
            heard = heard.replace(mark, b"")
        lines = heard.decode(errors="replace").strip().splitlines()
        return f": {lines[-1].strip()[:200]}" if lines else ""
