# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read ~/.ssh/config and /etc/ssh/ssh_config as ssh does, where paramiko's parser does not.

A block whose `Match` has a criterion that is not known here, such as `tagged` or `localnetwork`,
does not count.

Source: ssh_config(5) of OpenSSH 9.2 and 10; readconf.c, for comments and canonical names
"""

from __future__ import annotations

import glob
import ipaddress
import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import paramiko

SYSTEM = Path("/etc/ssh/ssh_config")
_DEEPEST = 8  # files that include each other
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*")
_COMMANDS = ("proxycommand", "localcommand", "remotecommand", "knownhostscommand")
_FLAGS = ("all", "canonical", "final")  # criteria of Match without a value
_CRITERIA = ("host", "originalhost", "user", "localuser", "exec")
_NEVER = "originalhost !*"
# paramiko would forget HostName for the names that it makes canonical.
_CANONICALIZE, _RENAMED = "canonicalizehostname", "metalgpucanonicalize"


class _Config(paramiko.SSHConfig):
    """Leaves the tokens for which --user and --port count, and those of files, to the caller."""

    TOKENS_BY_CONFIG_KEY = {  # noqa: RUF012
        key: tokens
        for key, tokens in paramiko.SSHConfig.TOKENS_BY_CONFIG_KEY.items()
        if key in ("hostname", "proxyjump", "match-exec")
    }


def look_up(file: Path, modified: int, name: str) -> dict[str, object]:
    """Return what a file says about a name, with keywords in lower case.

    Raises OSError, and what paramiko raises about a file that is not valid.
    """
    found: dict[str, object] = dict(parse(file, modified, canonical=False).lookup(name))
    full = _canonical(found, str(found["hostname"]))
    if full is None:
        return found
    again = dict(parse(file, modified, canonical=True).lookup(full))
    return {**again, **found, "hostname": full}


def _canonical(found: Mapping[str, object], host: str) -> str | None:
    """Return the name of a host in the first domain that has it, or else the name as it is.

    None: names are not to be made canonical, so the file is not read again with the new one.
    """
    wish = str(found.get(_RENAMED, "no")).lower()
    domains = str(found.get("canonicaldomains", "none")).split()
    is_proxied = any(found.get(key) not in (None, "none") for key in ("proxyjump", "proxycommand"))
    dots = int(str(found.get("canonicalizemaxdots", 1)))
    if wish not in ("yes", "true", "always"):
        return None
    if host.count(".") > dots or _is_address(host) or (is_proxied and wish != "always"):
        return host
    for domain in domains if domains != ["none"] else ():
        full = f"{host.removesuffix('.')}.{domain}".lower()
        try:
            socket.getaddrinfo(full, None, type=socket.SOCK_STREAM)
        except OSError:
            continue
        return full
    return host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=8)
def parse(file: Path, _modified: int, *, canonical: bool) -> paramiko.SSHConfig:
    return _Config.from_text("\n".join(_lines(file, "Host *", 0, canonical)))


def _lines(file: Path, block: str, depth: int, canonical: bool) -> Iterator[str]:
    """Yield the lines with those of included files. paramiko does not know Include.

    The hosts of a file end with it, so the block around an Include goes on behind it.
    """
    for line in file.read_text("utf-8", "replace").splitlines():
        match = _LINE.fullmatch(line)
        if not match:
            yield line
            continue
        keyword, value = match[1].lower(), match[2]
        if keyword not in _COMMANDS:
            value = _without_comment(value)
        if keyword == "match":
            value = _criteria(value, canonical)
        if keyword == _CANONICALIZE:
            keyword = _RENAMED
        line = f"{keyword} {value}"
        if keyword in ("host", "match"):
            block = line
        if keyword != "include" or depth >= _DEEPEST:
            yield line
            continue
        for pattern in shlex.split(value):
            base = Path.home() / ".ssh" if file.parent != SYSTEM.parent else file.parent
            for path in sorted(glob.glob(os.path.join(base, os.path.expanduser(pattern)))):
                yield from _lines(Path(path), block, depth + 1, canonical)
                yield block


def _without_comment(value: str) -> str:
    is_quoted = False
    for place, sign in enumerate(value):
        is_quoted ^= sign == '"'
        if sign == "#" and not is_quoted and (not place or value[place - 1].isspace()):
            return value[:place].rstrip()
    return value


def _criteria(value: str, canonical: bool) -> str:
    """Return the criteria of a Match as paramiko knows them: `all` alone, and in lower case."""
    left, result = shlex.split(value), []
    while left:
        criterion, sign, of = left.pop(0).partition("=")
        negation = "!" if criterion.startswith("!") else ""
        name = criterion.removeprefix("!").lower()
        if name == "canonical":
            if canonical == bool(negation):
                return _NEVER
        elif name in _FLAGS:
            result.append(f"{negation}{name}")
        elif not (sign or left):
            return value  # the parser has the words for it
        elif name in _CRITERIA:
            result += [f"{negation}{name}", of if sign else left.pop(0)]
        else:
            return _NEVER
    return shlex.join([one for one in result if one != "all"] or ["all"])
