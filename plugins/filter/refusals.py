# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.report import refusals

DOCUMENTATION = r"""
name: refusals
short_description: Every refusal of every node
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Collects what speaks against going on, of the nodes one by one, among each other, and in the
    cluster.
positional: cluster
options:
  _input:
    description: C(refusals) and C(node_name) of each inventory host.
    type: dict
    required: true
  cluster:
    description: What M(metal.gpu.gpu_capacity) returned for all node names, also where it failed.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Collect the refusals
  ansible.builtin.set_fact:
    preflight_refusals: "{{ preflight_reports | metal.gpu.refusals(preflight_cluster) }}"
"""

RETURN = r"""
_value:
  description: The findings, each once.
  type: list
  elements: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"refusals": refusals}
