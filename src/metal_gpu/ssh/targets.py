# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How to reach a host: what it says itself, what the command says, and ~/.ssh/config.

Source: ssh_config(5) of OpenSSH 9.2.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from metal_gpu.hosts import Host, refused_name
from metal_gpu.ssh import config_file, config_lines, known_hosts
from metal_gpu.ssh.config_file import Found, filled
from metal_gpu.ssh.config_lines import ConfigInvalid, Lines, Statement
from metal_gpu.ssh.settings import Settings

__all__ = ["ConfigInvalid", "Target", "resolve"]

_GLOBAL = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_OWN = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_NOWHERE = ("none", "/dev/null")
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_TIME = re.compile(r"(\d+)([smhdw]?)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


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
    """Return how to reach a host. Raises ConfigInvalid."""
    files = _files(host.config_file or settings.config_file)
    given = _given(host, settings)
    users = [one.words[0] for one in given if one.keyword == "user"]
    for address, user in ((host.address, user) for user in users or [""]):
        if problem := refused_name(address, user):
            raise ConfigInvalid(problem)
    found = config_file.look_up(host.address, files, given)
    port = _port(found)
    limit = _seconds(found) or settings.timeout_s
    named = host.key_file or settings.key_file
    keys = (named,) if named else found.identity_files
    address = found.address
    home = Path.home() / ".ssh"
    user = found.text("user") or getpass.getuser()
    alias = found.text("hostkeyalias")  # ssh adds no port to it (run with 9.2)
    tokens = config_file.tokens(host.address, address, str(port), user, alias)
    jump = filled(found.text("proxyjump"), tokens)
    command = found.text("proxycommand")
    own, shared = _known_hosts(found, settings, tokens)
    return Target(
        address=address,
        port=port,
        user=user,
        key_files=tuple(_path(key, tokens) for key in keys if key.lower() != "none"),
        default_keys=tuple(home / name for name in _DEFAULT_KEYS),
        identities_only=found.text("identitiesonly").lower() in ("yes", "true"),
        jumps=() if jump.lower() in ("", "none") else tuple(map(str.strip, jump.split(","))),
        proxy_command=None if command.lower() in ("", "none") else filled(command, tokens),
        known_as=(alias,) if alias else known_hosts.names_of(address, port),
        known_hosts=(*own, *shared),
        new_keys=own[0],
        hash_known_hosts=found.text("hashknownhosts").lower() in ("yes", "true"),
        timeout_s=limit,
    )


def _given(host: Host, settings: Settings) -> list[Statement]:
    """Return what the host and the command say, as options of ssh; the first ones count."""
    of_host = {"port": host.port, "user": host.user, "proxyjump": host.jump}
    of_all = {"port": settings.port, "user": settings.user, "proxyjump": settings.jump}
    place = "the options of ssh"
    options = [
        config_lines.statement(f"{key} {value}", place) for key, value in host.options.items()
    ]
    first, last = (
        [Statement(key, (str(value),), place) for key, value in one.items() if value]
        for one in (of_host, of_all)
    )
    return [*first, *options, *last]


def _port(found: Found) -> int:
    text = found.text("port") or "22"
    if not text.isdecimal() or not 0 < int(text) < 65536:
        place = found.place("port")
        raise ConfigInvalid(f"{place}: Port is {text!r}, expected a number from 1 to 65535")
    return int(text)


def _known_hosts(
    found: Found, settings: Settings, tokens: Mapping[str, str]
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the files of the user, and those of the machine.

    "UserKnownHostsFile /dev/null" is to disable the check, and so has no effect, see host_keys.
    """
    if settings.known_hosts:
        return (settings.known_hosts,), ()
    named = _file_names(found, "userknownhostsfile")
    own = [one for one in named if one.lower() not in _NOWHERE] or _OWN
    shared = _file_names(found, "globalknownhostsfile") or _GLOBAL
    return (
        tuple(_path(one, tokens) for one in own),
        tuple(_path(one, tokens) for one in shared if one.lower() != "none"),
    )


def _file_names(found: Found, keyword: str) -> tuple[str, ...]:
    names = found.words(keyword)
    if len(names) > 1 and "none" in map(str.lower, names):
        raise ConfigInvalid(f"{found.place(keyword)}: none must be the only value of {keyword}")
    return names


def _path(text: str, tokens: Mapping[str, str]) -> Path:
    unknown = [one for one in re.findall(r"%(.)", text) if one not in tokens]
    if unknown:
        raise ConfigInvalid(f"{text}: only ssh knows %{unknown[0]}")
    path = Path(filled(text, tokens))
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ConfigInvalid(f"{path}: there is no such user") from error


def _seconds(found: Found) -> float:
    """Return the ConnectTimeout, such as 90 or 1m30s; 0 for none."""
    text = found.text("connecttimeout")
    if text.lower() in ("", "none"):
        return 0.0
    parts = _TIME.findall(text)
    if "".join(map("".join, parts)) != text:
        place = found.place("connecttimeout")
        raise ConfigInvalid(
            f"{place}: ConnectTimeout: {text!r} is no time, expected a form such as 90 or 1m30s"
        )
    return float(sum(int(number) * _SECONDS[unit.lower()] for number, unit in parts))


def _files(named: str | Path | None) -> list[Lines]:
    """Return the content of the files. One that is named has to exist, and is the only one."""
    if named is not None:
        return [] if str(named).lower() == "none" else [_read(Path(named), is_user=True)]
    files = {Path.home() / ".ssh" / "config": True, config_file.SYSTEM: False}
    return [_read(one, is_user=is_user) for one, is_user in files.items() if os.path.exists(one)]


def _read(file: Path, *, is_user: bool) -> Lines:
    try:
        return config_lines.read(file, is_user=is_user)
    except OSError as error:
        named = error.filename or file
        raise ConfigInvalid(f"cannot read {named}: {error.strerror}") from error
