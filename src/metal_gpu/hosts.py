# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine, as an inventory or a command line names it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

# What could be more than a name in a shell, which ProxyCommand and `Match exec` of ssh_config are.
# Source: OpenSSH 9.2p1 of Debian 12, ssh.c, valid_hostname and valid_ruser; 10.1 refuses
# signs of control in users as well
_NO_ADDRESS = re.compile(r"^-|['`\"$\\;&<>|(){}\s\x00-\x1f\x7f]")
_NO_USER = re.compile(r"^-|['`\";&<>|(){}\x00-\x1f\x7f]|\s-|\\$")


@dataclass(frozen=True)
class Host:
    """How to reach one machine. What is None comes from ~/.ssh/config, or is SSH's default."""

    name: str  # in output and findings
    address: str
    port: int | None = None
    user: str | None = None
    key_file: str | None = None
    jump: str | None = None  # as ProxyJump: [USER@]HOST[:PORT], several with commas
    become: bool = True  # become root with sudo, unless the user is root
    variables: Mapping[str, object] = field(default_factory=dict, repr=False)  # some are secret
    local: bool = False  # this machine, without SSH
    # As -o of ssh: keywords of ssh_config(5) in lower case, with precedence over ~/.ssh/config.
    options: Mapping[str, str] = field(default_factory=dict)
    config_file: str | None = None  # as -F of ssh, instead of ~/.ssh/config; "none" for no file
    password: str | None = field(default=None, repr=False)
    become_password: str | None = field(default=None, repr=False)
    named: bool = True  # not only an address of a network or a range
    obstacle: str = ""  # why this program cannot reach the host, such as another ansible_connection

    @classmethod
    def parse(cls, text: str) -> Host:
        """Return the host of [USER@]ADDRESS[:PORT], or [USER@][IPV6]:PORT.

        Raises ValueError.
        """
        user, _at, rest = text.rpartition("@")
        address, port = _split_port(rest)
        if not address or any(character.isspace() for character in text):
            raise ValueError(f"{text!r} is not a host; expected [USER@]ADDRESS[:PORT]")
        if port is not None and not (port.isdecimal() and 0 < int(port) < 65536):
            raise ValueError(f"{text!r} has the port {port!r}; expected a number up to 65535")
        if problem := refused_name(address, user):
            raise ValueError(problem)
        return cls(address, address, None if port is None else int(port), user or None)

    @classmethod
    def parse_all(cls, texts: Sequence[str]) -> list[Host]:
        """Return the hosts of texts. Several of one address are called as they are written.

        Raises ValueError.
        """
        hosts = [cls.parse(text) for text in texts]
        times = Counter(host.name for host in hosts)
        return [
            host if times[host.name] == 1 else replace(host, name=text)
            for host, text in zip(hosts, texts, strict=True)
        ]

    @classmethod
    def this_machine(cls, name: str) -> Host:
        """Return the machine that runs this program."""
        return cls(name, "localhost", local=True)


def refused_name(address: str, user: str) -> str:
    """Return why ssh would refuse the name of a machine or a user; empty if it would not."""
    if _NO_ADDRESS.search(address):
        return f"the host name {address!r} has characters that ssh refuses"
    return f"the user {user!r} has characters that ssh refuses" if _NO_USER.search(user) else ""


def _split_port(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        address, _end, rest = text[1:].partition("]")
        return address, rest[1:] if rest.startswith(":") else None
    if text.count(":") == 1:
        address, _colon, port = text.partition(":")
        return address, port
    return text, None  # also an IPv6 address without a port
