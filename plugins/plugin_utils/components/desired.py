# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What do the variables of a role ask for on a node? No function does I/O.

The argument specification of the role has the names and the types. A plan gets each variable under
its name without the role's prefix: `Desired` in a component's shapes.py has those that it uses,
and a test compares them with the specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.booleans import boolean
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.variables import load_options, whole_number

State = Literal["present", "absent"]
Engine = Literal["auto", "containerd", "docker", "crio"]

# Unlike templates, placeholders work in variables before the node is observed (decision 008).
PLACEHOLDERS: tuple[Literal["id", "version_id", "codename"], ...] = ("id", "version_id", "codename")


class Circumstances(TypedDict):
    """What plans need to know besides the observation and the variables of their roles."""

    host: str
    now: datetime
    engine: Engine
    engine_is_new: bool  # this run installed the engine on a node without one
    cri_is_planned: bool  # this run enables the CRI plugin of containerd; likewise
    driver_is_planned: bool  # this run installs the driver; in check mode it is not there yet


def desired(
    role: str, values: Mapping[str, object], node: Node, circumstances: Circumstances
) -> dict[str, object]:
    """Return the circumstances and the values of a role's variables, with placeholders filled in.

    A variable that is not set and has no default is None.
    """
    wanted: dict[str, object] = {**circumstances}
    for name, option in load_options().items():
        if role in option.roles:
            value = values.get(name, option.default)
            if option.type == "bool":
                value = None if value in (None, "") else boolean(value)
            if option.type == "int":
                value = whole_number(value)
            wanted[name.removeprefix(f"{role}_")] = (
                for_node(value, node) if isinstance(value, str) else value
            )
    return wanted


def for_node(text: str, node: Node) -> str:
    """Fill in the placeholders; a value that os-release does not have is empty."""
    for name in PLACEHOLDERS:
        text = text.replace(f"{{{name}}}", node["os"][name] or "")
    return text
