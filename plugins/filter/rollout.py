# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.plan_device_plugin import rollout

DOCUMENTATION = r"""
name: rollout
short_description: What does the rollout of a DaemonSet wait for?
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Says for each of some nodes why the newest version of a DaemonSet does not run there yet.
    Nodes that are not named, such as one that is switched off, do not count.
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
      - The ControllerRevisions of the DaemonSet. The newest is what should run.
      - Where they are not given, pods of any revision will do.
    type: list
    elements: dict
"""

EXAMPLES = r"""
- name: Fail where the plugin does not run
  ansible.builtin.assert:
    that: pods.resources | metal.gpu.rollout(['gpu-1'], revisions.resources) | length == 0
"""

RETURN = r"""
_value:
  description: The reason for each node that waits, by name. Empty when the rollout is done.
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rollout": rollout}
