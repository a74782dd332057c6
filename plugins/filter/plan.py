# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    plan as plan_nvidia_container_runtime,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    plan as plan_containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    plan as plan_device_plugin,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    plan as plan_docker_ce,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    plan as plan_nvidia_driver,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.kubelet import (
    plan as plan_kubelet_device_plugins,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import (
    drain as plan_teardown,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import (
    plan as plan_preflight,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: plan
short_description: Plan the steps of a role
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Compares an observation with the desired values, and plans the steps of a role. It reads nothing
    else. The roles of this collection carry out such plans.
positional: planner, desired
options:
  _input:
    description: >-
      The observation (RV(metal.gpu.node_info#module:gpu_node)). For V(device_plugin) the DaemonSets
      of the cluster. For V(teardown) the node's row of RV(metal.gpu.gpu_drain#module:nodes).
    type: raw
    required: true
  planner:
    description: Name of the role.
    type: str
    required: true
    choices:
      - preflight
      - containerd
      - docker_ce
      - nvidia_driver
      - nvidia_container_runtime
      - kubelet_device_plugins
      - device_plugin
      - teardown
  desired:
    description:
      - The values of the role's variables. Each role lists its keys in C(vars/main.yml).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Plan the driver
  ansible.builtin.set_fact:
    nvidia_driver_plan: "{{ metal_gpu_node | metal.gpu.plan('nvidia_driver', desired) }}"
"""

RETURN = r"""
_value:
  description:
    - The plan. C(steps) has the C(slug), the C(name) and the C(reason) of each step. C(refusals) has the
      findings that stop the role. C(notices) has findings that stop nothing. C(data) is for the
      tasks of the role.
  type: dict
"""

PLANNERS: dict[str, Callable[[Any, Mapping[str, Any]], dict[str, Any]]] = {
    "preflight": plan_preflight.plan,
    "containerd": plan_containerd.plan,
    "docker_ce": plan_docker_ce.plan,
    "nvidia_driver": plan_nvidia_driver.plan,
    "nvidia_container_runtime": plan_nvidia_container_runtime.plan,
    "kubelet_device_plugins": plan_kubelet_device_plugins.plan,
    "device_plugin": plan_device_plugin.plan,
    "teardown": plan_teardown.plan,
}


# Optional values. Before ansible-core 2.19, a template turns None into an empty text.
OPEN = ("default", "reboot_ok")


def plan(observation: Any, planner: str, desired: Mapping[str, Any]) -> dict[str, Any]:
    if planner not in PLANNERS:
        raise AnsibleFilterError(f"unknown planner {planner!r}: use one of {', '.join(PLANNERS)}")
    unset = {name: None for name in OPEN if desired.get(name) == ""}
    # The clock of the controller. Planners do no I/O.
    now = {"now": datetime.now(UTC)}
    return PLANNERS[planner](plain(observation), {**now, **plain({**desired, **unset})})


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plan": plan}
