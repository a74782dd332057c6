# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils import succession

NOW = 1000.0


class Role:
    """A role as Ansible has it in a play. A role that it includes has it as its parent."""

    def __init__(self, name: str, *parents: Role, imported: bool = False) -> None:
        self._name, self._parents, self.from_include = name, parents, imported

    def get_name(self) -> str:
        return self._name

    def get_parents(self) -> tuple[Role, ...]:
        return self._parents


class Play:
    _uuid = "play"

    def __init__(self, *roles: Role) -> None:
        self._roles = roles

    def get_roles(self) -> list[Role]:
        return [*self._roles]


class Task:
    """The task that plans, in the role that plans for the role of the play."""

    def __init__(self, play: Play, role: Role | None) -> None:
        self._play = play
        self._role = role and Role("metal.gpu.preflight", role, imported=True)

    def get_play(self) -> Play:
        return self._play


DRIVER, DOCKER = Role("metal.gpu.nvidia_driver"), Role("metal.gpu.docker_ce")
RUNTIME, THEIRS = Role("metal.gpu.nvidia_container_runtime"), Role("acme.motd")


def test_role_that_follows_another() -> None:
    play = Play(THEIRS, DRIVER, DOCKER, RUNTIME)
    earlier = succession.place(Task(play, DRIVER), NOW)
    assert earlier == {"play": "play", "role": 1, "at": NOW}
    assert succession.follows(Task(play, DOCKER), earlier, NOW + 60)
    assert succession.follows(Task(play, RUNTIME), earlier, NOW + 60)


BEFORE = {"play": "play", "role": 0, "at": NOW}


@pytest.mark.parametrize(
    ("roles", "earlier", "now"),
    [
        pytest.param((DRIVER, THEIRS, DOCKER), BEFORE, NOW, id="a role of others between"),
        pytest.param((DRIVER, DOCKER), BEFORE | {"play": "other"}, NOW, id="another play or run"),
        pytest.param((DOCKER, DRIVER), BEFORE, NOW, id="the role itself"),
        pytest.param((DRIVER, DOCKER), BEFORE, NOW + 301, id="long ago"),
        pytest.param((DRIVER, DOCKER), BEFORE, NOW - 1, id="a clock that was set back"),
        pytest.param((DRIVER, DOCKER), None, NOW, id="not observed"),
        pytest.param((DRIVER,), BEFORE, NOW, id="a role of a task"),
    ],
)
def test_role_that_observes(roles: tuple[Role, ...], earlier: Any, now: float) -> None:
    assert not succession.follows(Task(Play(*roles), DOCKER), earlier, now)


def test_roles_of_tasks_are_in_no_order() -> None:
    """Ansible adds them to the roles of the play."""
    imported = Role("metal.gpu.docker_ce", imported=True)
    play = Play(DRIVER, imported)
    assert succession.place(Task(play, imported), NOW) is None
    assert not succession.follows(Task(play, imported), BEFORE, NOW)
    assert succession.place(Task(play, None), NOW) is None
