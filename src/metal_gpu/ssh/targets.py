# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How to reach a host: what it says itself, what the command says, and the configuration of ssh.

Source: ssh_config(5) of OpenSSH 9.2
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from metal_gpu.hosts import Host, refused_name
from metal_gpu.ssh import config, known_hosts
from metal_gpu.ssh.config import ConfigInvalid
from metal_gpu.ssh.settings import Settings

__all__ = ["ConfigInvalid", "Target", "resolve"]

_OWN = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_NOWHERE = ("none", "/dev/null")
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_TOKEN = re.compile(r"%(.)|\$\{(\w+)\}")


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
    known_as: tuple[str, ...]  # in known_hosts; a new key gets the first name
    known_hosts: tuple[Path, ...]
    new_keys: Path  # the file of known_hosts that gets new keys
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
    """Return how to reach a host. Raises ConfigInvalid, and OSError."""
    for name in (host.user, settings.user):
        if problem := refused_name(host.address, name or ""):
            raise ConfigInvalid(problem)
    found = config.ask(host.address, [*_options(host, settings)])
    first = {keyword: values[0] for keyword, values in found.items()}
    address, port, user = first["hostname"], int(first["port"]), first["user"]
    limit = first.get("connecttimeout", "none")
    named = host.key_file or settings.key_file
    keys = (named,) if named else found.get("identityfile", ())
    if keys == _keys_of_ssh():
        keys = ()
    alias = first.get("hostkeyalias", "")  # ssh adds no port to it (run with 9.2)
    tokens = _tokens(host.address, address, str(port), user, alias)
    jump = _filled(first.get("proxyjump", "none"), tokens)
    command = first.get("proxycommand", "none")
    own, shared = _known_hosts(first, settings)
    return Target(
        address=address,
        port=port,
        user=user,
        key_files=tuple(_path(key, tokens) for key in keys if key.lower() != "none"),
        default_keys=tuple(Path.home() / ".ssh" / name for name in _DEFAULT_KEYS),
        identities_only=first["identitiesonly"] == "yes",
        jumps=() if jump == "none" else tuple(map(str.strip, jump.split(","))),
        proxy_command=None if command == "none" else _filled(command, tokens),
        known_as=(alias,) if alias else known_hosts.names_of(address, port),
        known_hosts=(*own, *shared),
        new_keys=own[0],
        hash_known_hosts=first["hashknownhosts"] == "yes",
        timeout_s=settings.timeout_s if limit in ("none", "0") else float(limit),
    )


@lru_cache(maxsize=1)
def _keys_of_ssh() -> tuple[str, ...]:
    """Return the keys that ssh tries if none is named."""
    return config.ask("localhost", ["-F", "none"])["identityfile"]


def _options(host: Host, settings: Settings) -> Iterator[str]:
    """Yield the options of ssh. The first of a kind counts, so those of the host come first."""
    if file := host.config_file or settings.config_file:
        yield from ("-F", str(file))
    yield from _login(host.user, host.port, host.jump)
    for keyword, value in host.options.items():
        yield from ("-o", f"{keyword}={value}")
    yield from _login(settings.user, settings.port, settings.jump)


def _login(user: str | None, port: int | None, jump: str | None) -> Iterator[str]:
    yield from ("-l", user) if user else ()
    yield from ("-p", str(port)) if port else ()
    # -J would be an error beside another one.
    yield from ("-o", f"ProxyJump={jump}") if jump else ()


def _tokens(name: str, address: str, port: str, user: str, alias: str) -> dict[str, str]:
    """Return what ssh fills in for %h and the like. `alias` can be empty.

    Source: ssh_config(5) of OpenSSH 9.2, TOKENS. %C, a hash of others, is left out.
    """
    full = socket.gethostname()
    return {
        "%": "%",
        "d": str(Path.home()),
        "h": address,
        "i": str(os.getuid()),
        "k": alias or name,
        "L": full.partition(".")[0],
        "l": full,
        "n": name,
        "p": port,
        "r": user,
        "u": getpass.getuser(),
    }


def _filled(text: str, tokens: Mapping[str, str]) -> str:
    """Fill in the tokens and the variables of the environment that are known."""

    def value(found: re.Match[str]) -> str:
        known = tokens.get(found[1]) if found[1] else os.environ.get(found[2])
        return found[0] if known is None else known

    return _TOKEN.sub(value, text)


def _known_hosts(
    first: Mapping[str, str], settings: Settings
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the files of the user, and those of the machine.

    "UserKnownHostsFile /dev/null" is to disable the check, and so has no effect, see host_keys.
    """
    if settings.known_hosts:
        return (settings.known_hosts,), ()
    own = [one for one in _files(first["userknownhostsfile"]) if one not in _NOWHERE] or _OWN
    shared = [one for one in _files(first["globalknownhostsfile"]) if one not in _NOWHERE]
    return tuple(Path(one).expanduser() for one in own), tuple(map(Path, shared))


def _files(text: str) -> list[str]:
    """Return the names of a list. ssh prints no quotation marks: a name with a blank has them."""
    return re.split(r" (?=[/~])", text)


def _path(text: str, tokens: Mapping[str, str]) -> Path:
    unknown = [one for one in re.findall(r"%(.)", text) if one not in tokens]
    if unknown:
        raise ConfigInvalid(f"{text}: only ssh knows %{unknown[0]}")
    path = Path(_filled(text, tokens))
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigInvalid(f"{path}: there is no such user") from error
