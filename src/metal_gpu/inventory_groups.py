# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups, hosts and variables in the content of a YAML inventory. No function does I/O.

A group can be defined in several places: at the top, and below the groups that contain it. What
stands in files of group_vars and host_vars is not here.

Source: https://docs.ansible.com/ansible/latest/collections/ansible/builtin/yaml_inventory.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from metal_gpu.inventory_yaml import expand

_SECTIONS = ("hosts", "children", "vars")
Path = tuple[str, ...]
Table = Mapping[str, object]


class NotAnInventory(ValueError):
    """The content has not the form of a YAML inventory."""


class Definition(NamedTuple):
    """One place that defines a group."""

    path: Path
    name: str
    hosts: Mapping[str, Table]  # as they are written: a range such as gpu-[1:4] is one
    names: Mapping[str, list[str]]  # of each host, with the ones above that it is in
    children: tuple[str, ...]
    variables: Table


class Groups:
    """All groups of an inventory."""

    def __init__(self, content: Table) -> None:
        """Raises NotAnInventory."""
        if "plugin" in content and not isinstance(content["plugin"], dict):
            raise NotAnInventory(
                f"it is the configuration of the inventory plugin {content['plugin']}"
            )
        self.definitions = tuple(_definitions(content, ()))

    def path(self, name: str) -> Path | None:
        """Return the first place that defines a group, best one that has hosts."""
        found = [one for one in self.definitions if one.name == name]
        found.sort(key=lambda one: not one.hosts)
        return found[0].path if found else None

    def below(self, name: str) -> set[str]:
        """Return the group and all groups in it."""
        result, waiting = set[str](), [name]
        while waiting:
            group = waiting.pop()
            if group not in result:
                result.add(group)
                for one in self.definitions:
                    if one.name == group:
                        waiting += one.children
        return result

    def places(self, host: str, group: str | None = None) -> list[Path]:
        """Return where a host is written, in any group or in one and those in it."""
        groups = None if group is None else self.below(group)
        return [
            (*one.path, "hosts", host)
            for one in self.definitions
            if host in one.hosts and (groups is None or one.name in groups)
        ]

    def of_host(self, host: str) -> list[str]:
        """Return the groups that a host is in, itself or by a range, also those around them."""
        return [
            name
            for name in dict.fromkeys(["all", *(one.name for one in self.definitions)])
            if any(host in inner.names for inner in self._inside(name))
        ]

    def variables(self, host: str) -> dict[str, object]:
        """Return the variables of a host; its own come before those of its groups."""
        own: dict[str, object] = {}
        inherited: dict[str, object] = {}
        for one in self.definitions:
            for pattern in one.names.get(host, ()):
                own.update(one.hosts[pattern])
            if any(host in inner.names for inner in self._inside(one.name)):
                inherited.update(one.variables)
        return {**inherited, **own}

    def _inside(self, name: str) -> list[Definition]:
        groups = self.below(name)
        is_all = name == "all"
        return [one for one in self.definitions if is_all or one.name in groups]

    def hosts(self) -> list[str]:
        """Return all hosts, also each host of a range such as gpu-[1:4]."""
        return list(dict.fromkeys(host for one in self.definitions for host in one.names))


def _names(patterns: Iterable[str]) -> dict[str, list[str]]:
    """Return the hosts of patterns, each with the patterns that it is in."""
    found: dict[str, list[str]] = {}
    for pattern in patterns:
        try:
            names = [*expand(pattern)]
        except ValueError:  # no range, such as an IPv6 address in brackets
            names = [pattern]
        for name in names:
            found.setdefault(name, []).append(pattern)
    return found


def _definitions(groups: Table, path: Path) -> Iterator[Definition]:
    for name, group in groups.items():
        here = (*path, str(name))
        table = _table(group, here)
        unknown = [key for key in table if key not in _SECTIONS]
        if unknown:
            raise NotAnInventory(
                f"{'.'.join(here)} has {unknown[0]!r}; a group has only hosts, children and vars"
            )
        hosts = _table(table.get("hosts"), (*here, "hosts"))
        children = _table(table.get("children"), (*here, "children"))
        tables = {str(host): _table(of, (*here, "hosts", str(host))) for host, of in hosts.items()}
        yield Definition(
            here,
            str(name),
            tables,
            _names(tables),
            tuple(map(str, children)),
            _table(table.get("vars"), (*here, "vars")),
        )
        yield from _definitions(children, (*here, "children"))


def _table(value: object, path: Path) -> Table:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise NotAnInventory(f"{'.'.join(path)} is {value!r}, expected a mapping")
    return value
