# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

DOCUMENTATION = r"""
name: for_node
short_description: Fill in the names of a node's distribution
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Replaces C({id}), C({version_id}) and C({codename}) by the values of a node's distribution.
  - Unlike templates, such placeholders work in a role's variables before the node is observed.
positional: node
options:
  _input:
    description: Text with placeholders, such as the address of a mirror.
    type: str
    required: true
  node:
    description: What M(metal.gpu.node_info) returned.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the repository of Docker
  ansible.builtin.debug:
    msg: "{{ 'https://mirror.example/docker/{id}' | metal.gpu.for_node(metal_gpu_node) }}"
"""

RETURN = r"""
_value:
  description: The text for this node.
  type: str
"""

PLACEHOLDERS = ("id", "version_id", "codename")


def for_node(text: str, node: Mapping[str, Any]) -> str:
    """Fill in the placeholders; a value that os-release does not have is empty."""
    for name in PLACEHOLDERS:
        text = text.replace(f"{{{name}}}", node["os"][name] or "")
    return text


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"for_node": for_node}
