# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of an Ansible inventory.

If ansible-core is installed, it reads the inventory itself. Otherwise YAML inventories can be read,
with their group_vars and host_vars.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from metal_gpu.hosts import Host

# Otherwise a file that cannot be parsed is an empty inventory with a warning, for Ansible.
STRICT = "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED"
_TIMEOUT_S = 300  # a script of the inventory may ask a cloud
# What Ansible says about a file in its own format, once around the reason and once as the reason.
_REASON = re.compile(r"Failed to parse inventory: (.+)")
_GOT = re.compile(r", got: (.+)")


class InventoryError(Exception):
    """The inventory cannot be used. The message names the file, and the line where there is one."""


class Content(NamedTuple):
    """What an inventory has."""

    variables: Mapping[str, Mapping[str, object]]  # of each host, in the order of the file
    groups: Mapping[str, tuple[str, ...]]  # the hosts of each group, also those of its children
    obstacles: Mapping[str, str] = {}  # of hosts whose own variables cannot be read


def read(path: str | Path, group: str | None = None) -> list[Host]:
    """Return the hosts of an inventory, or of one group of it, in its order.

    A host whose own variables cannot be used has an obstacle. Raises InventoryError.
    """
    content = load(Path(path))
    if group is not None and group not in content.groups:
        known = ", ".join(sorted(content.groups)) or "none"
        raise InventoryError(f"{path} has no group {group}; its groups: {known}")
    return hosts(content, None if group is None else content.groups[group])


def hosts(content: Content, names: Iterable[str] | None = None) -> list[Host]:
    """Return the hosts of an inventory that is loaded: all, or those that are named."""
    return [_host(content, name) for name in (content.variables if names is None else names)]


def _host(content: Content, name: str) -> Host:
    from metal_gpu import connection_variables

    variables = content.variables[name]
    if name in content.obstacles:
        return Host(name, name, variables=variables, obstacle=content.obstacles[name])
    return connection_variables.host(name, variables, content.groups, content.variables)


def load(path: Path) -> Content:
    """Return the hosts with their variables, and the groups. Raises InventoryError."""
    if not path.exists():
        raise InventoryError(f"{path} does not exist")
    program = ansible_inventory()
    if program is not None:
        return _ask_ansible(program, path)
    from metal_gpu import inventory_yaml

    return inventory_yaml.load(path)


def ansible_inventory() -> str | None:
    """Return the program of ansible-core that reads inventories, if there is one.

    That of this Python comes first. Another one can be of another environment.
    """
    beside = Path(sys.executable).with_name("ansible-inventory")
    return str(beside) if beside.exists() else shutil.which("ansible-inventory")


def _ask_ansible(program: str, path: Path) -> Content:
    from metal_gpu.playbooks.options import untrusted_config

    if why := untrusted_config(Path.cwd(), os.environ):
        raise InventoryError(why)
    environment = {
        **os.environ,
        STRICT: "true",
        "ANSIBLE_NOCOLOR": "true",
    }
    try:
        result = subprocess.run(
            [program, "--inventory", str(path), "--list"],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InventoryError(f"{path}: {program}: {error}") from error
    if result.returncode:
        if path.is_file() and path.suffix in (".yml", ".yaml"):
            from metal_gpu import inventory_yaml

            inventory_yaml.check_syntax(path)  # Ansible adds what its other plugins say about it
        raise InventoryError(_why(path, result.stderr.decode(errors="replace")))
    try:
        listed = json.loads(result.stdout)
    except ValueError as error:
        raise InventoryError(f"{path}: {program} printed no JSON: {error}") from error
    variables = listed.pop("_meta", {}).get("hostvars", {})
    groups = {name: tuple(dict.fromkeys(_hosts(listed, name))) for name in listed}
    # Only hosts with variables are in _meta.
    names = dict.fromkeys([*groups.get("all", ()), *variables])
    return Content({name: variables.get(name, {}) for name in names}, groups)


def _why(path: Path, said: str) -> str:
    """Return why Ansible cannot parse an inventory, with the line if it can be found."""
    reasons = _REASON.findall(said)
    if not reasons or not path.is_file():
        return f"{path} cannot be parsed: {' '.join(said.split())}"
    got = _GOT.search(reasons[-1])
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
        is_open = line.startswith("[") and "]" not in line
        if got[1] in line if got else is_open:
            words = "a section without ]" if is_open else reasons[-1]
            return f"{path}, line {number}: {words}"
    return f"{path} cannot be parsed: {reasons[-1]}"


def _hosts(listed: Mapping[str, Mapping[str, list[str]]], group: str) -> Iterator[str]:
    yield from listed.get(group, {}).get("hosts", ())
    for child in listed.get(group, {}).get("children", ()):
        yield from _hosts(listed, child)
