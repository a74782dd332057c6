# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DOCUMENTATION = r"""
name: warmed
short_description: A value as it is, and all filters loaded
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Returns its input. What counts is that Ansible has loaded all filters of this collection then.
  - Ansible forks a process for each task on each host, and what such a process loads, the next one
    has to load again. A keyword of a play, such as C(serial), is evaluated by the process that all
    others are forked from.
  - The name comes last in the alphabet, since Ansible loads the filters of a collection in this
    order until it has found the one.
options:
  _input:
    description: Any value.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Look at all nodes, with the filters loaded once
  hosts: gpu_nodes
  gather_facts: false
  become: true
  serial: "{{ 0 | metal.gpu.warmed }}"
  roles:
    - role: metal.gpu.preflight
"""

RETURN = r"""
_value:
  description: The same value.
  type: raw
"""


def warmed(value: Any) -> Any:
    return value


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"warmed": warmed}
