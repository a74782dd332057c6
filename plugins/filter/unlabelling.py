# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.plan_device_plugin import unlabelling

DOCUMENTATION = r"""
name: unlabelling
short_description: Take the labels off nodes that this collection has added
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Makes a patch for each node from which labels are to be taken. Labels that
    P(metal.gpu.labelling#filter) has not added stay.
positional: names, labels
options:
  _input:
    description: The Node objects that have the labels.
    type: list
    elements: dict
    required: true
  names:
    description: Names of the nodes that are to lose the labels.
    type: list
    elements: str
    required: true
  labels:
    description: The labels with their values.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Take the labels off a node
  kubernetes.core.k8s:
    state: patched
    definition: "{{ (nodes.resources
      | metal.gpu.unlabelling(['gpu-1'], {'nvidia.com/gpu.present': 'true'})).patches }}"
"""

RETURN = r"""
_value:
  description:
    - C(patches) for the named nodes, the names of those of them that keep their labels (C(kept)),
      and the names of the other nodes with the labels (C(left)).
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"unlabelling": unlabelling}
