#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_permissions_info
short_description: Ask the API server for missing permissions
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Asks the API server, for all permissions at once, whether the credentials have them. So every
    missing one is known before anything is changed.
  - Uses access reviews, which answer for every authorizer. Where they are forbidden themselves,
    nothing is known to be missing.
extends_documentation_fragment:
  - metal.gpu.attributes
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
attributes:
  check_mode:
    support: full
    description: Changes nothing in any mode.
  diff_mode:
    support: N/A
    description: Changes nothing.
  idempotent:
    support: full
    description: Changes nothing.
options:
  permissions:
    description: The permissions, such as from P(metal.gpu.permissions#filter).
    type: list
    elements: dict
    required: true
    suboptions:
      group:
        description: API group, empty for the core group.
        type: str
        default: ""
      resource:
        description: The resource in the plural, with a subresource after a slash.
        type: str
        required: true
      verbs:
        description: The verbs.
        type: list
        elements: str
        required: true
      namespace:
        description: The namespace. Empty asks for all namespaces, or for a resource without one.
        type: str
        default: ""
      any:
        description: Whether one of the verbs is enough.
        type: bool
        default: false
  report_only:
    description:
      - Whether an API server that gives no answer does not fail the task, and RV(error) tells
        about it.
    type: bool
    default: false
seealso:
  - module: metal.gpu.gpu_capacity
"""

EXAMPLES = r"""
- name: Ask whether smoke pods can be run
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
  description: The permissions that are missing, as they were given, with the missing verbs.
  returned: success
  type: list
  elements: dict
  sample: []
user:
  description: Who the credentials are for the API server. Empty where it does not tell.
  returned: success
  type: str
  sample: jane
error:
  description: Why the API server gave no answer. Empty where it did.
  returned: with O(report_only)
  type: str
  sample: ""
"""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils import kube, kube_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_settings.AUTH_ARGUMENTS,
    "permissions": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "group": {"type": "str", "default": ""},
            "resource": {"type": "str", "required": True},
            "verbs": {"type": "list", "elements": "str", "required": True},
            "namespace": {"type": "str", "default": ""},
            "any": {"type": "bool", "default": False},
        },
    },
    "report_only": {"type": "bool", "default": False},
}

_PARALLEL = 8  # questions under way at once


def run(client: kube.Client, permissions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the module's result; raise kube.KubeError."""
    asked = list(
        dict.fromkeys(
            (permission["group"], permission["resource"], verb, permission["namespace"])
            for permission in permissions
            for verb in permission["verbs"]
        )
    )

    def is_allowed(question: tuple[str, str, str, str]) -> bool:
        group, resource, verb, namespace = question
        name, _slash, subresource = resource.partition("/")
        attributes = {"group": group, "resource": name, "verb": verb}
        if subresource:
            attributes["subresource"] = subresource
        if namespace:
            attributes["namespace"] = namespace
        return client.is_allowed(attributes)

    try:
        with ThreadPoolExecutor(_PARALLEL) as pool:
            allowed = dict(zip(asked, pool.map(is_allowed, asked)))
    except kube.ApiForbidden as error:
        if kube.ANONYMOUS in error.reply:
            raise
        allowed = {}
    missing = []
    for permission in permissions:
        verbs = [
            verb
            for verb in permission["verbs"]
            if not allowed.get(
                (permission["group"], permission["resource"], verb, permission["namespace"]), True
            )
        ]
        enough = permission["any"] and len(verbs) < len(permission["verbs"])
        if verbs and not enough:
            missing.append({**permission, "verbs": verbs})
    return {"changed": False, "missing": missing, "user": client.user() if missing else ""}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(kube_settings.client_for(module), module.params["permissions"])
    except kube.KubeError as error:
        if module.params["report_only"]:
            module.exit_json(missing=[], user="", error=str(error))
        module.fail_json(msg=str(error))
    if module.params["report_only"]:
        result["error"] = ""
    module.exit_json(**result)


if __name__ == "__main__":
    main()
