# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu doctor`: what is wrong with machines, and what metal.gpu.site would do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from metal_gpu.terminal import exit_codes
from metal_gpu.terminal.machines import (
    AcceptKeys,
    AsJson,
    AskBecomePass,
    AskPass,
    Hosts,
    Identity,
    Inventory,
    Jump,
    Port,
    Quiet,
    Timeout,
    User,
    chosen,
    settings,
)

if TYPE_CHECKING:
    from metal_gpu.nodes import Node
    from metal_gpu.ssh.settings import Settings
    from metal_gpu.terminal.doctor_report import Row
    from metal_gpu.terminal.machines import Chosen

Forks = Annotated[int, typer.Option(min=1, max=500, help="Machines to ask at the same time.")]


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

    Changes nothing. Prints one block per machine, in their order. Asks many at the same time.

    Exit codes: 0 all is well; 1 a machine has a problem; 2 the arguments or the inventory cannot
    be used; 3 a machine gave no answer.

    Examples:

        metal-gpu doctor                                # inventory.yml, or this machine
        metal-gpu doctor localhost                      # this machine
        metal-gpu doctor admin@10.0.0.7 10.0.0.8
        metal-gpu doctor --inventory inventory.yml rack1
        metal-gpu doctor --json 10.0.0.7 | jq '.hosts[].findings[].code'
    """
    machines = chosen(hosts or [], inventory, by_ssh=bool(port or jump), quiet=quiet)
    login = settings(
        user=user,
        port=port,
        identity=identity,
        jump=jump,
        ask_pass=ask_pass,
        ask_become_pass=ask_become_pass,
        accept_new_host_keys=accept_new_host_keys,
        timeout_s=timeout,
    )
    raise typer.Exit(_examine(machines, login, forks, as_json=as_json, quiet=quiet))


def _examine(
    machines: Chosen, settings: Settings, forks: int, *, as_json: bool, quiet: bool
) -> int:
    """Print what is found about each host when it and those before it answered.

    Return the exit code.
    """
    from metal_gpu.fleet import Fleet
    from metal_gpu.terminal import doctor_report, output

    hosts = machines.hosts
    rows: list[Row] = []
    codes = [exit_codes.OK]
    names: dict[str, str] = {}
    waiting: dict[int, Row] = {}
    shown = 0
    place = {host: number for number, host in enumerate(one.name for one in hosts)}
    for node in Fleet(hosts, settings, limit=min(forks, len(hosts) or 1)).observe():
        node, row = doctor_report.judged(node)
        codes.append(_code(node))
        if node.observed and node.observed["kubelet"]["node_name"]:
            names[node.name] = node.observed["kubelet"]["node_name"]
        rows.append(row)
        waiting[place[row["name"]]] = row
        while not as_json and shown in waiting:
            row = waiting.pop(shown)
            doctor_report.show(row, quiet=quiet, is_listed=machines.options is not None)
            shown += 1
    clashes = doctor_report.clashes(names)
    if clashes:
        codes.append(exit_codes.FOUND)
    code = exit_codes.NOT_ASKED if exit_codes.NOT_ASKED in codes else max(codes)
    if as_json:
        rows.sort(key=lambda row: place[row["name"]])
        output.print_json({"hosts": rows, "findings": clashes, "exit_code": code})
    else:
        for one in clashes:
            output.print_finding(one)
        if len(hosts) > 1 and not quiet:
            output.message(doctor_report.summary(codes[1 : len(hosts) + 1]))
        next_commands = doctor_report.next_commands(rows, machines.options)
        if next_commands and not quiet:
            output.message(next_commands)
    sys.stdout.flush()
    return code


def _code(node: Node) -> int:
    if node.observed is None:
        return exit_codes.NOT_ASKED
    return exit_codes.OK if node.is_sound else exit_codes.FOUND
