# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import stopped

DOCUMENTATION = r"""
name: stopped
short_description: Explain why the run stopped on a node
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Makes findings from the result of a failed task. If a role failed because of findings, returns
    those. Any other error becomes a separate finding.
positional: host, task
options:
  _input:
    description: The result. In a C(rescue), it is C(ansible_failed_result).
    type: dict
    required: true
  host:
    description: The inventory host.
    type: str
    required: true
  task:
    description: The name of the task. In a C(rescue), it is C(ansible_failed_task.name).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Keep the findings
  ansible.builtin.set_fact:
    found: "{{ ansible_failed_result
      | metal.gpu.stopped(inventory_hostname, ansible_failed_task.name) }}"
"""

RETURN = r"""
_value:
  description: The findings, from P(metal.gpu.finding#filter).
  type: list
  elements: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"stopped": stopped}
