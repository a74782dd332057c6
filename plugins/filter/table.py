# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import table

DOCUMENTATION = r"""
name: table
short_description: Write verdicts as a table
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Writes a line for each node, with the number of GPUs on every layer.
options:
  _input:
    description: Results of P(metal.gpu.reconcile#filter).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the nodes
  ansible.builtin.debug:
    msg: "{{ verdicts | metal.gpu.table }}"
"""

RETURN = r"""
_value:
  description: Aligned lines, starting with the headings.
  type: list
  elements: str
  sample:
    - "node   declared  PCI  NVML  capacity  allocatable  smoke  verdict"
    - "gpu-1         4    4     4         4            4    4/4  ok"
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"table": table}
