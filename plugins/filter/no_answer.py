# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import no_answer

DOCUMENTATION = r"""
name: no_answer
short_description: Explain an error of the API server
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Makes a finding from an error of the API server. The finding names a missing permission.
options:
  _input:
    description: The error, such as RV(metal.gpu.gpu_capacity#module:error).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Explain the error
  ansible.builtin.debug:
    msg: "{{ [cluster.error | metal.gpu.no_answer] | metal.gpu.explain }}"
"""

RETURN = r"""
_value:
  description: The finding, from P(metal.gpu.finding#filter).
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"no_answer": no_answer}
