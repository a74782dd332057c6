# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How to reach a host: what it says itself, what the command says, and ~/.ssh/config.

Source: ssh_config(5) of OpenSSH 9.2.
"""

from __future__ import annotations

import getpass
import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import paramiko

from metal_gpu.hosts import Host
from metal_gpu.ssh.settings import Settings

_SYSTEM = Path("/etc/ssh/ssh_config")
_GLOBAL = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_DEEPEST = 8  # files that include each other
_KEYWORD = re.compile(r"(?P<keyword>[^\s=]+)(?:\s*=\s*|\s+)(?P<rest>.*)")
_FINAL = re.compile(r"final\b\s*(?P<rest>.*)", re.IGNORECASE)


class ConfigInvalid(Exception):
    """The configuration of ssh cannot be used; the message says why."""


class Target(NamedTuple):
    """Everything that a connection needs to know."""

    address: str
    port: int
    user: str
    key_files: tuple[Path, ...]  # named ones
    default_keys: tuple[Path, ...]  # tried if no key is named
    identities_only: bool
    jumps: tuple[str, ...]  # the first is the one to connect to
    proxy_command: str | None
    known_as: str  # in known_hosts
    known_hosts: tuple[Path, ...]  # a new key goes into the first
    hash_known_hosts: bool
    timeout_s: float

    @property
    def place(self) -> str:
        """How messages name the machine."""
        return self.address if self.port == 22 else f"[{self.address}]:{self.port}"

    @property
    def login(self) -> str:
        """The arguments of `ssh` for it."""
        port = "" if self.port == 22 else f"-p {self.port} "
        return f"{port}{self.user}@{self.address}"


def resolve(host: Host, settings: Settings) -> Target:
    """Return how to reach a host. Raises ConfigInvalid."""
    found = {**_look_up(host.address, settings.config_file), **host.options}
    try:
        port = host.port or settings.port or int(_text(found.get("port")) or 22)
        limit = float(_text(found.get("connecttimeout")) or settings.timeout_s)
    except ValueError as error:
        raise ConfigInvalid(f"Port or ConnectTimeout of {host.address}: {error}") from error
    named = host.key_file or settings.key_file
    keys = [named] if named else _list(found.get("identityfile"))
    address = _text(found.get("hostname")) or host.address
    jump = host.jump or settings.jump or _text(found.get("proxyjump"))
    command = None if jump else _text(found.get("proxycommand"))
    home = Path.home() / ".ssh"
    return Target(
        address=address,
        port=port,
        user=host.user or settings.user or _text(found.get("user")) or getpass.getuser(),
        key_files=tuple(Path(key).expanduser() for key in keys if key.lower() != "none"),
        default_keys=tuple(home / name for name in _DEFAULT_KEYS),
        identities_only=_text(found.get("identitiesonly")).lower() == "yes",
        jumps=() if jump.lower() in ("", "none") else tuple(map(str.strip, jump.split(","))),
        proxy_command=None if not command or command.lower() == "none" else command,
        known_as=_text(found.get("hostkeyalias")) or address,
        known_hosts=_known_hosts(_text(found.get("userknownhostsfile")), settings),
        hash_known_hosts=_text(found.get("hashknownhosts")).lower() == "yes",
        timeout_s=limit,
    )


def _known_hosts(named: str, settings: Settings) -> tuple[Path, ...]:
    if settings.known_hosts:
        return (settings.known_hosts,)
    home = Path.home() / ".ssh"
    files = [Path(one).expanduser() for one in shlex.split(named)]
    return (*(files or (home / "known_hosts", home / "known_hosts2")), *_GLOBAL)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [*map(str, value)] if isinstance(value, list) else []


def _look_up(name: str, file: Path | None) -> dict[str, object]:
    """Return what the configuration says about a name, with keywords in lower case."""
    files = (file,) if file else (Path.home() / ".ssh" / "config", _SYSTEM)
    found: dict[str, object] = {}
    for place in files:
        try:
            status = place.stat()
        except OSError as error:
            if file:
                raise ConfigInvalid(f"cannot read {place}: {error.strerror}") from error
            continue
        config = _parse(place, status.st_mtime_ns)
        try:
            looked_up = dict(config.lookup(name))
        except Exception as error:  # such as a canonical name that does not exist
            raise ConfigInvalid(f"{place}, about {name}: {error}") from error
        keys = [*_list(found.get("identityfile")), *_list(looked_up.get("identityfile"))]
        # The address of a later file is only the name itself, unless it has one.
        found = {**looked_up, **found} if found.get("hostname") != name else found | looked_up
        if keys:
            found["identityfile"] = [*dict.fromkeys(keys)]
    return found


@lru_cache(maxsize=8)
def _parse(file: Path, _modified: int) -> paramiko.SSHConfig:
    try:
        return paramiko.SSHConfig.from_text("\n".join(_ordered(_lines(file, "Host *", 0))))
    except OSError as error:
        raise ConfigInvalid(f"cannot read {error.filename or file}: {error.strerror}") from error
    except Exception as error:  # of its parser, or text that is not UTF-8
        raise ConfigInvalid(f"{file}: {error}") from error


def _ordered(lines: Iterable[str]) -> list[str]:
    """Return the lines with the blocks of `Match final` at the end, for all that they match.

    paramiko does not know them, and Red Hat's /etc/ssh/ssh_config.d has one. ssh reads them after
    everything else, and a value that is there stays.
    """
    first: list[str] = []
    last: list[str] = []
    block = first
    for line in lines:
        keyword, rest = _words(line)
        if keyword in ("host", "match"):
            final = _FINAL.fullmatch(rest) if keyword == "match" else None
            block = last if final else first
            line = f"Match {final['rest'] or 'all'}" if final else line
        block.append(line)
    return first + last


def _words(line: str) -> tuple[str, str]:
    """Return the keyword of a line in lower case, and what follows. Blanks can be tabs."""
    match = _KEYWORD.fullmatch(line.strip())
    return (match["keyword"].lower(), match["rest"]) if match else ("", "")


def _lines(file: Path, block: str, depth: int) -> Iterator[str]:
    """Yield the lines with those of included files. paramiko does not know Include.

    The hosts of a file end with it, so the block around an Include goes on behind it.
    """
    for line in file.read_text("utf-8").splitlines():
        keyword, rest = _words(line)
        if keyword in ("host", "match"):
            block = line
        if keyword != "include" or depth >= _DEEPEST:
            yield line
            continue
        for pattern in shlex.split(rest):
            base = Path.home() / ".ssh" if file.parent != _SYSTEM.parent else file.parent
            for path in sorted(glob.glob(os.path.join(base, os.path.expanduser(pattern)))):
                yield from _lines(Path(path), block, depth + 1)
                yield block
