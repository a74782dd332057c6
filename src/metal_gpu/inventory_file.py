# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machines of a scan as an inventory for Ansible: a new file, or what an existing one lacks.

A file that exists is never written: its layout and its comments are the admin's.
Only `prepare` and `save` do I/O, and only `save` changes anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import yaml as document_yaml
from metal_gpu import inventory, replace_file
from metal_gpu.playbooks import options

GROUP = "gpu_nodes"
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
    """The file cannot be used; the message names it. It is unchanged."""


class Entry(NamedTuple):
    """A machine of the inventory."""

    name: str
    address: str
    gpu_count: int
    groups: tuple[str, ...]  # one for each model
    variables: Mapping[str, object]  # of its connection, besides the address


class Prepared(NamedTuple):
    """What `save` would write, or what is left to the admin."""

    path: Path
    is_new: bool
    lines: str  # of the new file, or those that an existing one lacks
    collisions: tuple[str, ...]  # what the inventory and the scan say differently


def prepare(path: Path, entries: Sequence[Entry]) -> Prepared:
    """Return the new file, or what the existing one lacks. Raises InventoryRefused."""
    if not path.exists():
        if path.is_symlink() or not path.parent.is_dir():
            raise InventoryRefused(f"cannot write {path}: its folder does not exist")
        is_quiet = not options.names_interpreter(Path.cwd(), os.environ)
        return Prepared(path, True, _new(path, entries, is_quiet=is_quiet), ())
    try:
        hosts = inventory.hosts(inventory.load(path))
    except inventory.InventoryError as error:
        raise InventoryRefused(str(error)) from error
    known = {key: one for one in hosts for key in (one.name, one.address)}
    pairs = [(one, known.get(one.address) or known.get(one.name)) for one in entries]
    missing = [entry for entry, host in pairs if host is None]
    collisions = [
        f"{host.name}: gpu_count is {host.variables['gpu_count']} in {path}, and the machine has "
        f"{entry.gpu_count} GPUs"
        for entry, host in pairs
        if host and str(host.variables.get("gpu_count", entry.gpu_count)) != str(entry.gpu_count)
    ]
    if missing:
        names = ", ".join(one.name for one in missing)
        collisions.append(f"{path} lacks {names}: add the lines above to it")
    lines = document_yaml.edit("", _content(missing, {}, {})) if missing else ""
    return Prepared(path, False, lines, tuple(collisions))


def save(prepared: Prepared) -> None:
    """Write a new file. Raises InventoryRefused, also if there is one by now."""
    if prepared.path.exists():
        raise InventoryRefused(f"{prepared.path} has appeared since the scan began")
    with _writing(prepared.path):
        replace_file.replace(prepared.path, prepared.lines)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InventoryRefused(f"cannot write {path}: {error.strerror}") from error


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
    python = {"ansible_python_interpreter": "auto_silent"} if is_quiet else {}
    variables = {**shared, **python, "ansible_pipelining": True}
    body = document_yaml.edit("", _content(entries, shared, variables))
    shown = str(path) if " " not in str(path) else f"'{path}'"
    head = _HEAD.replace("{path}", shown)
    marker = "    ansible_pipelining: true\n"
    return head + body.replace(marker, marker + _HINTS, 1)


def _content(
    entries: Sequence[Entry], shared: Mapping[str, object], variables: Mapping[str, object]
) -> dict[str, object]:
    """Return the groups of the machines. What is `shared` stands in the variables of the group."""
    nodes: dict[str, object] = {}
    content: dict[str, object] = {GROUP: {"hosts": nodes}}
    if variables:
        content[GROUP] = {"hosts": nodes, "vars": {**variables}}
    models: dict[str, dict[str, object]] = {}
    for entry in entries:
        own = {name: value for name, value in entry.variables.items() if name not in shared}
        nodes[entry.name] = {**_address(entry), **own, "gpu_count": entry.gpu_count}
        for group in entry.groups:
            models.setdefault(group, {})[entry.name] = {}
    return {**content, **{group: {"hosts": hosts} for group, hosts in models.items()}}


def _address(entry: Entry) -> dict[str, object]:
    return {} if entry.address == entry.name else {"ansible_host": entry.address}
