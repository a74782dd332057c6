# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups, hosts and variables in the content of a YAML inventory. No function does I/O.

A group can be defined in several places: at the top, and below the groups that contain it. What
stands in files of group_vars and host_vars is not here.

Source: https://docs.ansible.com/ansible/latest/collections/ansible/builtin/yaml_inventory.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from metal_gpu.inventory_yaml import expand, split_port

_SECTIONS = ("hosts", "children", "vars")
Path = tuple[str, ...]
Table = Mapping[str, object]
# Returns what files beside the inventory have for a variable, a host and groups; None: nothing.
Beside = Callable[[str, str, Sequence[str]], object]


class NotAnInventory(ValueError):
    """The content has not the form of a YAML inventory."""


class Definition(NamedTuple):
    """One place that defines a group."""

    path: Path
    name: str
    hosts: Mapping[str, Table]  # by their keys, such as gpu-1, gpu-1:2222 or gpu-[1:4]
    names: Mapping[str, list[str]]  # of each host, with the keys above that it is in
    ranges: frozenset[str]  # the keys above that have several hosts
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
        """Return where a host has a key of its own, in any group or in one and those in it."""
        groups = None if group is None else self.below(group)
        return [
            (*one.path, "hosts", key)
            for one in self.definitions
            if groups is None or one.name in groups
            for key in one.names.get(host, ())
            if key not in one.ranges
        ]

    def key(self, host: str) -> str:
        """Return how a host is written in another group.

        Ansible takes the port of the first key that it reads, so each key must have it.
        """
        keys = [key for one in self.definitions for key in one.names.get(host, ())]
        port = next((port for key in keys if (port := split_port(key)[1]) is not None), None)
        if port is None:
            return host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def of_host(self, host: str) -> list[str]:
        """Return the groups that a host is in, itself or by a range, also those around them."""
        return [
            name
            for name in dict.fromkeys(["all", *(one.name for one in self.definitions)])
            if any(host in inner.names for inner in self._inside(name))
        ]

    def own(self, host: str) -> dict[str, object]:
        """Return the variables at a host."""
        found: dict[str, object] = {}
        for one in self.definitions:
            for key in one.names.get(host, ()):
                port = split_port(key)[1]
                found = {**({} if port is None else {"ansible_port": port}), **found}
                found.update(one.hosts[key])
        return found

    def inherited(self, host: str) -> dict[str, object]:
        """Return the variables of a host's groups. Its own come before them."""
        found: dict[str, object] = {}
        for one in self.definitions:
            if any(host in inner.names for inner in self._inside(one.name)):
                found.update(one.variables)
        return found

    def _inside(self, name: str) -> list[Definition]:
        groups = self.below(name)
        is_all = name == "all"
        return [one for one in self.definitions if is_all or one.name in groups]

    def hosts(self) -> list[str]:
        """Return all hosts, also each host of a range such as gpu-[1:4]."""
        return list(dict.fromkeys(host for one in self.definitions for host in one.names))


class HostVariables(Mapping[str, object]):
    """The variables of a host in Ansible's order of precedence, also of files beside the inventory.

    Source: ansible-core 2.21, "Variable precedence" of its documentation
    """

    def __init__(
        self, groups: Groups, host: str, beside: Beside, more_groups: Sequence[str] = ()
    ) -> None:
        """`more_groups` are groups that the host is to be in."""
        self._host, self._beside = host, beside
        self._own = {"inventory_hostname": host, **groups.own(host)}
        self._inherited = groups.inherited(host)
        self._groups = list(dict.fromkeys([*groups.of_host(host), *more_groups]))

    def __getitem__(self, name: str) -> object:
        value = self._beside(name, self._host, ())
        if value is None:
            value = self._own.get(name)
        if value is None:
            value = self._beside(name, self._host, self._groups)
        if value is None:
            value = self._inherited[name]
        return value

    def __iter__(self) -> Iterator[str]:
        yield from {**self._inherited, **self._own}

    def __len__(self) -> int:
        return len({**self._inherited, **self._own})


def _names(keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the hosts of each key."""
    found: dict[str, tuple[str, ...]] = {}
    for key in keys:
        named = split_port(key)[0]
        try:
            found[key] = tuple(expand(named))
        except ValueError:  # no range, such as an IPv6 address in brackets
            found[key] = (named,)
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
        written = _table(table.get("hosts"), (*here, "hosts"))
        children = _table(table.get("children"), (*here, "children"))
        tables = {
            str(host): _table(of, (*here, "hosts", str(host))) for host, of in written.items()
        }
        hosts = _names(tables)
        names: dict[str, list[str]] = {}
        for key, several in hosts.items():
            for one in several:
                names.setdefault(one, []).append(key)
        yield Definition(
            here,
            str(name),
            tables,
            names,
            frozenset(key for key, several in hosts.items() if len(several) > 1),
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
