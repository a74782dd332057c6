# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which stages a playbook has, in understandable words.

A stage is a role of a play, or a play without roles. The file names the plays and the roles. What a
playbook includes while it runs belongs to the stage at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.components import COMPONENTS

# Two roles with the same words are one stage: a node has one engine.
WORDS = {
    **{one.role: one.words for one in COMPONENTS},
    "teardown": "Evict pods",
    "verify": "Proof of the GPUs",
}
_IMPORTS = ("ansible.builtin.import_role", "import_role")
# What only says how the run ends.
_WORDS = ("ansible.builtin.debug", "ansible.builtin.fail", "metal.gpu.fleet")
_NESTED = ("block", "always")


class Stage(NamedTuple):
    """A stage that is to come."""

    play: str
    title: str


def of_playbook(plays: object) -> list[Stage]:
    """Return the stages of a parsed playbook, in their order."""
    found: dict[Stage, None] = {}
    for play in _mappings(plays):
        # Without hosts, it is a playbook that is imported: the checks at the start and the end.
        if "hosts" not in play or _only_speaks(play):
            continue
        name = str(play.get("name", ""))
        roles = list(_roles(play))
        for role in roles:
            found[Stage(name, title(role))] = None
        if not roles:
            found[Stage(name, name)] = None
    return list(found)


def _only_speaks(play: Mapping[str, object]) -> bool:
    """Tell whether a play only says how many nodes are well, and which have failed."""
    tasks = [*_mappings(play.get("tasks"))]
    is_silent = any(task.keys().isdisjoint(_WORDS) for task in tasks)
    return bool(tasks) and not is_silent and not play.get("roles")


def title(role: str) -> str:
    """Return what people call the work of a role."""
    short = role.rpartition(".")[2]
    return WORDS.get(short, short.replace("_", " "))


def _roles(play: Mapping[str, object]) -> Iterator[str]:
    for role in _sequence(play.get("roles")):
        yield str(role["role"]) if isinstance(role, Mapping) else str(role)
    for part in ("pre_tasks", "tasks", "post_tasks"):
        yield from _imported(play.get(part))


def _imported(tasks: object) -> Iterator[str]:
    for task in _mappings(tasks):
        for key in _IMPORTS:
            role = task.get(key)
            if isinstance(role, Mapping):
                yield str(role["name"])
        for key in _NESTED:
            yield from _imported(task.get(key))


def _mappings(values: object) -> Iterator[Mapping[str, object]]:
    return (value for value in _sequence(values) if isinstance(value, Mapping))


def _sequence(values: object) -> Sequence[object]:
    return values if isinstance(values, list) else []
