# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.report import admission

DOCUMENTATION = r"""
name: admission
short_description: Which nodes may go on?
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Collects what speaks against going on, of the nodes one by one, among each other, and in the
    cluster, and decides from that which nodes may.
  - A refusal of any node stops all of them, since the inventory is wrong, and so does a node that
    could not be looked at. What waits for somebody's decision about a node, such as a reboot, stops
    that node alone.
positional: cluster
options:
  _input:
    description: >-
      C(refusals), C(node_name), C(kubelet_running) and, on the way back, C(drain) (whether pods may
      be evicted) of each inventory host.
    type: dict
    required: true
  cluster:
    description: >-
      What M(metal.gpu.gpu_capacity), or on the way back M(metal.gpu.gpu_drain), returned for all
      node names, C(missing) and C(user) as from M(metal.gpu.gpu_permissions_info), and C(refusals)
      of the cluster.
    type: dict
    required: true
  skip_refused:
    description: Whether any finding about a node stops only that node.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Decide which nodes may go on
  ansible.builtin.set_fact:
    preflight_admission: "{{ preflight_reports | metal.gpu.admission(preflight_cluster) }}"
"""

RETURN = r"""
_value:
  description:
    - C(begin) is whether to go on at all, C(findings) has what was found, each once, and C(stopped)
      the findings of each host that may not go on.
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"admission": admission}
