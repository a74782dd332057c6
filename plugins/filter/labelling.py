# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.plan import (
    labelling,
)

DOCUMENTATION = r"""
name: labelling
short_description: Add missing labels to nodes
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Makes a patch for each node of a cluster that lacks one of the labels. The annotation
    C(metal.gpu/labelled) lists the added labels. P(metal.gpu.unlabelling#filter) removes them
    again.
  - A node that the cluster does not have gets no patch. A node that has one of the labels with
    another value gets none either.
positional: labels
options:
  _input:
    description: The nodes, which are RV(metal.gpu.gpu_capacity#module:nodes).
    type: dict
    required: true
  labels:
    description: The labels with their values.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Label the nodes
  kubernetes.core.k8s:
    state: patched
    definition: "{{ cluster.nodes | metal.gpu.labelling({'nvidia.com/gpu.present': 'true'}) }}"
"""

RETURN = r"""
_value:
  description: The patches.
  type: list
  elements: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"labelling": labelling}
