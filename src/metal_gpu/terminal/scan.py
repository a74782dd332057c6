# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu scan`: find machines with GPUs, and write them into an inventory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metal_gpu.terminal import exit_codes, pipes
from metal_gpu.terminal.machines import (
    AcceptKeys,
    AsJson,
    AskBecomePass,
    AskPass,
    Identity,
    Jump,
    Port,
    Quiet,
    User,
    settings,
)

if TYPE_CHECKING:
    from metal_gpu.inventory_file import Prepared
    from metal_gpu.scan import Found, Machine
    from metal_gpu.ssh.settings import Settings
    from metal_gpu.targets import Target

_COLUMNS = ("host", "GPUs", "driver", "system", "kernel", "engine", "kubelet", "cluster node")
_LEAST = ("kernel", "engine", "system", "kubelet", "driver")  # from the least important on
_NOTHING = "-"
_LOGIN_S = 10.0  # a server may look up names first


def scan(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET",
            help="`10.0.0.0/24`, `host-[1-40]`, `[USER@]HOST[:PORT]`, `[2001:db8::]/120`, or "
            "`@hosts.txt` with one of these in each line.",
            show_default=False,
        ),
    ],
    port: Port = None,
    user: User = None,
    identity: Identity = None,
    jump: Jump = None,
    rate: Annotated[
        float, typer.Option(help="Open at most this many connections in a second.", min=0.1)
    ] = 100.0,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for a connection; a login may take 10.", min=0.1)
    ] = 3.0,
    ask_pass: AskPass = False,
    ask_become_pass: AskBecomePass = False,
    accept_new_host_keys: AcceptKeys = False,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Write the machines with GPUs into this file. If it exists, print what it lacks."
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="End with 3 also if a machine of a network or range refuses the login."
        ),
    ] = False,
    max_addresses: Annotated[
        int, typer.Option(help="Refuse to scan more addresses than this.", min=1)
    ] = 4096,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find machines that answer SSH, look for NVIDIA GPUs, and write an inventory.

    Only the targets are asked, and only on port 22 or the one given. Nothing changes on a machine.

    Exit codes: 0: every machine was observed. 1: two machines have one name, or the inventory lacks
    a machine or says something else about it. 2: an argument or a file cannot be used. 3: a machine
    that is named, or that answers SSH, could not be observed; or none was. A machine that refuses
    the login counts as an error only if you named it, or with --strict.

    Example: `metal-gpu scan 10.0.0.0/24 --user admin --write inventory.yml`
    """
    from metal_gpu.terminal import scan_inventory

    login = settings(
        user=user,
        port=port,
        identity=identity,
        jump=jump,
        ask_pass=ask_pass,
        ask_become_pass=ask_become_pass,
        accept_new_host_keys=accept_new_host_keys,
        timeout_s=max(timeout, _LOGIN_S),
    )
    chosen = _chosen(targets, max_addresses)
    scan_inventory.check(write)
    found = _found(chosen, login, rate, timeout)
    with pipes.unread(write is not None):  # then the inventory counts
        if not as_json:
            _show(found, quiet=quiet, asked=len(chosen))
        prepared = scan_inventory.prepared(write, found.machines, login)
        collisions = [*found.collisions, *(prepared.collisions if prepared else ())]
        found = found._replace(collisions=collisions)
        if as_json:
            _print_document(chosen, found, prepared)
        if prepared:
            scan_inventory.write(prepared, show=not as_json, quiet=quiet)
    raise typer.Exit(_exit_code(found, chosen, strict=strict))


def _chosen(words: Sequence[str], limit: int) -> list[Target]:
    from metal_gpu import targets
    from metal_gpu.terminal import output

    try:
        return targets.parse(words, limit)
    except targets.TargetsInvalid as error:
        for problem in error.problems:
            output.error(problem)
        raise typer.Exit(exit_codes.USAGE) from error


def _found(chosen: list[Target], settings: Settings, rate: float, timeout_s: float) -> Found:
    """Ask the targets, and observe the machines among them."""
    from metal_gpu import scan as scanning
    from metal_gpu.ssh.targets import ConfigInvalid
    from metal_gpu.terminal import output
    from metal_gpu.terminal.progress import Progress

    try:
        with Progress() as progress:
            return scanning.scan(
                chosen, settings, rate=rate, timeout_s=timeout_s, step=progress.step
            )
    except ConfigInvalid as error:
        output.error(str(error))
        raise typer.Exit(exit_codes.USAGE) from error


def _show(found: Found, *, quiet: bool, asked: int) -> None:
    """Print the table, the addresses of the GPUs, and what was not observed."""
    from metal_gpu.terminal import output

    seen = [one for one in found.machines if one["observed"]]
    if not quiet:
        if seen:
            output.print_table(_COLUMNS, map(_row, seen), least=_LEAST, between={"GPUs": ", "})
        for machine in seen:
            for model in dict.fromkeys(gpu["model"] for gpu in machine["gpus"]):
                places = [gpu["address"] for gpu in machine["gpus"] if gpu["model"] == model]
                output.print_line(f"{machine['host']}: {model}: {', '.join(places)}")
        gpus = sum(len(one["gpus"]) for one in seen)
        refused = sum(map(_refuses_login, found.machines))
        more = f"; {refused} machine{'s' * (refused != 1)} refused the login" if refused else ""
        words = f"{asked} address{'es' * (asked != 1)} asked, {len(seen)} machine"
        words += f"{'s' * (len(seen) != 1)} observed, {gpus} GPU{'s' * (gpus != 1)}{more}"
        output.print_line(words)
    for machine in found.machines:
        if machine["problem"]:
            output.message(f"{machine['host']}: {machine['problem']}", "yellow")
            if machine["finding"]:
                output.message(f"    remedy: {machine['finding'].get('remedy', '')}")
    for notice in () if quiet else found.notices:
        output.message(notice)
    for collision in found.collisions:
        output.message(collision, "yellow")


def _row(machine: Machine) -> list[str]:
    models = [gpu["model"] for gpu in machine["gpus"]]
    gpus = ", ".join(f"{models.count(one)} {one}" for one in dict.fromkeys(models))
    cells = (machine["driver"], machine["system"], machine["kernel"], machine["engine"])
    more = (machine["kubelet"], machine["node"])
    return [machine["host"], gpus or _NOTHING, *(cell or _NOTHING for cell in (*cells, *more))]


def _print_document(chosen: list[Target], found: Found, prepared: Prepared | None) -> None:
    from metal_gpu.terminal import output

    inventory = prepared and {
        "path": str(prepared.path),
        "written": prepared.is_new,
        "lines": prepared.lines,
    }
    output.print_json({"asked": len(chosen), **found._asdict(), "inventory": inventory})


def _exit_code(found: Found, chosen: list[Target], *, strict: bool = False) -> int:
    """Return the exit code. What is no machine of ours in a network is nobody's problem."""
    targets = {(one.host, one.port): one for one in chosen}
    missing = [
        one
        for one in found.machines
        if not one["observed"]
        and not _may_be_foreign(one, targets[one["address"], one["port"]], strict=strict)
    ]
    if missing or not any(one["observed"] for one in found.machines):
        return exit_codes.NOT_ASKED
    return exit_codes.FOUND if found.collisions else exit_codes.OK


def _may_be_foreign(machine: Machine, target: Target, *, strict: bool) -> bool:
    """Tell whether a machine that was not observed can be a switch, or somebody else's machine."""
    if machine["finding"] is None:
        return target.is_member
    return target.is_of_many and not strict and _refuses_login(machine)


def _refuses_login(machine: Machine) -> bool:
    """Tell whether the machine itself refuses the login, and not a jump host before it."""
    found = machine["finding"] or {}
    return found.get("code") == "LOGIN_REFUSED" and found.get("host") == machine["host"]
