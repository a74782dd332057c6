# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a scan finds on the machines that it was given.

What is returned of a machine has the same shape whether the machine was observed, could not be, or
is no Linux machine at all. Only `scan` does I/O, and `find` by what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import is_gpu
from ansible_collections.metal.gpu.plugins.plugin_utils.components import ENGINES
from metal_gpu import answering, gpu_names, parallel
from metal_gpu.answering import Answer, State
from metal_gpu.banners import other_system
from metal_gpu.hosts import Host
from metal_gpu.reach import Reached, reach
from metal_gpu.ssh.sessions import unreachable
from metal_gpu.ssh.settings import Settings
from metal_gpu.targets import Target, is_address

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node as Observed
    from metal_gpu.nodes import Node

Observe = Callable[[Sequence[Host]], Iterable["Node"]]
Step = Callable[[str, int], Callable[[], None]]


_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_NO_NAMES = ("localhost", "localhost6", "all", "ungrouped")


class Gpu(TypedDict):
    """A GPU on the bus."""

    model: str
    address: str


class Machine(TypedDict):
    """A machine that answered, or that was named and did not."""

    host: str  # its name in an inventory
    address: str  # where SSH reaches it
    other_addresses: list[str]  # where it was found as well
    port: int | None  # None: SSH's default
    user: str | None
    ssh: str | None  # the identification of its SSH server
    observed: bool
    hostname: str | None
    boot_id: str | None
    host_key: str | None  # the fingerprint by which SSH has known it
    system: str | None
    kernel: str | None
    gpus: list[Gpu]
    driver: str | None
    engine: str | None
    kubelet: str | None
    node: str | None  # under which name the kubelet joined a cluster
    problem: str | None  # why it was not observed
    finding: dict[str, str] | None


class Found(NamedTuple):
    """The machines of a scan, and what is to be said about their names."""

    machines: list[Machine]
    notices: list[str]  # nobody has to do anything
    collisions: list[str]  # two machines want to be one


def scan(
    targets: Sequence[Target],
    settings: Settings,
    *,
    rate: float = answering.RATE,
    timeout_s: float = answering.TIMEOUT_S,
    limit: int = parallel.LIMIT,
    step: Step = lambda _name, _total: lambda: None,
) -> Found:
    """Return the machines of the targets, with names for an inventory, and what collides.

    `metal_gpu.targets.parse` makes the targets. `step` starts a stage of so many parts, and
    returns what is called after each part.

    Raises metal_gpu.ssh.targets.ConfigInvalid if the configuration of ssh fits no target.
    """
    from metal_gpu.fleet import Fleet

    asked = step("ask for SSH", len(targets))
    reached = reach(
        targets, settings, rate=rate, timeout_s=timeout_s, heard=lambda _answer: asked()
    )
    observed = step("observe", sum(one.answer.state is State.SSH for one in reached))
    machines = find(
        reached,
        lambda hosts: Fleet(hosts, settings, limit=limit).observe(),
        lambda _machine: observed(),
    )
    return name_machines(machines)


def find(
    reached: Sequence[Reached],
    observe: Observe,
    seen: Callable[[Machine], None] = lambda _machine: None,
) -> list[Machine]:
    """Return a machine for each answer that says something, in the order of the answers.

    An address of a network without an SSH server says nothing. `seen` is called with each machine
    as soon as it is known.
    """
    machines: dict[int, Machine] = {}
    asked: dict[str, tuple[int, Reached]] = {}
    for number, one in enumerate(reached):
        if one.answer.target.is_member and one.answer.state not in (State.SSH, State.NOT_ASKED):
            continue
        machines[number] = _unknown(one.host, one.answer)
        if machines[number]["problem"] is None:
            asked[one.host.name] = number, one
        else:
            seen(machines[number])
    for node in observe([one.host for _number, one in asked.values()]):
        number, one = asked[node.name]
        machine = _judged(machines[number], node)
        if _is_nobody(machine, one.answer):
            del machines[number]
        else:
            machines[number] = machine
            seen(machine)
    return [machines[number] for number in sorted(machines)]


def _is_nobody(machine: Machine, answer: Answer) -> bool:
    """Tell whether an address of a network, behind a jump host, has no SSH server."""
    code = (machine["finding"] or {}).get("code")
    return answer.target.is_member and not answer.identification and code == "NODE_UNREACHABLE"


def _unknown(host: Host, answer: Answer) -> Machine:
    """Return a machine before it is observed, with the reason if it will not be."""
    problem = answer.error
    refused = unreachable(host, problem).finding if answer.state is State.NOT_ASKED else None
    if answer.identification:
        what = other_system(answer.identification)
        problem = f"not a Linux machine, but {what}: {answer.identification}" if what else None
    return {
        "host": host.name,
        "address": host.address,
        "other_addresses": [],
        "port": host.port,
        "user": host.user,
        "ssh": answer.identification,
        "observed": False,
        "hostname": None,
        "boot_id": None,
        "host_key": None,
        "system": None,
        "kernel": None,
        "gpus": [],
        "driver": None,
        "engine": None,
        "kubelet": None,
        "node": None,
        "problem": refused["message"] if refused else problem,
        "finding": refused,
    }


def _judged(machine: Machine, node: Node) -> Machine:
    """Return a machine with what its node says.

    What a broken machine answers can have a form that nobody expected. The others go on.
    """
    from metal_gpu.nodes import failed

    try:
        return _described(machine, node)
    except Exception as error:
        return _described(machine, failed(node.host, error))


def _described(machine: Machine, node: Node) -> Machine:
    """Return a machine with what was observed of it, or with the finding."""
    observed = node.observed
    if observed is None:
        found = dict(node.unobserved or {})
        words = found.get("message", "not observed").removeprefix(f"{machine['host']}: ")
        return {**machine, "problem": words, "finding": found}
    return {
        **machine,
        "observed": True,
        "hostname": _printable(observed["hostname"]),
        "boot_id": observed["boot_id"],
        "host_key": node.host_key,
        "system": _printable(observed["os"]["name"]),
        "kernel": _printable(observed["kernel"]["release"]),
        "gpus": _gpus(observed),
        "driver": _driver(observed),
        "engine": _engine(observed),
        "kubelet": _kubelet(observed),
        "node": _printable(observed["kubelet"]["joined_name"]),
    }


def _printable(text: str | None) -> str | None:
    """Return a text of a machine without what would control the terminal."""
    return text and "".join(sign if sign.isprintable() else "?" for sign in text)


def _gpus(node: Observed) -> list[Gpu]:
    names = {one["pci_address"]: one["name"] for one in node["nvml"]["devices"]}
    return [
        {
            "model": gpu_names.name(one["device"], names.get(one["address"])),
            "address": one["address"],
        }
        for one in node["pci"]
        if is_gpu(one)
    ]


def _driver(node: Observed) -> str | None:
    """Return the driver that works, else what there is of one."""
    working = node["nvml"]["driver_version"]
    if working:
        return working
    loaded, on_disk = node["driver"]["module_version"], node["driver"]["disk_version"]
    if loaded or on_disk:
        return f"{loaded or on_disk} ({'does not answer' if loaded else 'not loaded'})"
    return next((one["driver"] for one in node["pci"] if is_gpu(one) and one["driver"]), None)


def _engine(node: Observed) -> str | None:
    """Return the engines that run, else those that are installed."""
    programs = {engine.title: section(node, "engines", key) for key, engine in ENGINES.items()}
    there = {name: one for name, one in programs.items() if one["installed"]}
    running = {name: one for name, one in there.items() if one["running"]}
    words = [f"{name} {one['version'] or '?'}" for name, one in (running or there).items()]
    return (", ".join(words) + ("" if running else " (stopped)")) if words else None


def _kubelet(node: Observed) -> str | None:
    kubelet = node["kubelet"]
    if not kubelet["installed"]:
        return None
    return f"{kubelet['version'] or '?'}{'' if kubelet['running'] else ' (stopped)'}"


def hosts_with_gpus(machines: Iterable[Machine]) -> list[Host]:
    """Return the machines with GPUs, and those that a login or a connection kept from an answer.

    A machine without GPUs and one with another system are left out.
    """

    def counts(machine: Machine) -> bool:
        if machine["observed"]:
            return bool(machine["gpus"])
        return machine["finding"] is not None or machine["ssh"] is None

    return [
        Host(
            one["host"],
            one["address"],
            one["port"],
            one["user"],
            variables={"gpu_count": len(one["gpus"])} if one["observed"] else {},
        )
        for one in machines
        if counts(one)
    ]


def name_machines(machines: Sequence[Machine]) -> Found:
    """Return the machines with names for an inventory.

    A machine that was found by its address gets its host name, if no other machine has it. If two
    have it, that is a collision. A machine that was found at two addresses is kept once, and that
    is a notice. A machine chooses its names, so both addresses must also have one host key.
    """
    notices: list[str] = []
    collisions: list[str] = []
    first: dict[tuple[str, str, str | None], Machine] = {}
    kept: list[Machine] = []
    for machine in machines:
        key = (machine["boot_id"] or "", machine["hostname"] or "", machine["host_key"])
        known = first.setdefault(key, machine) if all(key[:2]) else machine
        if known is machine:
            kept.append(machine)
        else:
            if (machine["port"] or answering.PORT) == (known["port"] or answering.PORT):
                known["other_addresses"].append(machine["address"])
            notices.append(
                f"{machine['address']} and {known['address']} are the same machine, "
                f"{machine['hostname']}: its boot id is {machine['boot_id']}; "
                f"{known['address']} is kept"
            )
    taken: dict[str, list[Machine]] = {}
    for machine in kept:
        taken.setdefault(_wish(machine), []).append(machine)
    named = []
    for machine in kept:
        wish = _wish(machine)
        if len(taken[wish]) == 1:
            named.append(Machine(**{**machine, "host": wish}))
        else:
            named.append(machine)
    for wish, same in taken.items():
        if len(same) > 1:
            addresses = ", ".join(one["address"] for one in same)
            collisions.append(
                f"the host name {wish} collides: {addresses} have it; they are named as you "
                "named them. Give each machine a name of its own"
            )
    return Found(named, notices, collisions)


def _wish(machine: Machine) -> str:
    """Return the name that a machine should have in an inventory.

    A machine chooses its host name. One with other characters could be a pattern for Ansible.
    """
    short = (machine["hostname"] or "").partition(".")[0].lower()
    is_useful = _HOST_NAME.fullmatch(short) and short not in _NO_NAMES
    found_by_address = is_address(machine["address"])
    return short if is_useful and found_by_address else machine["host"]
