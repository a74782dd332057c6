# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import explain

DOCUMENTATION = r"""
name: explain
short_description: Write findings and steps as text
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Writes findings, or the steps of a plan, as lines for people.
options:
  _input:
    description: The findings or steps.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the steps
  ansible.builtin.debug:
    msg: "{{ nvidia_driver_plan.steps | metal.gpu.explain }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"explain": explain}
