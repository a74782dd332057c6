# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connections to jump hosts, shared by all machines behind them.

sshd refuses new connections while more than ten log in (MaxStartups). So hundreds of machines
behind one jump host use one connection to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

import paramiko

from metal_gpu.ssh.settings import Settings

Opened = tuple[paramiko.Transport, "Hop | None"]
_Key = tuple[str, Settings]

_hops: dict[_Key, Hop] = {}
_lock = Lock()


@dataclass
class Hop:
    """A connection to a jump host, and how many use it."""

    key: _Key
    users: int = 0
    opening: Lock = field(default_factory=Lock)
    opened: Opened | None = None
    failure: Exception | None = None  # to connect; those who waited for it do not try again

    @property
    def transport(self) -> paramiko.Transport:
        assert self.opened  # `enter` returns no other
        return self.opened[0]


def enter(spec: str, settings: Settings, connect: Callable[[], Opened]) -> Hop:
    """Return the connection to a jump host. The first who needs it connects, and others wait.

    If it fails, they all get its exception.
    """
    key = (spec, settings)
    with _lock:
        hop = _hops.setdefault(key, Hop(key))
        hop.users += 1
    try:
        with hop.opening:
            if hop.failure:
                raise hop.failure
            if hop.opened is None or not hop.opened[0].is_active():
                _close(hop)
                hop.opened = _open(hop, connect)
    except BaseException:
        leave(hop)
        raise
    return hop


def _open(hop: Hop, connect: Callable[[], Opened]) -> Opened:
    try:
        return connect()
    except Exception as error:
        hop.failure = error
        raise


def leave(hop: Hop) -> None:
    """Say that a machine no longer needs the jump host. The last one closes the connection."""
    with _lock:
        hop.users -= 1
        if hop.users:
            return
        if _hops.get(hop.key) is hop:
            del _hops[hop.key]
    _close(hop)


def _close(hop: Hop) -> None:
    if hop.opened is not None:
        transport, before = hop.opened
        hop.opened = None
        transport.close()
        if before:
            leave(before)
