# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.reconcile import CLUSTER, SMOKE
from ansible_collections.metal.gpu.plugins.module_utils.reconcile import reconcile as judge

DOCUMENTATION = r"""
name: reconcile
short_description: Do all the layers agree about a node's GPUs?
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Compares what was declared, what is in the slots, what the driver sees, what the cluster counts
    and what pods saw, and names each difference, and each layer that gave no answer.
options:
  _input:
    description: >-
      The observation, which is RV(metal.gpu.node_info#module:gpu_node). V(null) where there is
      none.
    type: dict
    required: true
  host:
    description: The inventory host.
    type: str
    required: true
  declared:
    description: The number of GPUs that was declared.
    type: int
  cluster:
    description: The node's row of RV(metal.gpu.gpu_capacity#module:nodes).
    type: dict
  smoke:
    description: The node's row of RV(metal.gpu.gpu_smoke_pod#module:nodes).
    type: dict
  known:
    description: Findings that are known already, such as why there is no observation.
    type: list
    elements: dict
  unanswered:
    description: Findings that say why the cluster gave no answer about any node.
    type: list
    elements: dict
  asked:
    description: >-
      What was asked besides the node. A layer that was asked and has no answer is a finding.
    type: list
    elements: str
    choices: [cluster, smoke]
    default: [cluster, smoke]
  plans:
    description: >-
      The plans of the roles for the node, as from P(metal.gpu.plan#filter), by name of the role.
      What they would change is drift. V(null) where no plan was asked.
    type: dict
"""

EXAMPLES = r"""
- name: Judge the node
  ansible.builtin.set_fact:
    verdict: "{{ node.gpu_node | metal.gpu.reconcile(host=inventory_hostname, declared=4) }}"
"""

RETURN = r"""
_value:
  description: The verdict, with C(host), C(layers), C(findings), and C(ok).
  type: dict
"""


def reconcile(
    node: Mapping[str, Any] | None,
    host: str,
    declared: int | None = None,
    cluster: Mapping[str, Any] | None = None,
    smoke: Mapping[str, Any] | None = None,
    known: Iterable[Mapping[str, str]] = (),
    unanswered: Iterable[Mapping[str, str]] = (),
    asked: Collection[str] = (CLUSTER, SMOKE),
    plans: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    return judge(
        host,
        node,
        declared,
        cluster,
        smoke,
        known,
        unanswered=unanswered,
        asked=asked,
        plans=plans,
    )


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"reconcile": reconcile}
