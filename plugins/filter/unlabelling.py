# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.plan import (
    unlabelling,
)

DOCUMENTATION = r"""
name: unlabelling
short_description: Remove labels that this collection added to nodes
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Makes a patch for each named node. The patch removes the labels that
    P(metal.gpu.labelling#filter) added. Other labels stay.
positional: names, labels
options:
  _input:
    description: The Node objects that have the labels.
    type: list
    elements: dict
    required: true
  names:
    description: Names of the nodes from which to remove the labels.
    type: list
    elements: str
    required: true
  labels:
    description: The labels with their values.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Remove the labels from a node
  kubernetes.core.k8s:
    state: patched
    definition: "{{ (nodes.resources
      | metal.gpu.unlabelling(['gpu-1'], {'nvidia.com/gpu.present': 'true'})).patches }}"
"""

RETURN = r"""
_value:
  description:
    - C(patches) for the named nodes, C(kept) with the names of those that keep their labels, and
      C(left) with the names of the other nodes that have the labels.
  type: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"unlabelling": unlabelling}
