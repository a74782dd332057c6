# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.permissions import needed

DOCUMENTATION = r"""
name: permissions
short_description: List the permissions that a part of the work needs
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Lists the permissions that the user of the kubeconfig needs for parts of the work.
positional: namespaces
options:
  _input:
    description:
      - The parts of the work.
      - V(nodes) reads nodes and waits for them. V(holders) lists pods with GPUs. V(drain) evicts
        those pods. V(smoke) runs smoke pods.
      - V(device_plugin), V(device_plugin_adopted) and V(device_plugin_absent) are the three modes
        of the role P(metal.gpu.device_plugin#role).
    type: list
    elements: str
    required: true
  namespaces:
    description: The namespaces of the smoke pods (C(smoke)) and of the device plugin (C(plugin)).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Check the permissions that smoke pods need
  metal.gpu.gpu_permissions_info:
    permissions: "{{ ['smoke'] | metal.gpu.permissions({'smoke': 'default'}) }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
_value:
  description: The permissions, for O(metal.gpu.gpu_permissions_info#module:permissions).
  type: list
  elements: dict
"""


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"permissions": needed}
