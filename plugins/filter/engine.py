# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.metal.gpu.plugins.plugin_utils import engines

DOCUMENTATION = r"""
name: engine
short_description: The container engine that a node uses
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Tells which of the engines that this collection supports a node uses, or is to use.
positional: desired
options:
  _input:
    description: The node, as RV(metal.gpu.node_info#module:gpu_node) describes it.
    type: dict
    required: true
  desired:
    description:
      - With V(auto), the kubelet decides by the socket that it talks to. Without a kubelet it is
        V(docker) where Docker is installed, else V(containerd).
      - Another desired is only heard where no kubelet contradicts it.
    type: str
    choices: [auto, containerd, docker]
    default: auto
"""

EXAMPLES = r"""
- name: Make sure of Docker where the node uses it
  ansible.builtin.include_role:
    name: metal.gpu.docker_ce
  when: metal_gpu_node | metal.gpu.engine == 'docker'
"""

RETURN = r"""
_value:
  description:
    - V(containerd) or V(docker).
    - V(null) where the kubelet talks to another engine than these, or than desired. Every plan
      refuses such a node.
  type: str
"""


def engine(node: Mapping[str, Any], desired: str = engines.AUTO) -> str | None:
    if desired not in engines.CHOICES:
        raise AnsibleFilterError(f"no engine {desired!r}, only {', '.join(engines.CHOICES)}")
    return engines.choose(node, desired)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"engine": engine}
