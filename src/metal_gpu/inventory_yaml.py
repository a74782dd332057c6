# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a YAML inventory without Ansible, with group_vars and host_vars beside it.

Source: ansible-core 2.21, plugins/inventory/yaml.py, plugins/vars/host_group_vars.py, and
"Variable precedence" of its documentation.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from metal_gpu.inventory import Content, InventoryError
from metal_gpu.templates import Unsafe

_ANSIBLE = "only Ansible reads this: run `pip install '.[ansible]'` in a checkout of metal.gpu"
_SECTIONS = ("hosts", "vars", "children")
_RANGE = re.compile(r"\[([0-9]+|[A-Za-z]):([0-9]+|[A-Za-z])(?::([0-9]+))?\]")
# NAME:PORT, also with ranges in the name, and [IPV6]:PORT. An IPv6 address alone has no port.
_PORTS = (re.compile(r"\[(.+)\]:([0-9]+)"), re.compile(r"((?:[^:\[\]]|\[[^\]]*\])+):([0-9]+)"))
_EXTENSIONS = ("", ".yml", ".yaml", ".json")
_ENCRYPTED = "$ANSIBLE_VAULT"
_DEEPEST = 50  # groups in groups


class _Encrypted(InventoryError):
    """The whole file is."""


class _Loader(yaml.SafeLoader):
    """YAML with the tag that keeps Ansible from rendering a text."""


def _unsafe(loader: yaml.SafeLoader, node: yaml.Node) -> object:
    if isinstance(node, yaml.ScalarNode):
        return Unsafe(loader.construct_scalar(node))
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    return None


_Loader.add_constructor("!unsafe", _unsafe)


@dataclass
class _Group:
    variables: dict[str, object] = field(default_factory=dict)
    hosts: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)


@dataclass
class _Inventory:
    path: Path
    groups: dict[str, _Group] = field(default_factory=lambda: {"all": _Group()})
    hosts: dict[str, dict[str, object]] = field(default_factory=dict)
    obstacles: dict[str, str] = field(default_factory=dict)  # of hosts: the others go on


def load(path: Path) -> Content:
    """Return the content of a YAML inventory. Raises InventoryError."""
    if path.is_dir():
        raise InventoryError(f"{path} is a directory; {_ANSIBLE}")
    if path.stat().st_mode & 0o111:
        raise InventoryError(f"{path} is executable, so it is a script; {_ANSIBLE}")
    if path.suffix not in (".yml", ".yaml", ".json"):
        raise InventoryError(f"{path} does not end in .yml, so it is no YAML inventory; {_ANSIBLE}")
    inventory = _Inventory(path)
    _beside.cache_clear()
    loader, root = _compose(path)
    for name, node in _pairs(path, loader, root, "the inventory"):
        _read_group(inventory, loader, name, node)
    _read_files(inventory)
    groups = {name: tuple(dict.fromkeys(_members(inventory, name))) for name in inventory.groups}
    groups["all"] = tuple(inventory.hosts)
    order = _by_depth(inventory)
    variables = {
        name: _variables(inventory, groups, order, name, own)
        for name, own in inventory.hosts.items()
    }
    return Content(variables, groups, inventory.obstacles)


def check_syntax(path: Path) -> None:
    """Raise InventoryError with file and line if a file is not valid YAML.

    Nobody can tell of one that is encrypted.
    """
    with suppress(_Encrypted):
        _compose(path)


def _compose(path: Path) -> tuple[_Loader, yaml.Node | None]:
    try:
        text = path.read_text("utf-8")
        if text.startswith(_ENCRYPTED):
            raise _Encrypted(f"{path}, line 1: the file is encrypted; {_ANSIBLE}")
        loader = _Loader(text)
        return loader, loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise InventoryError(f"{path}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, OSError, ValueError) as error:
        raise InventoryError(f"{path}: {error}") from error


def _place(path: Path, node: yaml.Node) -> str:
    return f"{path}, line {node.start_mark.line + 1}"


def _value(path: Path, loader: _Loader, node: yaml.Node) -> object:
    try:
        return loader.construct_object(node, deep=True)
    except yaml.constructor.ConstructorError as error:
        mark = error.problem_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise InventoryError(f"{path}{line}: {error.problem}; {_ANSIBLE}") from error
    except ValueError as error:  # such as a date that does not exist
        raise InventoryError(f"{_place(path, node)}: {error}") from error


def _pairs(
    path: Path, loader: _Loader, node: yaml.Node | None, what: str
) -> Iterator[tuple[str, yaml.Node]]:
    """Yield the entries of a mapping. An empty value is an empty mapping."""
    if node is None or node.tag == "tag:yaml.org,2002:null":
        return
    if not isinstance(node, yaml.MappingNode):
        raise InventoryError(f"{_place(path, node)}: {what} is no mapping, expected NAME: ...")
    try:
        loader.flatten_mapping(node)
    except yaml.constructor.ConstructorError as error:
        raise InventoryError(f"{_place(path, node)}: {error.problem}") from error
    for key, value in node.value:
        yield str(_value(path, loader, key)), value


def _read_group(inventory: _Inventory, loader: _Loader, name: str, node: yaml.Node) -> None:
    path = inventory.path
    group = inventory.groups.setdefault(name, _Group())
    for section, content in _pairs(path, loader, node, f"the group {name}"):
        if section not in _SECTIONS:
            expected = ", ".join(_SECTIONS)
            raise InventoryError(
                f"{_place(path, content)}: the group {name} has {section}, expected {expected}"
            )
        entries = _pairs(path, loader, content, f"{section} of the group {name}")
        for key, value in entries:
            if section == "vars":
                group.variables[key] = _value(path, loader, value)
            elif section == "children":
                group.children.append(key)
                _read_group(inventory, loader, key, value)
            else:
                _read_host(inventory, group, loader, key, value)


def _read_host(
    inventory: _Inventory, group: _Group, loader: _Loader, pattern: str, node: yaml.Node
) -> None:
    path = inventory.path
    named, port = split_port(pattern)
    try:
        names = [*expand(named)]
    except ValueError as error:
        raise InventoryError(f"{_place(path, node)}: {error}") from error
    variables: dict[str, object] = {}
    for key, value in _pairs(path, loader, node, f"the host {pattern}"):
        try:
            variables[key] = _value(path, loader, value)
        except InventoryError as error:
            inventory.obstacles.update(dict.fromkeys(names, str(error)))
    if port is not None:
        variables.setdefault("ansible_port", port)
    for name in names:
        inventory.hosts.setdefault(name, {}).update(variables)
        group.hosts.append(name)


def split_port(key: str) -> tuple[str, int | None]:
    """Return the names that a key of `hosts` has, and its port."""
    for form in _PORTS:
        found = form.fullmatch(key)
        if found:
            return found[1], int(found[2])
    return key, None


def expand(pattern: str) -> Iterator[str]:
    """Yield the names of a pattern such as node[01:10] or rack[a:c]-[1:9:2]. Raises ValueError."""
    found = _RANGE.search(pattern)
    if found is None:
        if "[" in pattern or "]" in pattern:
            raise ValueError(f"the range in {pattern} is not valid, expected [1:9] or [a:c]")
        yield pattern
        return
    before, after = pattern[: found.start()], pattern[found.end() :]
    for item in _items(pattern, found[1], found[2], int(found[3] or 1)):
        for rest in expand(after):
            yield f"{before}{item}{rest}"


def _items(pattern: str, first: str, last: str, step: int) -> Iterator[str]:
    if step < 1 or first.isdecimal() != last.isdecimal():
        raise ValueError(f"the range in {pattern} is not valid, expected [1:9] or [a:c]")
    if first.isdecimal():
        # As many digits as the first number has.
        width = len(first) if first.startswith("0") else 0
        for number in range(int(first), int(last) + 1, step):
            yield f"{number:0{width}d}" if width else str(number)
        return
    letters = string.ascii_letters
    yield from letters[letters.index(first) : letters.index(last) + 1 : step]


def _members(inventory: _Inventory, name: str, depth: int = 0) -> Iterator[str]:
    if depth > _DEEPEST:
        raise InventoryError(f"{inventory.path}: the group {name} contains itself")
    group = inventory.groups[name]
    yield from group.hosts
    for child in group.children:
        yield from _members(inventory, child, depth + 1)


def _by_depth(inventory: _Inventory) -> list[str]:
    """Return the groups with parents before children, and by name, as Ansible merges them."""
    depths = dict.fromkeys(inventory.groups, 0)
    for _round in depths:
        for name, group in inventory.groups.items():
            for child in group.children:
                depths[child] = max(depths[child], depths[name] + 1)
    return sorted(depths, key=lambda name: (name != "all", depths[name], name))


def _variables(
    inventory: _Inventory,
    groups: Mapping[str, tuple[str, ...]],
    order: list[str],
    host: str,
    own: Mapping[str, object],
) -> dict[str, object]:
    """Return the variables of a host, with the later ones in precedence."""
    merged: dict[str, object] = {}
    mine = [name for name in order if host in groups[name]]
    for name in mine:
        merged |= inventory.groups[name].variables
    for name in mine:
        merged.update(_beside(inventory.path, "group_vars", name))
    merged |= own
    try:
        merged.update(_beside(inventory.path, "host_vars", host))
    except InventoryError as error:
        inventory.obstacles[host] = str(error)
    return merged


def _read_files(inventory: _Inventory) -> None:
    """Read the files of group_vars once, so that an error in one is reported without any host."""
    for name in inventory.groups:
        _beside(inventory.path, "group_vars", name)


@cache  # hundreds of hosts have the same groups
def _beside(path: Path, folder: str, name: str) -> Mapping[str, object]:
    """Return the variables of a file, or of all files of a directory, beside the inventory."""
    found: dict[str, object] = {}
    for file in _files(path, folder, name):
        loader, root = _compose(file)
        for key, node in _pairs(file, loader, root, "the file"):
            found[key] = _value(file, loader, node)
    return found


def _files(path: Path, folder: str, name: str) -> Iterator[Path]:
    for extension in _EXTENSIONS:
        place = path.parent / folder / f"{name}{extension}"
        if place.is_dir():
            found = sorted(one for one in place.rglob("*") if one.suffix in _EXTENSIONS)
            yield from (one for one in found if one.is_file())
        elif place.is_file():
            yield place
