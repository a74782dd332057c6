# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Has this machine an address in one of some networks? As `Match localnetwork` of ssh asks.

Source: ssh_config(5) of OpenSSH 9.4; proc_net(5) and net/ipv4/fib_trie.c of Linux
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from pathlib import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
PROC = Path("/proc/net")


def has_address_in(networks: Sequence[str], proc: Path = PROC) -> bool:
    """Tell whether an address of this machine is in a network. Raises OSError, and ValueError."""
    wanted = [ipaddress.ip_network(one) for one in networks]
    return any(address in one for address in _addresses(proc) for one in wanted)


def _addresses(proc: Path) -> Iterator[Address]:
    """Yield the addresses of the interfaces that are up."""
    leaf = ""
    for line in (proc / "fib_trie").read_text("ascii").splitlines():
        sign, _blank, rest = line.strip().partition(" ")
        if sign == "|--":
            leaf = rest
        elif sign == "/32" and rest == "host LOCAL":
            yield ipaddress.ip_address(leaf)
    try:
        text = (proc / "if_inet6").read_text("ascii")
    except FileNotFoundError:  # a kernel without IPv6
        return
    for line in text.splitlines():
        yield ipaddress.IPv6Address(int(line.split()[0], 16))
