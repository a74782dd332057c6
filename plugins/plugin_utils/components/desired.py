# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What do the variables of a role ask for on a node? No function does I/O.

The argument specification of the role has the names and the types. A plan gets each variable under
its name without the role's prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.metal.gpu.plugins.plugin_utils.variables import load_options

# Unlike templates, placeholders work in variables before the node is observed (decision 008).
PLACEHOLDERS = ("id", "version_id", "codename")


def desired(
    role: str, values: Mapping[str, Any], node: Mapping[str, Any], host: str
) -> dict[str, Any]:
    """Return the values of a role's variables, with the placeholders of texts filled in.

    A variable that is not set and has no default is None.
    """
    wanted: dict[str, Any] = {"host": host}
    for name, option in load_options().items():
        if role in option.roles:
            value = values.get(name, option.default)
            if option.type == "bool":
                value = None if value in (None, "") else boolean(value)
            wanted[name.removeprefix(f"{role}_")] = (
                for_node(value, node) if isinstance(value, str) else value
            )
    return wanted


def for_node(text: str, node: Mapping[str, Any]) -> str:
    """Fill in the placeholders; a value that os-release does not have is empty."""
    for name in PLACEHOLDERS:
        text = text.replace(f"{{{name}}}", node["os"][name] or "")
    return text
