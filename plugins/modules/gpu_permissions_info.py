#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_permissions_info
short_description: Report missing permissions in the cluster
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Queries the API server whether the credentials have all given permissions. So you see all
    missing permissions at once, before anything is changed.
  - Uses access reviews, which cover every authorizer. If access reviews are forbidden, no
    permission is reported as missing.
extends_documentation_fragment:
  - metal.gpu.attributes.reads
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
options:
  permissions:
    description: The permissions.
    type: list
    elements: dict
    required: true
    suboptions:
      group: {description: "API group, empty for the core group.", type: str, default: ""}
      resource:
        description: The resource in the plural, with a subresource after a slash.
        type: str
        required: true
      verbs: {description: The verbs., type: list, elements: str, required: true}
      namespace:
        description: The namespace. Empty means all namespaces, or a cluster-scoped resource.
        type: str
        default: ""
      name: {description: Name of the only object. Empty means all objects., type: str, default: ""}
      any: {description: Whether one of the verbs is enough., type: bool, default: false}
  report_only:
    description: Do not fail if the API server does not answer. RV(error) has its error.
    type: bool
    default: false
seealso:
  - module: metal.gpu.gpu_capacity
"""

EXAMPLES = r"""
- name: Check the permissions for smoke pods
  metal.gpu.gpu_permissions_info:
    permissions:
      - resource: pods
        verbs: [create, list, watch]
        namespace: default
  delegate_to: localhost
  run_once: true
  register: access
"""

RETURN = r"""
missing:
  description: The missing permissions, in the form of O(permissions), with the missing verbs.
  returned: success
  type: list
  elements: dict
error:
  description: Why the API server did not answer. Empty if it answered.
  returned: with O(report_only)
  type: str
user:
  description: User name of the credentials. Empty if nothing is missing, or if the API server does
    not report the name.
  returned: success
  type: str
  sample: jane
"""

from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    kube_module,
    permissions,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_module.ARGUMENTS,
    "permissions": permissions.OPTION,
}


def run(client: Client, wanted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the module's result; raise KubeError."""
    return {"changed": False, **permissions.run(client, wanted)}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    kube_module.run_module(
        module, lambda client: run(client, module.params["permissions"]), missing=[], user=""
    )


if __name__ == "__main__":
    main()
