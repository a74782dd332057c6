# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.plan import rollout

DOCUMENTATION = r"""
name: rollout
short_description: Explain why the rollout of a DaemonSet is not complete
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Returns for each named node why the newest version of a DaemonSet does not run there yet. Other
    nodes, such as a node that is switched off, do not count.
positional: nodes, revisions
options:
  _input:
    description: The pods of the DaemonSet.
    type: list
    elements: dict
    required: true
  nodes:
    description: Names of the nodes.
    type: list
    elements: str
    required: true
  revisions:
    description:
      - The ControllerRevisions of the DaemonSet. Pods of the newest one should run.
      - Without this option, pods of any revision count.
    type: list
    elements: dict
"""

EXAMPLES = r"""
- name: Fail if the plugin does not run
  ansible.builtin.assert:
    that: pods.resources | metal.gpu.rollout(['gpu-1'], revisions.resources) | length == 0
"""

RETURN = r"""
_value:
  description: The reason for each node that waits, by name. Empty if the rollout is complete.
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rollout": rollout}
