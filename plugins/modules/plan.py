#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Observe a node once, and plan what roles would change
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Observes the node like M(metal.gpu.node_info), and computes the plan of each role from that
    observation and the variables of the role. Changes nothing.
  - Register the result as C(metal_gpu). The roles of this collection read this variable, and a
    later call adds its plans to it.
  - Does not observe the node again if the variable C(metal_gpu_observation_is_fresh) is true and
    C(metal_gpu) has an observation. Only playbooks of this collection set it.
extends_documentation_fragment:
  - metal.gpu.attributes.reads
options:
  roles:
    description: The roles to plan, in the order in which they run. Of several roles, those of an
      engine that the node does not use are left out. The default is V(preflight) and every role
      that metal.gpu.site runs on nodes.
    type: list
    elements: str
  prove:
    description: Observes the node again, and fails if a step of these roles remains.
    type: bool
    default: false
  report_only:
    description: Returns refusals instead of failing with them, also if the node is unreachable.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Plan the driver
  metal.gpu.plan:
    roles: [nvidia_driver]
  register: metal_gpu

- name: Show the steps
  ansible.builtin.debug:
    msg: "{{ metal_gpu.plans.nvidia_driver.steps | metal.gpu.explain }}"
"""

RETURN = r"""
host: {description: The host that was observed., type: str, returned: success}
node:
  description: The observation (RV(metal.gpu.node_info#module:gpu_node)). V(null) if the node cannot
    be observed.
  type: dict
  returned: success
place:
  description: Which role of the play has observed, and when, so that the role that follows it need
    not do it again. V(null) outside of the C(roles) of a play.
  type: dict
  returned: success
declared:
  description: C(gpu_count) of the host; null if it declares nothing.
  type: raw
  returned: success
expected:
  description: C(gpu_expected) of the host; null if it is not set.
  type: raw
  returned: success
engine:
  description: The engine that the node uses or will use, V(containerd) or V(docker). V(null) if it
    is another one, or unknown.
  type: str
  returned: success
refusals:
  description: What stops the roles, in the form of P(metal.gpu.finding#filter).
  type: list
  elements: dict
  returned: success
plans:
  description: The plan of each role, by its name. C(steps) has the C(slug), the C(name) and the
    C(reason) of each step. C(refusals) has the findings that stop the role. C(notices) has findings
    that stop nothing. C(data) is for the tasks of the role.
  type: dict
  returned: success
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, Any] = {
    "roles": {"type": "list", "elements": "str"},
    "prove": {"type": "bool", "default": False},
    "report_only": {"type": "bool", "default": False},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="the action plugin of this module runs on the controller")


if __name__ == "__main__":
    main()
