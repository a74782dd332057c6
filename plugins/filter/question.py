# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import question as ask
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.variables import gpu_count

DOCUMENTATION = r"""
name: question
short_description: Determine what to ask the cluster about a node's GPUs
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Determines from an observation how many GPUs the cluster should count, whether to wait for that
    count, and whether smoke pods must prove them.
options:
  _input:
    description: The observation (RV(metal.gpu.node_info#module:gpu_node)).
    type: dict
    required: true
  host:
    description: The inventory host.
    type: str
    required: true
  declared:
    description: The declared number of GPUs. A value that is not a number counts as not declared.
    type: raw
  known:
    description: Earlier findings of the run, such as the reason why it skipped the node.
    type: list
    elements: dict
"""

EXAMPLES = r"""
- name: Determine what the cluster should count
  ansible.builtin.set_fact:
    asked: "{{ metal_gpu_node | metal.gpu.question(host=inventory_hostname, declared=4) }}"
"""

RETURN = r"""
_value:
  description: C(node) (its name in the cluster), C(expected), C(awaited) and C(smoke).
  type: dict
"""


def question(
    node: Node,
    host: str,
    declared: Any = None,
    known: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    count, _refusals = gpu_count(host, declared)  # metal.gpu.reconcile reports the refusals
    return ask(host, node, count, known)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"question": question}
