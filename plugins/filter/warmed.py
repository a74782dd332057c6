# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DOCUMENTATION = r"""
name: warmed
short_description: Load all filters and return the value
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Returns its input. Its purpose is the side effect that Ansible loads all filters of this
    collection.
  - Ansible forks a process for each task on each host. What such a process loads, the next process
    must load again. The parent of all these processes evaluates keywords of a play, such as
    C(serial).
  - The name of this filter is the last in the alphabet. Ansible loads the filters of a collection
    in this order until it finds the requested filter.
options:
  _input:
    description: Any value.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Check all nodes, with the filters loaded once
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
