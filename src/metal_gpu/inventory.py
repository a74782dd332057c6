# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts of an Ansible inventory, as ansible-core reads it in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from metal_gpu.hosts import Host

# Otherwise a file that cannot be parsed is an empty inventory with a warning, for Ansible.
STRICT = "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED"
_PROGRAM = "ansible-inventory"
_TIMEOUT_S = 300  # a script of the inventory may ask a cloud
# Why the two readers of YAML cannot parse a file: that of plugins, and that of hosts.
# Source: run with ansible-core 2.16.19, 2.19.14 and 2.21.5
_OF_YAML = re.compile(r"with '?(?:auto|yaml)'? plugin:\s((?:[^\[\n].*\n)+)")
_OF_THE_OTHER = ("no root 'plugin' key", "Plugin configuration YAML file")
# What Ansible says about a file in its own format, once around the reason and once as the reason.
_REASON = re.compile(r"Failed to parse inventory: (.+)")
_GOT = re.compile(r", got: (.+)")


class InventoryError(Exception):
    """The inventory cannot be used. The message names the file, and the line where there is one."""


class Content(NamedTuple):
    """What an inventory has."""

    variables: Mapping[str, Mapping[str, object]]  # of each host, in the order of the file
    groups: Mapping[str, tuple[str, ...]]  # the hosts of each group, also those of its children


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
    from metal_gpu import connection_variables

    variables, groups = content
    return [
        connection_variables.host(name, variables[name], groups, variables)
        for name in (variables if names is None else names)
    ]


def load(path: Path) -> Content:
    """Return the hosts with their variables, and the groups. Raises InventoryError."""
    from metal_gpu.playbooks.options import untrusted_config

    if not path.exists():
        raise InventoryError(f"{path} does not exist")
    if why := untrusted_config(Path.cwd(), os.environ):
        raise InventoryError(why)
    programs = _programs()
    if not programs:
        raise InventoryError(
            f"{path}: ansible-inventory, which reads it, is neither beside {sys.executable} nor in "
            "PATH. Install ansible-core"
        )
    for program in programs[:-1]:
        with suppress(InventoryError):
            return _ask(program, path)
    return _ask(programs[-1], path)


def _programs() -> list[str]:
    """Return the programs of ansible-core that read inventories.

    That of this Python comes first. Another one may have the collections of a dynamic inventory.
    """
    beside = str(Path(sys.executable).with_name(_PROGRAM))
    return [*dict.fromkeys(filter(None, map(shutil.which, (beside, _PROGRAM))))]


def _ask(program: str, path: Path) -> Content:
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
            check_syntax(path)  # Ansible adds what its other plugins say about it
        raise InventoryError(_why(path, result.stderr.decode(errors="replace")))
    try:
        listed = json.loads(result.stdout, object_hook=_marked)
    except ValueError as error:
        raise InventoryError(f"{path}: {program} printed no JSON: {error}") from error
    variables = listed.pop("_meta", {}).get("hostvars", {})
    groups = {name: tuple(dict.fromkeys(_hosts(listed, name))) for name in listed}
    # Only hosts with variables are in _meta.
    names = dict.fromkeys([*groups.get("all", ()), *variables])
    return Content({name: variables.get(name, {}) for name in names}, groups)


def _marked(value: dict[str, object]) -> object:
    """Return what `!unsafe` in YAML keeps from being rendered."""
    from metal_gpu.templates import Unsafe

    return Unsafe(value["__ansible_unsafe"]) if "__ansible_unsafe" in value else value


def check_syntax(path: Path) -> None:
    """Raise InventoryError with file and line if a file is not valid YAML.

    Nobody can tell of one that is encrypted.
    """
    import yaml

    try:
        text = path.read_text("utf-8")
        if not text.startswith("$ANSIBLE_VAULT"):
            yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise InventoryError(f"{path}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, OSError, ValueError) as error:
        raise InventoryError(f"{path}: {error}") from error


def _why(path: Path, said: str) -> str:
    """Return why Ansible cannot parse an inventory, with the line if it can be found."""
    of_yaml = [" ".join(reason.split()) for reason in _OF_YAML.findall(said)]
    meant = [reason for reason in of_yaml if not reason.startswith(_OF_THE_OTHER)]
    if meant and path.suffix in (".yml", ".yaml"):
        return f"{path}: {meant[-1]}"
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
