# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reach the targets of a scan: by the words of the command, and as ~/.ssh/config says.

A target behind a jump host is not asked whether it has an SSH server, because only the jump host
can connect to it: it counts as one that has. One that ~/.ssh/config has no valid values for is not
asked either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from metal_gpu import answering, parallel
from metal_gpu.answering import Answer, State
from metal_gpu.hosts import Host
from metal_gpu.ssh.settings import Settings
from metal_gpu.targets import Target

_PROGRAMS = 4  # ssh at the same time, of a few milliseconds each, and those of `Match exec`


class Reached(NamedTuple):
    """A target, how to log in to it, and what it answered."""

    host: Host
    answer: Answer


def reach(
    targets: Sequence[Target],
    settings: Settings,
    *,
    rate: float = answering.RATE,
    timeout_s: float = answering.TIMEOUT_S,
    heard: Callable[[Answer], None] = lambda _answer: None,
) -> list[Reached]:
    """Ask the targets whether they have an SSH server; the order is that of the targets.

    Raises metal_gpu.ssh.targets.ConfigInvalid if the configuration fits no target.
    """
    from metal_gpu.ssh.targets import ConfigInvalid, resolve

    hosts = _hosts(targets)
    found: dict[int, Answer] = {}
    direct: list[tuple[int, Target]] = []
    refusals: list[ConfigInvalid] = []
    ways = dict(
        parallel.each(
            range(len(targets)), lambda number: resolve(hosts[number], settings), _PROGRAMS
        )
    )
    for number, target in enumerate(targets):
        way = ways[number]
        if isinstance(way, ConfigInvalid):
            refusals.append(way)
            words = f"the configuration of ssh cannot be used: {way}"
            port = target.port or answering.PORT
            found[number] = Answer(target, port, State.NOT_ASKED, error=words)
        elif isinstance(way, Exception):
            raise way
        elif way.jumps or way.proxy_command:
            found[number] = Answer(target, way.port, State.SSH)
        else:
            direct.append((number, target._replace(host=way.address, port=way.port)))
    if refusals and len(refusals) == len(targets):
        raise refusals[0]
    for answer in found.values():
        heard(answer)
    answers = answering.ask(
        [target for _number, target in direct], rate=rate, timeout_s=timeout_s, heard=heard
    )
    for (number, _target), answer in zip(direct, answers, strict=True):
        found[number] = answer._replace(target=targets[number])
    return [Reached(host, found[number]) for number, host in enumerate(hosts)]


def _hosts(targets: Sequence[Target]) -> list[Host]:
    """Return a host for each target; one that is named with two ports has two names."""
    times = Counter(target.host.lower() for target in targets)
    return [
        Host(
            name=f"{target.host}-{target.port}"
            if times[target.host.lower()] > 1 and target.port
            else target.host,
            address=target.host,
            port=target.port,
            user=target.user,
            named=not target.is_of_many,
        )
        for target in targets
    ]
