# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding

DOCUMENTATION = r"""
name: finding
short_description: Make a finding from its code
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Fills in the texts of a finding. C(docs/troubleshooting.md) has a section on each code.
positional: host
options:
  _input:
    description: The code, such as V(NODE_UNREACHABLE).
    type: str
    required: true
  host:
    description: The inventory host of the finding.
    type: str
    required: true
  evidence:
    description: The values for the texts of this finding, as keyword arguments.
    type: dict
"""

EXAMPLES = r"""
- name: Report a host that cannot be reached
  ansible.builtin.debug:
    msg: "{{ 'NODE_UNREACHABLE' | metal.gpu.finding(inventory_hostname, error='timed out') }}"
"""

RETURN = r"""
_value:
  description:
    - The finding, with C(code), C(severity) (V(refusal), V(stop), V(failure) or V(notice)),
      C(host), C(message), C(remedy) and C(reference).
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"finding": finding}
