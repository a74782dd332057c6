# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.metal.gpu.plugins.plugin_utils import (
    plan_containerd,
    plan_device_plugin,
    plan_docker_ce,
    plan_kubelet_device_plugins,
    plan_nvidia_container_runtime,
    plan_nvidia_driver,
    plan_preflight,
    plan_teardown,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plain import plain

DOCUMENTATION = r"""
name: plan
short_description: What is there to do on this node?
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Decides from an observation and from desired what a role has to do, without looking at anything
    else. The roles of this collection carry such plans out.
positional: planner, desired
options:
  _input:
    description: >-
      The observation, which is RV(metal.gpu.node_info#module:gpu_node), for V(device_plugin) the
      DaemonSets of the cluster, for V(teardown) a node as RV(metal.gpu.gpu_drain#module:nodes) has
      it.
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
      - What the role was told. Each role has its own keys, listed in its C(vars/main.yml).
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
    - The plan. C(steps) has the C(name) of each task to carry out and the C(reason) for it,
      C(refusals) says why nothing may be done, C(notices) what is worth knowing, C(data) is for
      the tasks of the role.
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


# What a user may leave open. Before ansible-core 2.19, a template makes an empty text of None.
OPEN = ("default", "reboot_ok")


def plan(observation: Any, planner: str, desired: Mapping[str, Any]) -> dict[str, Any]:
    if planner not in PLANNERS:
        raise AnsibleFilterError(f"no planner {planner!r}, only {', '.join(PLANNERS)}")
    unset = {name: None for name in OPEN if desired.get(name) == ""}
    # The clock of the controller: a plan looks at nothing by itself.
    now = {"now": datetime.now(UTC)}
    return PLANNERS[planner](plain(observation), {**now, **plain({**desired, **unset})})


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"plan": plan}
