# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a component is: one thing that a role puts on a node, or into the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Engine(NamedTuple):
    """What people call a container engine, and a part of the name of its socket."""

    title: str
    socket: str


@dataclass(frozen=True)
class Component:
    """A row of the list in components/__init__.py.

    The name is that of the folder with its planner, and the one in findings about drift. Python
    packages and repositories are patterns for metal.gpu.node_info.
    """

    name: str
    role: str  # with an underscore, the prefix of its variables
    tag: str  # of the role in playbooks; empty: it always runs
    words: str  # for people, about the stage of a run
    where: Literal["node", "cluster"] = "node"
    is_for_site: bool = True  # metal.gpu.site runs the role
    has_own_prefix: bool = False  # no other tool has variables with the prefix of the role
    engine: Engine | None = None  # only nodes with this engine need the role
    packages: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
