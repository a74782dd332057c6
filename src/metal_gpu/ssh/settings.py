# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What holds for all connections of a run, and what a command on a machine answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

RUN_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Settings:
    """How to connect. A value of a host has precedence over one of these."""

    user: str | None = None
    port: int | None = None
    key_file: str | None = None
    jump: str | None = None
    password: str | None = field(default=None, repr=False)
    become_password: str | None = field(default=None, repr=False)
    accept_new_host_keys: bool = False  # the permission to write known_hosts
    timeout_s: float = 10.0  # for each of: connection, banner, key exchange, login
    config_file: Path | None = None  # None: ~/.ssh/config
    known_hosts: Path | None = None  # None: what ~/.ssh/config says, else ~/.ssh/known_hosts
    use_agent: bool = True


class Answer(NamedTuple):
    """What a command on a machine answered."""

    rc: int | None  # None: the connection was cut, or a signal ended the command
    stdout: bytes
    stderr: bytes


class Unreachable(Exception):
    """The machine could not be asked. The finding has the reason and the remedy."""

    def __init__(self, finding: dict[str, str]) -> None:
        super().__init__(finding["message"])
        self.finding = finding


class Session(Protocol):
    """A machine that can run commands. Leaving the context ends the connection."""

    def run(
        self,
        command: str,
        stdin: bytes = b"",
        timeout_s: float = RUN_TIMEOUT_S,
        sudo: bool = True,
    ) -> Answer:
        """Run a command of the shell `sh`.

        With `sudo`, it runs as root, unless the host has `become=False`. Raises Unreachable if the
        user cannot become root, if the connection breaks, or after the timeout.
        """

    def __enter__(self) -> Session: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
