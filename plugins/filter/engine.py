# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines

DOCUMENTATION = r"""
name: engine
short_description: Determine the container engine of a node
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Returns the supported engine that a node uses, or the engine that it will use.
positional: desired
options:
  _input:
    description: The node, as RV(metal.gpu.node_info#module:gpu_node) describes it.
    type: dict
    required: true
  desired:
    description:
      - With V(auto), the socket of the kubelet decides. If the kubelet has no socket configured,
        the engine is V(docker) if Docker is installed, else V(containerd).
      - Any other value applies only if the socket of the kubelet does not contradict it.
    type: str
    choices: [auto, containerd, docker]
    default: auto
"""

EXAMPLES = r"""
- name: Install Docker on nodes that use it
  ansible.builtin.include_role:
    name: metal.gpu.docker_ce
  when: metal_gpu_node | metal.gpu.engine == 'docker'
"""

RETURN = r"""
_value:
  description:
    - V(containerd) or V(docker).
    - V(null) if the kubelet is configured for an unsupported engine, or for another engine than
      desired. Plans refuse such a node.
  type: str
"""


def engine(node: Node, desired: str = engines.AUTO) -> str | None:
    if desired not in engines.CHOICES:
        raise AnsibleFilterError(
            f"unknown engine {desired!r}: use one of {', '.join(engines.CHOICES)}"
        )
    return engines.choose(node, desired)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"engine": engine}
