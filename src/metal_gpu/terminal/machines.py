# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which machines a command asks, and how it logs in to them: the options, and what they mean."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from metal_gpu.hosts import Host
    from metal_gpu.ssh.settings import Settings

_DEFAULT_GROUP = "gpu_nodes"

Hosts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="HOST",
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
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only what needs somebody.")]


def _choose(names: Sequence[str], path: Path | None) -> list[Host]:
    """Return the hosts that are named, each once. Raises ValueError, and LookupError."""
    from metal_gpu.hosts import Host

    if path is None:
        named = Host.parse_all(names)
        found = named or [Host.this_machine(socket.gethostname())]
    else:
        found = _of_inventory(names, path)
    return [*{(one.name, one.address, one.port, one.user): one for one in found}.values()]


def chosen(names: Sequence[str], path: Path | None) -> list[Host]:
    """Return the hosts that are named, or end the command with the reason."""
    from metal_gpu.terminal import exit_codes, output

    try:
        return _choose(names, path)
    except (ValueError, LookupError) as error:
        output.error(str(error))
        raise typer.Exit(exit_codes.USAGE) from error


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


def settings(
    *,
    user: str | None,
    port: int | None,
    identity: Path | None,
    jump: str | None,
    ask_pass: bool,
    ask_become_pass: bool,
    accept_new_host_keys: bool,
    timeout_s: float,
) -> Settings:
    """Return how to log in. Asks for the passwords that the options announce."""
    from metal_gpu.ssh.settings import Settings

    return Settings(
        user=user,
        port=port,
        key_file=str(identity) if identity else None,
        jump=jump,
        password=_ask("SSH password: ") if ask_pass else None,
        become_password=_ask("sudo password: ") if ask_become_pass else None,
        accept_new_host_keys=accept_new_host_keys,
        timeout_s=timeout_s,
    )


def _ask(prompt: str) -> str:
    import getpass

    return getpass.getpass(prompt)
