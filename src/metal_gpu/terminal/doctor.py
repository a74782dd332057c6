# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu doctor`: what is wrong with machines, and what metal.gpu.site would do."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metal_gpu.terminal import exit_codes

if TYPE_CHECKING:
    from metal_gpu.hosts import Host
    from metal_gpu.nodes import Node
    from metal_gpu.ssh.settings import Settings

_DEFAULT_GROUP = "gpu_nodes"

Hosts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[HOST]...",
        help="Machines as `[USER@]ADDRESS[:PORT]`, or hosts and groups of the inventory. "
        "Without any: the group `gpu_nodes` of the inventory, or this machine.",
        show_default=False,
    ),
]
Inventory = Annotated[
    Path | None, typer.Option("--inventory", "-i", help="An Ansible inventory.", metavar="FILE")
]
User = Annotated[str | None, typer.Option("--user", "-u", help="The user to log in as.")]
Port = Annotated[int | None, typer.Option("--port", "-p", min=1, max=65535, help="SSH's port.")]
Identity = Annotated[
    Path | None, typer.Option("--identity", "-k", help="A private key.", metavar="FILE")
]
Jump = Annotated[
    str | None,
    typer.Option("--jump", "-J", help="Jump hosts, as `ssh -J` takes them.", metavar="HOST,..."),
]
AskPass = Annotated[bool, typer.Option("--ask-pass", help="Ask for the password of the login.")]
AskBecomePass = Annotated[
    bool, typer.Option("--ask-become-pass", "-K", help="Ask for the password of sudo.")
]
AcceptKeys = Annotated[
    bool,
    typer.Option(
        "--accept-new-host-keys",
        help="Add the keys of machines to known_hosts that have none there. "
        "A key that has changed is refused nevertheless.",
    ),
]
Timeout = Annotated[
    float, typer.Option(min=1, help="Seconds to wait for a connection, and for a login.")
]
Forks = Annotated[int, typer.Option(min=1, max=500, help="Machines to ask at the same time.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only what needs somebody.")]


def doctor(
    hosts: Hosts = None,
    inventory: Inventory = None,
    user: User = None,
    port: Port = None,
    identity: Identity = None,
    jump: Jump = None,
    ask_pass: AskPass = False,
    ask_become_pass: AskBecomePass = False,
    accept_new_host_keys: AcceptKeys = False,
    timeout: Timeout = 10.0,
    forks: Forks = 32,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Examine machines: what is there, what `site` would do, and what is wrong, with remedies.

    Changes nothing, and needs no Ansible. Each machine has its own lines, and one that does not
    answer does not keep the others waiting.

    Exit codes: 0 all is well; 1 a machine has a finding that needs somebody; 2 the arguments or
    the inventory cannot be used; 3 a machine gave no answer.

    Examples:

        metal-gpu doctor                                # this machine
        metal-gpu doctor admin@10.0.0.7 10.0.0.8
        metal-gpu doctor --inventory inventory.yml rack1
        metal-gpu doctor --json 10.0.0.7 | jq '.hosts[].findings[].code'
    """
    from metal_gpu.terminal import output

    try:
        chosen = _choose(hosts or [], inventory)
    except (ValueError, LookupError) as error:
        output.error(str(error))
        raise typer.Exit(exit_codes.USAGE) from error
    from metal_gpu.ssh.settings import Settings

    settings = Settings(
        user=user,
        port=port,
        key_file=str(identity) if identity else None,
        jump=jump,
        password=_ask("SSH password: ") if ask_pass else None,
        become_password=_ask("sudo password: ") if ask_become_pass else None,
        accept_new_host_keys=accept_new_host_keys,
        timeout_s=timeout,
    )
    raise typer.Exit(_examine(chosen, settings, forks, as_json=as_json, quiet=quiet))


def _ask(prompt: str) -> str:
    import getpass

    return getpass.getpass(prompt)


def _choose(names: Sequence[str], path: Path | None) -> list[Host]:
    """Return the hosts that are named, each once. Raises ValueError, and LookupError."""
    from metal_gpu.hosts import Host

    if path is None:
        named = [Host.parse(name) for name in names]
        found = named or [Host.this_machine(socket.gethostname())]
    else:
        found = _of_inventory(names, path)
    return [*{(one.name, one.address, one.port, one.user): one for one in found}.values()]


def _of_inventory(names: Sequence[str], path: Path) -> list[Host]:
    from metal_gpu import inventory

    try:
        content = inventory.load(path)
        if not names and content.groups.get(_DEFAULT_GROUP):
            names = [_DEFAULT_GROUP]
        known = {one.name: one for one in inventory.read(path)}
    except inventory.InventoryError as error:
        raise LookupError(str(error)) from error
    if not names:
        return [*known.values()]
    unknown = [name for name in names if name not in known and name not in content.groups]
    if unknown:
        raise LookupError(f"{path} has no host and no group {', '.join(unknown)}")
    members = [one for name in names for one in content.groups.get(name, (name,))]
    return [known[name] for name in members]


def _examine(
    hosts: Sequence[Host], settings: Settings, forks: int, *, as_json: bool, quiet: bool
) -> int:
    """Print what is found about each host when it answers. Return the exit code."""
    from metal_gpu.fleet import Fleet
    from metal_gpu.terminal import doctor_report, output

    rows: list[Mapping[str, object]] = []
    codes = [exit_codes.OK]
    names: dict[str, str] = {}
    place = {host: number for number, host in enumerate(one.name for one in hosts)}
    for node in Fleet(hosts, settings, limit=min(forks, len(hosts) or 1)).observe():
        node, row = doctor_report.judged(node)
        codes.append(_code(node))
        if node.observed and node.observed["kubelet"]["node_name"]:
            names[node.name] = node.observed["kubelet"]["node_name"]
        if as_json:
            rows.append(row)
        else:
            doctor_report.show(row, quiet=quiet)
    clashes = doctor_report.clashes(names)
    if clashes:
        codes.append(exit_codes.FOUND)
    code = exit_codes.NOT_ASKED if exit_codes.NOT_ASKED in codes else max(codes)
    if as_json:
        rows.sort(key=lambda row: place[str(row["name"])])
        output.print_json({"hosts": rows, "findings": clashes, "exit_code": code})
    else:
        for one in clashes:
            output.print_finding(one)
        if len(hosts) > 1 and not quiet:
            output.message(doctor_report.summary(codes[1 : len(hosts) + 1]))
    sys.stdout.flush()
    return code


def _code(node: Node) -> int:
    if node.observed is None:
        return exit_codes.NOT_ASKED
    return exit_codes.OK if node.is_sound else exit_codes.FOUND
