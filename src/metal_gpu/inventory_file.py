# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the machines of a scan into a YAML inventory for Ansible.

A new file has only them. An existing one is merged: its text is edited by position, so comments,
order and values stay. What it already says of a machine wins, and a difference is a collision. A
machine that may be there under another name is a collision as well, and is not written.
Only `prepare` and `save` do I/O, and only `save` changes anything.
"""

from __future__ import annotations

import copy
import difflib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import yaml as document_yaml
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    DocumentError,
    Malformed,
)
from metal_gpu import inventory_machines, inventory_yaml, replace_file
from metal_gpu.inventory import InventoryError
from metal_gpu.inventory_groups import Beside, Groups, HostVariables, NotAnInventory
from metal_gpu.inventory_machines import AddressesOf, Wanted
from metal_gpu.playbooks import options

GROUP = "gpu_nodes"
_VAULT = "$ANSIBLE_VAULT;"
# What the hosts of a new file may have in common.
_SHARED = ("ansible_user", "ansible_ssh_private_key_file", "ansible_ssh_common_args")
_HEAD = """\
---
# Machines with NVIDIA GPUs, found by `metal-gpu scan`. Prepare and prove them:
#   metal-gpu site -i {path}
#   ansible-playbook -i {path} metal.gpu.site
"""
_HINTS = """\
    # The cluster that the machines belong to:
    # metal_gpu_kubeconfig: ~/.kube/config
"""


class InventoryRefused(ValueError):
    """The file cannot be merged; the message has file and line. It is unchanged."""


class Entry(NamedTuple):
    """A machine of the inventory."""

    name: str
    address: str
    gpu_count: int
    groups: tuple[str, ...]  # one for each model
    variables: Mapping[str, object]  # of its connection, besides the address
    hostname: str = ""  # that the machine calls itself
    other_addresses: tuple[str, ...] = ()  # where it answers as well

    @property
    def port(self) -> str:
        return str(self.variables.get("ansible_port", inventory_machines.SSH_PORT))


class Prepared(NamedTuple):
    """What `save` would write."""

    path: Path
    before: str | None  # None: a new file
    after: str
    collisions: tuple[str, ...]  # what the inventory and the scan say differently

    @property
    def is_changed(self) -> bool:
        return self.before != self.after

    @property
    def diff(self) -> str:
        """Return the change as a unified diff; empty without a change."""
        old = "" if self.before is None else self.before
        source = "/dev/null" if self.before is None else str(self.path)
        lines = difflib.unified_diff(
            old.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            source,
            str(self.path),
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )


def prepare(path: Path, entries: Sequence[Entry], source: Path | None = None) -> Prepared:
    """Return the file as it would be: new, or the source merged. Raises InventoryRefused.

    The source is the file itself, unless another file is to have the result.
    """
    before = _read(source or path)
    with _writing(path):
        replace_file.check(path)
    if before is None:
        is_quiet = not options.names_interpreter(Path.cwd(), os.environ)
        return Prepared(path, None, _new(path, entries, is_quiet=is_quiet), ())
    place = source or path
    after, collisions = merge(
        str(place), before, entries, _beside(place), inventory_machines.addresses_of
    )
    return Prepared(path, None if source else before, after, tuple(collisions))


def save(prepared: Prepared) -> None:
    """Write the file, if it is still as it was. Raises InventoryRefused."""
    if not prepared.is_changed:
        return
    if _read(prepared.path) != prepared.before:
        raise InventoryRefused(
            f"{prepared.path}: the file has changed since it was read. Run the scan again"
        )
    with _writing(prepared.path):
        replace_file.replace(prepared.path, prepared.after)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InventoryRefused(f"cannot write {path}: {error.strerror}") from error


def _read(path: Path) -> str | None:
    """Return the text of an inventory; None if there is no file."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InventoryRefused(
                f"{path} is a folder. Name a YAML file in it, such as {path / 'scan.yml'}"
            )
        if not stat.S_ISREG(status.st_mode):
            raise InventoryRefused(f"{path} is not a regular file")
        content = path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink() or not path.parent.is_dir():
            raise InventoryRefused(f"cannot write {path}: its folder does not exist") from None
        return None
    except OSError as error:
        raise InventoryRefused(f"cannot read {path}: {error.strerror}") from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InventoryRefused(f"{path}, line {line}: the text is not UTF-8") from error
    if text.startswith(_VAULT):
        raise InventoryRefused(
            f"{path}, line 1: the file is encrypted with Ansible Vault. Keep the secrets in "
            "another file, such as group_vars, or name another file with --output"
        )
    if text.startswith("#!"):
        raise InventoryRefused(
            f"{path}, line 1: the file is a program that prints an inventory. Name another file"
        )
    return text


def _new(path: Path, entries: Sequence[Entry], *, is_quiet: bool) -> str:
    """Return the text of a new inventory.

    With `is_quiet`, Ansible does not warn on each host that it has looked for Python. The variable
    would come before a Python that its configuration names.
    """
    rows = [dict(one.variables) for one in entries]
    shared = {
        name: rows[0][name]
        for name in _SHARED
        if rows and name in rows[0] and all(row.get(name) == rows[0][name] for row in rows)
    }
    hosts = {}
    for entry, row in zip(entries, rows, strict=True):
        own = {name: value for name, value in row.items() if name not in shared}
        hosts[entry.name] = {**_address(entry), **own, "gpu_count": entry.gpu_count}
    python = {"ansible_python_interpreter": "auto_silent"} if is_quiet else {}
    content: dict[str, object] = {
        GROUP: {"hosts": hosts, "vars": {**shared, **python, "ansible_pipelining": True}}
    }
    for entry in entries:
        for group in entry.groups:
            table = content.setdefault(group, {"hosts": {}})
            assert isinstance(table, dict)
            table["hosts"][entry.name] = {}
    body = document_yaml.edit("", content)
    shown = str(path) if " " not in str(path) else f"'{path}'"
    head = _HEAD.replace("{path}", shown)
    marker = "    ansible_pipelining: true\n"
    return head + body.replace(marker, marker + _HINTS, 1)


def _address(entry: Entry) -> dict[str, object]:
    return {} if entry.address == entry.name else {"ansible_host": entry.address}


def _beside(path: Path) -> Beside:
    """Return what tells the variables that group_vars or host_vars declare."""
    if not any((path.parent / folder).is_dir() for folder in ("group_vars", "host_vars")):
        return lambda _variable, _host, _groups: None

    def read(variable: str, host: str, groups: Sequence[str]) -> object:
        try:
            return inventory_yaml.beside(path, variable, host, groups)
        except InventoryError as error:
            raise InventoryRefused(str(error)) from error

    return read


def merge(
    name: str,
    text: str,
    entries: Sequence[Entry],
    beside: Beside = lambda _variable, _host, _groups: None,
    addresses_of: AddressesOf = lambda _names: {},
) -> tuple[str, list[str]]:
    """Return the text of an inventory with the machines added, and what differs.

    `beside` tells the variables that other files have, and `addresses_of` looks up names.

    Raises InventoryRefused, with file and line.
    """
    try:
        reading = documents.read(text, "yaml")
    except Malformed as error:
        raise InventoryRefused(
            f"{name}, {error}. Only inventories in YAML can be merged; --output writes another file"
        ) from error
    if reading.obstacle:
        raise InventoryRefused(f"{name}, {reading.obstacle}")
    content = copy.deepcopy(reading.content)
    collisions: list[str] = []
    try:
        groups = Groups(content)
        hosts = [
            inventory_machines.known(one, HostVariables(groups, one, beside))
            for one in groups.hosts()
        ]
        machines = [
            Wanted(one.name, one.address, one.port, one.hostname, one.other_addresses)
            for one in entries
        ]
        matches = inventory_machines.match(hosts, machines, addresses_of)
        for entry, match in zip(entries, matches, strict=True):
            if match.doubt:
                collisions.append(match.doubt)
            else:
                _add(content, entry, match.host, collisions, beside)
        if content == reading.content:
            return text, collisions
        return documents.render(text, "yaml", content), collisions
    except NotAnInventory as error:
        raise InventoryRefused(f"{name}: this is no YAML inventory: {error}") from error
    except DocumentError as error:
        raise InventoryRefused(f"{name}: cannot be edited: {error}") from error


def _add(
    content: dict[str, object],
    entry: Entry,
    known_as: str | None,
    collisions: list[str],
    beside: Beside,
) -> None:
    """Add a machine to the content of an inventory, or what is new about it."""
    groups = Groups(content)
    name = known_as or entry.name
    base = _base(groups)
    place = next(iter(groups.places(name, GROUP)), None)
    if place is None:
        place = (*(groups.path(GROUP) or (*base, GROUP)), "hosts", groups.key(name))
    new = {} if known_as else {**_address(entry), **entry.variables}
    mine = groups.of_host(name)
    variables = HostVariables(groups, name, beside, (GROUP, *entry.groups))
    declared = variables.get("gpu_count")
    if declared is None:
        new["gpu_count"] = entry.gpu_count
    elif str(declared) != str(entry.gpu_count):
        collisions.append(
            f"{name}: gpu_count is {declared} in the inventory, and the machine has "
            f"{entry.gpu_count} GPUs; the inventory is kept"
        )
    if new or GROUP not in mine:  # a host of a range is written only if it has something of its own
        table = _table_at(content, place)
        table.update({key: value for key, value in new.items() if key not in table})
    for group in entry.groups:
        if group not in mine:
            path = groups.path(group) or (*base, group)
            _table_at(content, (*path, "hosts", groups.key(name)))


def _base(groups: Groups) -> tuple[str, ...]:
    """Return where new groups belong: beside the group of GPU nodes, or below `all`."""
    path = groups.path(GROUP)
    if path:
        return path[:-1]
    tops = {one.path[0] for one in groups.definitions}
    return ("all", "children") if tops == {"all"} else ()


def _table_at(content: dict[str, object], path: Sequence[str]) -> dict[str, object]:
    """Return the table at a path; missing ones are created."""
    table = content
    for key in path:
        inner = table.get(key)
        if not isinstance(inner, dict):
            inner = {}
            table[key] = inner
        table = inner
    return table
