# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.plan import members

DOCUMENTATION = r"""
name: members
short_description: List node name and engine of inventory hosts
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Reduces the variables of hosts to what the tasks of the cluster need. Omits hosts without an
    observation.
options:
  _input:
    description: The variables of each host, keyed by its name.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the engine of each node
  ansible.builtin.debug:
    msg: "{{ hostvars | metal.gpu.members }}"
"""

RETURN = r"""
_value:
  description:
    - C(host), C(node) (its name in the cluster) and C(engine) (from P(metal.gpu.engine#filter))
      of each host.
  type: list
  elements: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"members": members}
