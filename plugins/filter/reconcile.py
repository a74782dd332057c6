# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import CLUSTER, SMOKE
from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import reconcile as judge
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.variables import gpu_count

DOCUMENTATION = r"""
name: reconcile
short_description: Compare all layers of a node's GPUs
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Compares the GPUs that are declared, that are on the PCI bus, that the driver sees, that the
    cluster counts and that smoke pods saw. Reports each difference, and each layer that gave no
    answer.
options:
  _input:
    description: >-
      The observation (RV(metal.gpu.node_info#module:gpu_node)). V(null) if the node was not
      observed.
    type: dict
    required: true
  host:
    description: The inventory host.
    type: str
    required: true
  declared:
    description: The declared number of GPUs. A value that is not a number is a finding.
    type: raw
  cluster:
    description: The node's row of RV(metal.gpu.gpu_capacity#module:nodes).
    type: dict
  smoke:
    description: The node's row of RV(metal.gpu.gpu_smoke_pod#module:nodes).
    type: dict
  known:
    description: Earlier findings of the run, such as the reason for a missing observation.
    type: list
    elements: dict
  unanswered:
    description: Findings that explain why the cluster gave no answer about any node.
    type: list
    elements: dict
  asked:
    description: >-
      What was queried besides the node. A layer that was queried and has no answer is a finding.
    type: list
    elements: str
    choices: [cluster, smoke]
    default: [cluster, smoke]
  plans:
    description: >-
      The plans of the roles for the node (from P(metal.gpu.plan#filter)), by name of the role.
      Their steps are drift. V(null) if drift is not checked.
    type: dict
"""

EXAMPLES = r"""
- name: Judge the node
  ansible.builtin.set_fact:
    verdict: "{{ node.gpu_node | metal.gpu.reconcile(host=inventory_hostname, declared=4) }}"
"""

RETURN = r"""
_value:
  description: The verdict, with C(host), C(layers), C(findings) and C(ok).
  type: dict
"""


def reconcile(
    node: Node | None,
    host: str,
    declared: Any = None,
    cluster: Mapping[str, Any] | None = None,
    smoke: Mapping[str, Any] | None = None,
    known: Iterable[Mapping[str, str]] = (),
    unanswered: Iterable[Mapping[str, str]] = (),
    asked: Collection[str] = (CLUSTER, SMOKE),
    plans: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    count, refusals = gpu_count(host, declared)
    verdict = judge(
        host,
        node,
        count,
        cluster,
        smoke,
        known,
        unanswered=unanswered,
        asked=asked,
        plans=plans,
    )
    new = [one for one in refusals if one not in verdict["findings"]]
    return {**verdict, "findings": new + verdict["findings"], "ok": verdict["ok"] and not new}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"reconcile": reconcile}
