# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import admission

DOCUMENTATION = r"""
name: admission
short_description: Decide which nodes may go on
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Collects the findings of each node, of nodes that conflict with each other, and of the cluster.
    Decides from them which nodes may go on.
  - A refusal of one node stops all nodes, because the inventory is wrong. A node that could not be
    observed also stops all nodes. A finding that needs a decision of the admin, such as a reboot,
    stops only its node.
positional: cluster
options:
  _input:
    description: >-
      C(refusals), C(node_name), C(kubelet_running) and, in a teardown, C(drain) (whether pods may
      be evicted) of each inventory host.
    type: dict
    required: true
  cluster:
    description: >-
      What M(metal.gpu.gpu_capacity), or in a teardown M(metal.gpu.gpu_drain), returned for all
      node names, C(missing) and C(user) from M(metal.gpu.gpu_permissions_info), and C(refusals)
      of the cluster.
    type: dict
    required: true
  skip_refused:
    description: Whether a finding about a node stops only that node.
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
    - C(begin) tells whether to start at all. C(findings) has each finding once. C(stopped) has the
      findings of each host that may not go on.
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"admission": admission}
