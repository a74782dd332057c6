# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which machines a command asks, and how it logs in to them: the options, and what they mean."""

from __future__ import annotations

import difflib
import os
import resource
import shlex
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from metal_gpu.hosts import Host
    from metal_gpu.ssh.settings import Settings

_DEFAULT_GROUP = "gpu_nodes"
_THIS_MACHINE = "localhost"
_FILES = 65536
_NEAR = 0.8  # `gpu_node` and `gpu-nodes` are 0.88 and more
_OF_THE_FOLDER = "{path} in this folder names the machines. For this machine alone, add localhost."
_FROM_THE_FOLDER = "{path} in this folder says how to reach {names}."
_NOT_IN_THE_FOLDER = "{path} does not have {names}, which is looked up as ssh does."
_NO_INVENTORY = "Only this machine: the folder has no inventory.yml, and --inventory names none."
_IGNORED = (
    "{path} in this folder is ignored, as by Ansible: every user can write into the folder. "
    "{remedy}, or set ANSIBLE_CONFIG={path} to use the file nevertheless."
)
_NOT_OURS = "only --inventory FILE uses the inventory of Ansible's configuration."

Hosts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="HOST",
        help="Machines as `[USER@]ADDRESS[:PORT]`, or hosts and groups of the inventory. "
        "Without any: the group `gpu_nodes` of the inventory, or this machine if there is no "
        "inventory. `localhost` is this machine, without SSH.",
        show_default=False,
    ),
]
Inventory = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        "-i",
        metavar="FILE",
        help="An Ansible inventory. Without it, inventory.yml in this folder, unless Ansible's "
        "configuration names another one.",
    ),
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
        help="Add unknown host keys to known_hosts. Changed keys are still refused.",
    ),
]
Timeout = Annotated[
    float, typer.Option(min=1, help="Seconds to wait for a connection, and for a login.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only problems.")]


class Chosen(NamedTuple):
    """The machines that a command asks."""

    hosts: list[Host]
    options: str | None  # so that `metal-gpu site` takes the same; None: no inventory has them all
    note: str = ""  # what the user did not write
    is_warning: bool = False  # the note is also for those who want to read only what is wrong


def chosen(
    names: Sequence[str], path: Path | None, *, by_ssh: bool = False, quiet: bool = False
) -> Chosen:
    """Return the machines, or end the command with the reason. Say which they are by default.

    With `by_ssh`, localhost is a place that SSH reaches: another port of it, or behind a jump host.
    """
    from metal_gpu.terminal import exit_codes, output

    try:
        found = _choose(names, path, by_ssh=by_ssh)
    except (ValueError, LookupError) as error:
        output.error(str(error))
        raise typer.Exit(exit_codes.USAGE) from error
    if found.note and (not quiet or found.is_warning):
        output.message(found.note)
    distinct = {(one.name, one.address, one.port, one.user): one for one in found.hosts}
    return found._replace(hosts=[*distinct.values()])


def _choose(names: Sequence[str], path: Path | None, *, by_ssh: bool) -> Chosen:
    """Return the hosts that are named. Raises ValueError, and LookupError."""
    from metal_gpu.playbooks.options import ignored_config

    if path is not None:
        listed = _Inventory(path)
        return Chosen(listed.hosts(names), _options(names, path))
    if names and not any(map(_can_be_listed, names)):
        return Chosen(_parsed(names, by_ssh=by_ssh), None)
    found = _choose_here(names, by_ssh=by_ssh)
    if ignored := ignored_config(Path.cwd(), os.environ):
        # A sticky folder, such as /tmp, is to be one into which every user can write.
        is_shared = Path.cwd().stat().st_mode & stat.S_ISVTX
        remedy = "Use another folder" if is_shared else "Run `chmod o-w .`"
        words = _IGNORED.format(path=ignored.name, remedy=remedy)
        found = found._replace(note=f"{words} {found.note}".strip(), is_warning=True)
    return found


def _choose_here(names: Sequence[str], *, by_ssh: bool) -> Chosen:
    """Return the hosts by what this folder and Ansible's configuration have."""
    from metal_gpu.playbooks.options import configured_inventories, default_inventory

    own = default_inventory(Path.cwd(), os.environ)
    if not own:
        is_here, is_passed_over = not names, configured_inventories(Path.cwd(), os.environ)
        what = "Only this machine" if is_here else "Names mean the same as for ssh"
        note = f"{what}: {_NOT_OURS}" if is_passed_over else _NO_INVENTORY if is_here else ""
        hosts = [_this_machine()] if is_here else _parsed(names, by_ssh=by_ssh)
        return Chosen(hosts, None, note, is_warning=bool(is_passed_over))
    listed = _Inventory(Path(own[0]))
    note = _OF_THE_FOLDER.format(path=own[0])
    if not names:
        return Chosen(listed.hosts(()), "", note)
    ours = [name for name in names if _can_be_listed(name) and name in listed]
    others = [name for name in names if name not in ours]
    hosts = [*(listed.hosts(ours) if ours else ()), *_parsed(others, by_ssh=by_ssh)]
    unlisted = [name for name in others if _can_be_listed(name)]
    notes = [(_FROM_THE_FOLDER, ours), (_NOT_IN_THE_FOLDER, unlisted)]
    note = " ".join(
        words.format(path=own[0], names=", ".join(named)) for words, named in notes if named
    )
    return Chosen(hosts, None if others else _options(ours, None), note)


def _options(names: Sequence[str], path: Path | None) -> str:
    """Return the options of a playbook for the same machines, to be pasted after its name."""
    words = ["--inventory", str(path)] if path else []
    words += ["--limit", ",".join(names)] if names else []
    return "".join(f" {word}" for word in map(shlex.quote, words))


def _can_be_listed(name: str) -> bool:
    """Tell whether a word can be a name in an inventory, and not only a place in the network."""
    from metal_gpu.targets import is_address

    return not (name == _THIS_MACHINE or "@" in name or ":" in name or is_address(name))


def _parsed(names: Sequence[str], *, by_ssh: bool) -> list[Host]:
    """Return the hosts of the command line. Raises ValueError."""
    from metal_gpu.hosts import Host

    is_here = _THIS_MACHINE in names and not by_ssh
    others = [name for name in names if not (is_here and name == _THIS_MACHINE)]
    return [*([_this_machine()] if is_here else []), *Host.parse_all(others)]


def _this_machine() -> Host:
    from metal_gpu.hosts import Host

    return Host.this_machine(socket.gethostname())


class _Inventory:
    """The hosts and groups of an inventory. Raises LookupError if it cannot be used."""

    def __init__(self, path: Path) -> None:
        from metal_gpu import inventory

        self._path = path
        try:
            content = inventory.load(path)
            self._hosts = {one.name: one for one in inventory.hosts(content)}
        except inventory.InventoryError as error:
            raise LookupError(str(error)) from error
        self._groups = content.groups

    def __contains__(self, name: str) -> bool:
        return name in self._hosts or name in self._groups

    def hosts(self, names: Sequence[str]) -> list[Host]:
        """Return the hosts that are named; without names, those of gpu_nodes, or all."""
        if not names and self._groups.get(_DEFAULT_GROUP):
            names = [_DEFAULT_GROUP]
        if not names:
            self._check()
            return [*self._hosts.values()]
        unknown = [name for name in names if name not in self]
        if unknown:
            raise LookupError(f"{self._path} has no host and no group {', '.join(unknown)}")
        members = [one for name in names for one in self._groups.get(name, (name,))]
        return [self._hosts[name] for name in members]

    def _check(self) -> None:
        """Raise LookupError if somebody has meant a group gpu_nodes that has no hosts."""
        near = difflib.get_close_matches(_DEFAULT_GROUP, self._groups, 1, _NEAR)
        if near and near[0] != _DEFAULT_GROUP:
            raise LookupError(f"{self._path} has a group {near[0]}; did you mean {_DEFAULT_GROUP}?")
        if not self._hosts or near:
            what = f"the group {_DEFAULT_GROUP} of {self._path}" if near else self._path
            raise LookupError(f"{what} has no hosts. They belong below `hosts:` of a group")


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

    _open_many()
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


def _open_many() -> None:
    """Permit as many open files as a fleet needs, as far as the user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _ask(prompt: str) -> str:
    import getpass

    return getpass.getpass(prompt)
