# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How to reach a host: what it says itself, what the command says, and ~/.ssh/config.

Source: ssh_config(5) of OpenSSH 9.2.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from metal_gpu.hosts import Host
from metal_gpu.ssh import config_file
from metal_gpu.ssh.settings import Settings

_GLOBAL = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_TOKEN = re.compile(r"%(.)|\$\{(\w+)\}")
_TIME = re.compile(r"(\d+)([smhdw]?)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


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
        limit = _seconds(_text(found.get("connecttimeout"))) or settings.timeout_s
    except ValueError as error:
        raise ConfigInvalid(f"Port or ConnectTimeout of {host.address}: {error}") from error
    if not 0 < port < 65536:
        raise ConfigInvalid(f"Port of {host.address}: {port}, expected a number up to 65535")
    named = host.key_file or settings.key_file
    keys = [named] if named else _list(found.get("identityfile"))
    address = _text(found.get("hostname")) or host.address
    jump = host.jump or settings.jump or _text(found.get("proxyjump"))
    command = "" if jump else _text(found.get("proxycommand"))
    home = Path.home() / ".ssh"
    user = host.user or settings.user or _text(found.get("user")) or getpass.getuser()
    tokens = {"h": address, "n": host.address, "p": str(port), "r": user}
    tokens |= {"d": str(Path.home()), "u": getpass.getuser(), "%": "%"}
    return Target(
        address=address,
        port=port,
        user=user,
        key_files=tuple(_path(key, tokens) for key in keys if key.lower() != "none"),
        default_keys=tuple(home / name for name in _DEFAULT_KEYS),
        identities_only=_text(found.get("identitiesonly")).lower() in ("yes", "true"),
        jumps=() if jump.lower() in ("", "none") else tuple(map(str.strip, jump.split(","))),
        proxy_command=None if command.lower() in ("", "none") else _filled(command, tokens),
        known_as=_text(found.get("hostkeyalias")) or address,
        known_hosts=_known_hosts(found, settings, tokens),
        hash_known_hosts=_text(found.get("hashknownhosts")).lower() in ("yes", "true"),
        timeout_s=limit,
    )


def _known_hosts(
    found: Mapping[str, object], settings: Settings, tokens: Mapping[str, str]
) -> tuple[Path, ...]:
    if settings.known_hosts:
        return (settings.known_hosts,)
    home = Path.home() / ".ssh"
    try:
        own, shared = (
            [_path(one, tokens) for one in shlex.split(_text(found.get(keyword)))]
            for keyword in ("userknownhostsfile", "globalknownhostsfile")
        )
    except ValueError as error:
        raise ConfigInvalid(f"UserKnownHostsFile or GlobalKnownHostsFile: {error}") from error
    return (*(own or (home / "known_hosts", home / "known_hosts2")), *(shared or _GLOBAL))


def _path(text: str, tokens: Mapping[str, str]) -> Path:
    path = Path(_filled(text, tokens))
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigInvalid(f"{path}: there is no such user") from error


def _filled(text: str, tokens: Mapping[str, str]) -> str:
    """Fill in the tokens and the variables of the environment that are known."""

    def value(found: re.Match[str]) -> str:
        known = tokens.get(found[1]) if found[1] else os.environ.get(found[2])
        return found[0] if known is None else known

    return _TOKEN.sub(value, text)


def _seconds(text: str) -> float:
    """Return a time such as 90 or 1m30s; 0 for none. Raises ValueError."""
    if text.lower() in ("", "none"):
        return 0.0
    parts = _TIME.findall(text)
    if "".join(map("".join, parts)) != text:
        raise ValueError(f"{text!r} is no time, expected a form such as 90 or 1m30s")
    return float(sum(int(number) * _SECONDS[unit.lower()] for number, unit in parts))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _list(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [*map(str, value)] if isinstance(value, list) else []


def _look_up(name: str, file: Path | None) -> dict[str, object]:
    """Return what the configuration says about a name, with keywords in lower case."""
    files = (file,) if file else (Path.home() / ".ssh" / "config", config_file.SYSTEM)
    found: dict[str, object] = {}
    for place in files:
        try:
            status = place.stat()
        except OSError as error:
            if file:
                raise ConfigInvalid(f"cannot read {place}: {error.strerror}") from error
            continue
        try:
            looked_up = config_file.look_up(place, status.st_mtime_ns, name)
        except OSError as error:
            named = error.filename or place
            raise ConfigInvalid(f"cannot read {named}: {error.strerror}") from error
        except Exception as error:  # of its parser
            raise ConfigInvalid(f"{place}, about {name}: {error}") from error
        keys = [*_list(found.get("identityfile")), *_list(looked_up.get("identityfile"))]
        # The address of a later file is only the name itself, unless it has one.
        found = {**looked_up, **found} if found.get("hostname") != name else found | looked_up
        if keys:
            found["identityfile"] = [*dict.fromkeys(keys)]
    return found
