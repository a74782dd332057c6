# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform.plan import (
    why_unobserved,
)

DOCUMENTATION = r"""
name: unobserved
short_description: Explain why a node could not be observed
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Determines from the result of a failed M(metal.gpu.node_info) task whether the node is
    unreachable, the user cannot become root, or another error occurred.
positional: host, method
options:
  _input:
    description: The result.
    type: dict
    required: true
  host:
    description: The inventory host.
    type: str
    required: true
  method:
    description: How the user becomes root, if the inventory sets it (C(ansible_become_method)).
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Explain the error
  ansible.builtin.debug:
    msg: "{{ observation | metal.gpu.unobserved(inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: The finding, from P(metal.gpu.finding#filter).
  type: dict
"""


def unobserved(result: Mapping[str, Any], host: str, method: str = "") -> dict[str, str]:
    return why_unobserved(host, result, method)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"unobserved": unobserved}
