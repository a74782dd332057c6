# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which host of an inventory is a machine of a scan?

The same machine can be there under its full name, its short name or an address. Two hosts are the
same machine if one place answers for both: one address, one port. Hosts that have only a name in
common may be one machine or two, and nobody but the admin knows: that is a doubt.
Only `addresses_of` does I/O.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from metal_gpu import parallel
from metal_gpu.hosts import Host
from metal_gpu.targets import is_address
from metal_gpu.templates import NotRendered, Variables

# Returns the addresses of each name.
AddressesOf = Callable[[Iterable[str]], Mapping[str, frozenset[str]]]

SSH_PORT = 22
_NO_NAMES = ("localhost", "localhost6")  # every machine has them
_MOST = 3  # hosts that a message names


class Known(NamedTuple):
    """A host of the inventory."""

    name: str
    address: str | None  # None: only Ansible can render it
    port: str | None

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.address,) if self.address else ()


class Wanted(NamedTuple):
    """A machine of a scan."""

    name: str  # that it would have in the inventory
    address: str
    port: str
    hostname: str  # that it calls itself; empty if that is not known
    other_addresses: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        return (self.address, *self.other_addresses)

    def __str__(self) -> str:
        return self.name if self.name == self.address else f"{self.name} ({self.address})"


class Match(NamedTuple):
    """What the inventory has of a machine."""

    host: str | None = None  # its name there; None: it is not there
    doubt: str = ""  # why that is not known


def known(name: str, variables: Mapping[str, object]) -> Known:
    """Return a host of an inventory, with its templates rendered as far as that is possible."""
    rendered = Variables(variables)
    return Known(
        name,
        _text(rendered, name, "ansible_host", "ansible_ssh_host"),
        _text(rendered, str(SSH_PORT), "ansible_port", "ansible_ssh_port"),
    )


def _text(rendered: Variables, default: str, *names: str) -> str | None:
    """Return the first variable that there is; None if it is no text that is known here."""
    try:
        values = (rendered[name] for name in names if name in rendered.values)
        value = next((one for one in values if one not in (None, "")), default)
    except NotRendered:
        return None
    return str(value) if isinstance(value, (str, int)) else None


def match(
    hosts: Sequence[Known], machines: Sequence[Wanted], addresses_of: AddressesOf
) -> list[Match]:
    """Return for each machine which host it is. Names are looked up only if that is necessary.

    Its own address comes before its other ones, which an inventory can have as another host.
    """
    by_place = {(_plain(one.address), one.port): one.name for one in reversed(hosts) if one.address}
    found = [by_place.get((_plain(one.address), one.port)) for one in machines]
    left = [one for one, host in zip(machines, found, strict=True) if host is None]
    if not left or not hosts:
        return [Match(host) for host in found]
    places = _Places([*hosts, *left], addresses_of)
    own = [one._replace(other_addresses=()) for one in machines]
    for seen, rule in product((own, machines), (places.is_same, places.has_same_name)):
        for number, machine in enumerate(seen):
            if found[number] is None:
                found[number] = next((one.name for one in hosts if rule(one, machine)), None)
    others = [one for one in hosts if one.name not in found]
    return [
        Match(host)
        if host
        else Match(doubt=_doubt(_rivals(hosts, others, machine), machine, places))
        for machine, host in zip(machines, found, strict=True)
    ]


def _rivals(hosts: Sequence[Known], others: Sequence[Known], machine: Wanted) -> Sequence[Known]:
    """Return the hosts that a machine may be. One with its name is never written a second time."""
    named = [one for one in hosts if one.name == machine.name and one not in others]
    return [*named, *others]


class _Places:
    """Where the hosts and the machines are, as far as name servers and ssh know."""

    def __init__(self, things: Sequence[Known | Wanted], addresses_of: AddressesOf) -> None:
        texts = {_plain(one) for thing in things for one in thing.addresses}
        looked_up = addresses_of(sorted(one for one in texts if not is_address(one)))
        self._found = {
            one: frozenset([one]) if is_address(one) else looked_up.get(one, frozenset())
            for one in texts
        }

    def of(self, thing: Known | Wanted) -> frozenset[str]:
        return frozenset[str]().union(*(self._found[_plain(one)] for one in thing.addresses))

    def is_same(self, host: Known, machine: Wanted) -> bool:
        return self.meet(host, machine) and host.port == machine.port

    def meet(self, host: Known, machine: Wanted) -> bool:
        """Tell whether both have an address in common."""
        return bool(self.of(host) & self.of(machine))

    def are_apart(self, host: Known, machine: Wanted) -> bool:
        """Tell whether both have addresses, and none in common. One machine may have two."""
        return bool(self.of(machine) and self.of(host)) and not self.meet(host, machine)

    def has_same_name(self, host: Known, machine: Wanted) -> bool:
        """Tell whether the name of a machine is all that the inventory says of a host."""
        is_named = host.address == host.name and _plain(host.name) == _plain(machine.name)
        return is_named and not self.are_apart(host, machine)


def _doubt(hosts: Sequence[Known], machine: Wanted, places: _Places) -> str:
    """Return why a machine may be one of the hosts; empty if it is none of them."""
    alike = next((one for one in hosts if _is_alike(one, machine)), None)
    unknown = [
        one.name for one in hosts if one.address is None and one.port in (None, machine.port)
    ]
    right = f"ansible_host of that host to {machine.address}"
    if alike:
        reason = f"it may be {alike.name} of the inventory, {_whereabouts(alike, machine, places)}"
        if places.meet(alike, machine):  # so the ports differ
            right = f"ansible_port of that host to {machine.port}"
    elif unknown:
        more = f" and {len(unknown) - _MOST} others" if len(unknown) > _MOST else ""
        names = ", ".join(unknown[:_MOST])
        reason = (
            f"it may be {names}{more} of the inventory, whose ansible_host only Ansible renders"
        )
    else:
        return ""
    return (
        f"{machine} is not written: {reason}. If it is a host of the inventory, set {right}. "
        "If not, add it under a name of its own"
    )


def _whereabouts(host: Known, machine: Wanted, places: _Places) -> str:
    if host.address is None:
        return "whose ansible_host only Ansible renders"
    if places.are_apart(host, machine):
        return f"which has the address {', '.join(sorted(places.of(host)))}"
    if places.meet(host, machine):
        return f"which has the port {host.port or 'that only Ansible renders'}"
    unknown = machine.address if places.of(host) else host.address
    return f"and no name server tells the address of {unknown}"


def _is_alike(host: Known, machine: Wanted) -> bool:
    """Tell whether a host and a machine have a name in common; a short one can mean a full one."""
    theirs = {_plain(one) for one in (host.name, host.address) if one and not is_address(one)}
    mine = {
        _plain(one)
        for one in (machine.name, *machine.addresses, machine.hostname)
        if one and not is_address(one)
    }
    return any(
        one == other or (_short(one) == _short(other) and "." not in min(one, other, key=len))
        for one in theirs
        for other in mine
        if _short(one) not in _NO_NAMES
    )


def _short(name: str) -> str:
    return name.partition(".")[0]


def _plain(text: str | None) -> str:
    """Return a name or an address in its one form."""
    try:
        return str(ipaddress.ip_address(text or ""))
    except ValueError:
        return (text or "").lower().rstrip(".")


def addresses_of(names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the addresses of names, as ssh would look them up; none for those without any."""
    from metal_gpu.ssh.targets import ConfigInvalid

    found = dict.fromkeys(names, frozenset[str]())
    for name, answer in parallel.each([*found], _addresses):
        if isinstance(answer, frozenset):
            found[name] = answer
        elif not isinstance(answer, (OSError, UnicodeError, ConfigInvalid)):
            raise answer
    return found


def _addresses(name: str) -> frozenset[str]:
    from metal_gpu.ssh.settings import Settings
    from metal_gpu.ssh.targets import resolve

    target = resolve(Host(name, name), Settings())
    if target.jumps or target.proxy_command:  # the jump host looks the name up
        return frozenset([_plain(target.address)] if is_address(target.address) else [])
    answers = socket.getaddrinfo(target.address, None, type=socket.SOCK_STREAM)
    return frozenset(_plain(str(one[4][0])) for one in answers)
