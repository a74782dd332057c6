# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is the observation of an earlier role of a play still true? No function does I/O.

Two of our roles in a row, in the `roles` of a play, need only one observation: nothing else runs on
the node between them. Anywhere else, tasks of the user may have changed the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

_OURS = "metal.gpu."
# Other hosts may have kept this one waiting, for example with their reboots.
_LIMIT_S = 300


class Role(Protocol):
    """A role of Ansible's, as far as needed here."""

    from_include: bool

    def get_name(self) -> str:
        """Return the name, with the collection."""

    def get_parents(self) -> Sequence[Role]:
        """Return the roles that depend on this one."""


class Play(Protocol):
    _uuid: str

    def get_roles(self) -> Sequence[Role]:
        """Return the roles below `roles:`, without their dependencies."""


class Task(Protocol):
    @property
    def _role(self) -> Role | None:
        """The role that the task is from."""

    def get_play(self) -> Play:
        """Return the play that the task is in."""


class Place(TypedDict):
    """Who observed, where and when."""

    play: str
    role: int  # its place in the roles of the play
    at: float  # in seconds since the epoch


def place(task: Task, now: float) -> Place | None:
    """Return the place of a task in the roles of its play; None if it is not in one of ours."""
    role = task._role
    while role is not None and role.get_parents():
        role = role.get_parents()[0]
    play = task.get_play()
    for index, one in enumerate(_roles(play) if role is not None else ()):
        if one is role and _is_ours(one):
            return {"play": play._uuid, "role": index, "at": now}
    return None


def follows(task: Task, earlier: Place | None, now: float) -> bool:
    """Tell whether only roles of ours can have run on the node since an earlier observation."""
    here = place(task, now)
    if here is None or not earlier or earlier["play"] != here["play"]:
        return False
    between = _roles(task.get_play())[earlier["role"] : here["role"]]
    is_recent = 0 <= now - earlier["at"] < _LIMIT_S
    return bool(between) and all(map(_is_ours, between)) and is_recent


def _roles(play: Play) -> list[Role]:
    """Return the `roles` of a play. Ansible adds those that tasks import or include."""
    return [role for role in play.get_roles() if not role.from_include]


def _is_ours(role: Role) -> bool:
    return role.get_name().startswith(_OURS)
