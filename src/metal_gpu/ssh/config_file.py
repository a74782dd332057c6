# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ~/.ssh/config and /etc/ssh/ssh_config say about a host, as ssh reads them.

The first value of a keyword counts. A block whose `Match` has a criterion that is not known here
is neither used nor left out: the configuration cannot be used if the block has a value that counts.

Source: ssh_config(5) of OpenSSH 9.2 and 10; readconf.c and ssh.c, for the second reading
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from metal_gpu.ssh import local_networks
from metal_gpu.ssh.config_lines import ConfigInvalid, Include, Lines, Statement
from metal_gpu.targets import is_address

SYSTEM = Path("/etc/ssh/ssh_config")
_ONE = (
    *("hostname", "user", "port", "proxyjump", "proxycommand", "hostkeyalias", "identitiesonly"),
    *("hashknownhosts", "connecttimeout", "canonicalizehostname", "canonicalizemaxdots", "tag"),
)
_SEVERAL = ("userknownhostsfile", "globalknownhostsfile", "canonicaldomains")
_EACH = "identityfile"  # every one counts
_KEYWORDS = (*_ONE, *_SEVERAL, _EACH)
_WAYS = ("proxyjump", "proxycommand")  # the first of both counts
_TOKEN = re.compile(r"%(.)|\$\{(\w+)\}")
_EXEC_S = 10.0


class Found(NamedTuple):
    """The settings of a host."""

    address: str
    settings: Mapping[str, Statement]  # by keyword
    identity_files: tuple[str, ...]

    def text(self, keyword: str) -> str:
        one = self.settings.get(keyword)
        return one.words[0] if one else ""

    def words(self, keyword: str) -> tuple[str, ...]:
        one = self.settings.get(keyword)
        return one.words if one else ()

    def place(self, keyword: str) -> str:
        return self.settings[keyword].place


class _Block(NamedTuple):
    """Whether the lines of a block count."""

    counts: bool
    doubt: str = ""  # why that is not known


def look_up(name: str, files: Sequence[Lines], given: Sequence[Statement]) -> Found:
    """Return what the files say about a name; what is given comes first. Raises ConfigInvalid."""
    lookup = _Lookup(name)
    for one in given:
        lookup.take(one, _Block(True))
    return lookup.run(files)


class _Lookup:
    """One host, while the files are read from top to bottom."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._host = name  # with the name of the first reading in the second one
        self._is_final = False
        self._wants_final = False
        self._settings: dict[str, Statement] = {}
        self._keys: dict[str, None] = {}

    def run(self, files: Sequence[Lines]) -> Found:
        self._read_all(files)
        self._host = self._target()
        if not is_address(self._host):
            self._host = self._host.lower()
        if self._text("canonicalizehostname", "no").lower() not in ("no", "false"):
            self._wants_final = True
            self._host = self._canonical(self._host)
        if self._wants_final:
            self._is_final = True
            self._read_all(files)
        return Found(self._host, self._settings, tuple(self._keys))

    def _read_all(self, files: Sequence[Lines]) -> None:
        for lines in files:
            self._read(lines, _Block(True))

    def _read(self, lines: Lines, around: _Block) -> None:
        """Read a file. Its blocks count only inside the block that includes it."""
        block = around
        for one in lines:
            if isinstance(one, Include):
                for included in one.files:
                    self._read(included, block)
            elif one.keyword == "host":
                block = around if _host_matches(self._host, one.words) else _Block(False)
            elif one.keyword == "match":
                block = self._match(one, around)
            else:
                self.take(one, block)

    def take(self, one: Statement, block: _Block) -> None:
        """Keep a setting, if it is the first one."""
        keyword = one.keyword
        names = _WAYS if keyword in _WAYS else (keyword,)
        is_known = any(name in self._settings for name in names)
        if keyword not in _KEYWORDS or is_known or not block.counts:
            return
        if block.doubt:
            raise ConfigInvalid(block.doubt)
        if len(one.words) > 1 and keyword not in _SEVERAL:
            raise ConfigInvalid(f"{one.place}: {keyword} has more than one value")
        if keyword == _EACH:
            self._keys[one.words[0]] = None
        else:
            self._settings[keyword] = one

    def _text(self, keyword: str, default: str = "") -> str:
        one = self._settings.get(keyword)
        return one.words[0] if one else default

    def _target(self) -> str:
        """Return the name of the machine, as far as it is known."""
        if self._is_final:
            return self._host
        return filled(self._text("hostname", self._name), {"h": self._name, "%": "%"})

    def _match(self, one: Statement, around: _Block) -> _Block:
        """Tell whether a Match counts. Those behind one that does not are not asked."""
        left, result = list(one.words), around
        while left:
            criterion, sign, value = left.pop(0).partition("=")
            is_negated, name = criterion.startswith("!"), criterion.removeprefix("!").lower()
            if name == "final":
                self._wants_final = True
            if name in ("all", "canonical", "final"):
                holds: bool | None = name == "all" or self._is_final
            else:
                if not sign and left[:1] == ["="]:
                    left.pop(0)
                if not sign and not left:
                    raise ConfigInvalid(f"{one.place}: Match has no value for {name}")
                value = value if sign else left.pop(0)
                holds = self._holds(name, value, one.place) if result.counts else False
            if holds is None:
                doubt = f"{one.place}: only ssh knows the criterion {name} of Match"
                result = result._replace(doubt=result.doubt or doubt)
            elif holds == is_negated:
                result = _Block(False)
        return result

    def _holds(self, name: str, value: str, place: str) -> bool | None:
        """Tell whether a criterion holds; None if it is not known."""
        me = getpass.getuser()
        criteria: dict[str, Callable[[], bool]] = {
            "host": lambda: _list_matches(self._target().lower(), value.lower()),
            "originalhost": lambda: _list_matches(self._name.lower(), value.lower()),
            "user": lambda: _list_matches(self._text("user", me), value),
            "localuser": lambda: _list_matches(me, value),
            "tagged": lambda: _tag_matches(self._text("tag"), value),
            "localnetwork": lambda: _is_in(value, place),
            "exec": lambda: _succeeds(value, self._tokens(), place),
        }
        return criteria[name]() if name in criteria else None

    def _tokens(self) -> dict[str, str]:
        user, port = self._text("user"), self._text("port", "22")
        return tokens(self._name, self._target(), port, user, self._text("hostkeyalias"))

    def _canonical(self, host: str) -> str:
        """Return the name of a host in the first domain that has it, or else the name as it is."""
        is_always = self._text("canonicalizehostname").lower() == "always"
        ways = [self._text(way, "none").lower() for way in _WAYS]
        domains = self._settings.get("canonicaldomains")
        try:
            dots = int(self._text("canonicalizemaxdots", "1"))
        except ValueError as error:
            place = self._settings["canonicalizemaxdots"].place
            raise ConfigInvalid(f"{place}: {error}") from error
        is_proxied = any(way != "none" for way in ways) and not is_always
        if host.count(".") > dots or is_address(host) or is_proxied or not domains:
            return host
        for domain in domains.words if domains.words != ("none",) else ():
            full = f"{host.removesuffix('.')}.{domain}".lower()
            try:
                socket.getaddrinfo(full, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError):
                continue
            return full
        return host


def tokens(name: str, address: str, port: str, user: str, alias: str) -> dict[str, str]:
    """Return what ssh fills in for %h and the like. `user` and `alias` can be empty.

    Source: ssh_config(5) of OpenSSH 9.2, TOKENS. %C, a hash of others, is left out.
    """
    me, full = getpass.getuser(), socket.gethostname()
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
        "r": user or me,
        "u": me,
    }


def filled(text: str, tokens: Mapping[str, str]) -> str:
    """Fill in the tokens and the variables of the environment that are known."""

    def value(found: re.Match[str]) -> str:
        known = tokens.get(found[1]) if found[1] else os.environ.get(found[2])
        return found[0] if known is None else known

    return _TOKEN.sub(value, text)


def _matches(text: str, pattern: str) -> bool:
    """Tell whether a text matches a pattern of ssh, which has * and ? only."""
    signs = {"*": ".*", "?": "."}
    return bool(re.fullmatch("".join(signs.get(one, re.escape(one)) for one in pattern), text))


def _host_matches(host: str, patterns: Sequence[str]) -> bool:
    refused = any(_matches(host, one[1:]) for one in patterns if one.startswith("!"))
    return not refused and any(_matches(host, one) for one in patterns if not one.startswith("!"))


def _list_matches(text: str, patterns: str) -> bool:
    return _host_matches(text, patterns.split(","))


def _tag_matches(tag: str, patterns: str) -> bool:
    return _list_matches(tag, patterns) if tag else not patterns


def _is_in(networks: str, place: str) -> bool:
    try:
        return local_networks.has_address_in(networks.split(","))
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"{place}: localnetwork cannot be told: {error}") from error


def _succeeds(command: str, tokens: Mapping[str, str], place: str) -> bool:
    """Tell whether a command of `Match exec` succeeds, in the shell of the user as ssh has it."""
    unknown = [one for one in re.findall(r"%(.)", command) if one not in tokens]
    if unknown:
        raise ConfigInvalid(f"{place}: only ssh knows %{unknown[0]} of {command}")
    line = [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {filled(command, tokens)}"]
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            line, stdin=nothing, stdout=nothing, stderr=nothing, timeout=_EXEC_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigInvalid(f"{place}: {command} does not end within {_EXEC_S:.0f} s") from error
    except OSError as error:
        raise ConfigInvalid(f"{place}: cannot run {line[0]}: {error.strerror}") from error
    return done.returncode == 0
