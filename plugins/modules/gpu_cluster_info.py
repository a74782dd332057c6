#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_cluster_info
short_description: Read from the cluster what the roles plan with
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - One process asks for all of it, because the start of a process costs more than its requests.
  - If a permission is missing, only RV(missing) and RV(user) are read.
  - Internal to P(metal.gpu.preflight#role) and P(metal.gpu.device_plugin#role).
extends_documentation_fragment:
  - metal.gpu.attributes.reads
  - metal.gpu.attributes.actiongroup_gpu
  - metal.gpu.kubeconfig
options:
  permissions:
    description: The permissions to ask for, as in M(metal.gpu.gpu_permissions_info).
    type: list
    elements: dict
    default: []
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
  nodes: {description: Names of the nodes to read., type: list, elements: str, default: []}
  machines:
    description: The ids of their machines, as in M(metal.gpu.gpu_capacity).
    type: dict
    default: {}
  objects:
    description: Whether to list the DaemonSets, the RuntimeClasses and the admission policies.
    type: bool
    default: false
  config_map:
    description: The ConfigMap of the device plugin that the run has no use for. If there is one of
      this collection, O(permissions) has those to get and to delete it as well.
    type: dict
    suboptions:
      namespace: {description: Its namespace., type: str, required: true}
      name: {description: Its name., type: str, required: true}
  rollout:
    description: The DaemonSet of the plugin to wait for. Pods of an older revision do not count.
    type: dict
    suboptions:
      name: {description: Its name., type: str, required: true}
      namespace: {description: Its namespace., type: str, required: true}
      selectors:
        description: The selectors of its pods.
        type: list
        elements: str
        required: true
      nodes: {description: The nodes that count., type: list, elements: str, required: true}
      revisions:
        description: Whether the revisions count. If V(false), a pod of any revision is enough.
        type: bool
        default: true
      wait_timeout:
        description: Seconds to wait. Nobody waits for pods that fail again and again.
        type: int
        default: 300
  report_only:
    description: Do not fail if the API server does not answer. RV(error) has its error.
    type: bool
    default: false
seealso:
  - module: metal.gpu.gpu_capacity
  - module: metal.gpu.gpu_permissions_info
"""

EXAMPLES = r"""
- name: List the DaemonSets and RuntimeClasses
  metal.gpu.gpu_cluster_info:
    objects: true
  delegate_to: localhost
  run_once: true
  register: cluster
"""

RETURN = r"""
missing: {description: The missing permissions., returned: success, type: list, elements: dict}
user: {description: User name of the credentials., returned: success, type: str}
nodes: {description: As in M(metal.gpu.gpu_capacity)., returned: success, type: dict}
daemonsets:
  description: All DaemonSets of the cluster. V(null) if they were not listed.
  returned: success
  type: list
  elements: dict
runtime_classes: {description: Likewise., returned: success, type: list, elements: dict}
priority_classes: {description: Likewise., returned: success, type: list, elements: dict}
policies:
  description: The admission policies, a list for each kind. V(null) if they were not listed; a kind
    is V(null) if the cluster does not have it in version V(v1).
  returned: success
  type: dict
cluster_policies:
  description: The C(ClusterPolicy) objects of a GPU Operator, if one owns a DaemonSet.
  returned: success
  type: list
  elements: dict
forbidden:
  description: The errors of the API server about lists that it forbids.
  returned: success
  type: list
  elements: str
policies_forbidden:
  description: The same about RV(policies) and RV(cluster_policies), which not every run needs.
  returned: success
  type: list
  elements: str
config_maps:
  description: The ConfigMap of O(config_map), if there is one of this collection.
  returned: success
  type: list
  elements: dict
not_running:
  description: Why the DaemonSet of O(rollout) does not run, keyed by node.
  returned: success
  type: dict
without_image:
  description: The pod and the error of nodes for which its image is not there, keyed by node.
  returned: success
  type: dict
has_former: {description: Whether it has pods of an older revision., returned: success, type: bool}
seconds: {description: How long the module has waited for it., returned: success, type: int}
error:
  description: Why the API server did not answer. Empty if it answered.
  returned: with O(report_only)
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    capacity,
    kube_module,
    permissions,
    rivals,
    rollout,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import only
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiForbidden,
    ApiMissing,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.cluster.proof_pod import (
    MANAGED_BY,
    MANAGER,
    PRIORITY_CLASS,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

ARGUMENT_SPEC: dict[str, Any] = {
    **kube_module.ARGUMENTS,
    "permissions": {**permissions.OPTION, "required": False, "default": []},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "machines": {"type": "dict", "default": {}},
    "objects": {"type": "bool", "default": False},
    "config_map": {
        "type": "dict",
        "options": {
            "namespace": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
        },
    },
    "rollout": {
        "type": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "namespace": {"type": "str", "required": True},
            "selectors": {"type": "list", "elements": "str", "required": True},
            "nodes": {"type": "list", "elements": "str", "required": True},
            "revisions": {"type": "bool", "default": True},
            "wait_timeout": {"type": "int", "default": 300},
        },
    },
}
_RESOURCE = "nvidia.com/gpu"
_DELETE = {"group": "", "resource": "configmaps", "verbs": ["get", "delete"], "any": False}
_POLICIES = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
NOTHING: dict[str, Any] = {
    "missing": [],
    "user": "",
    "nodes": {},
    # A list that nobody has read must not look like an empty cluster.
    "daemonsets": None,
    "runtime_classes": None,
    "priority_classes": None,
    "policies": None,
    "cluster_policies": [],
    "forbidden": [],
    "policies_forbidden": [],
    "config_maps": [],
    "not_running": {},
    "without_image": {},
    "has_former": False,
    "seconds": 0,
}


def run(client: Client, params: dict[str, Any]) -> dict[str, Any]:
    """Return the module's result; raise KubeError."""
    result: dict[str, Any] = {"changed": False, **NOTHING}
    result |= permissions.run(client, params["permissions"])
    result["missing"] = _without_class(client, result["missing"])
    if result["missing"]:
        return result
    if params["nodes"]:
        amounts = dict.fromkeys(params["nodes"])
        found = capacity.run(client, amounts, _RESOURCE, 0, {}, machines=params["machines"])
        # A node that is not in the cluster is no failure: whoever asked knows what it means.
        result |= {"nodes": found["nodes"], "error": found["error"]}
        if found["error"]:
            result |= {"failed": True, "msg": found["error"]}
    if params["objects"]:
        forbidden: list[str] = []
        for key in ("daemonsets", "runtime_classes", "priority_classes"):
            result[key] = []
            try:
                result[key] = _list(client, key.replace("_", ""))
            except ApiForbidden as error:
                forbidden.append(str(error))
        result["forbidden"] = forbidden
        result |= _list_policies(client)
        if any(map(rivals.operator_owners, result["daemonsets"])):
            try:
                result["cluster_policies"] = _list(client, "clusterpolicies")
            except ApiMissing:
                pass  # whoever created the DaemonSet has invented the owner
            except ApiForbidden as error:
                result["policies_forbidden"].append(str(error))
    if params["config_map"]:
        namespace = params["config_map"]["namespace"]
        result["config_maps"] = _list_config_maps(client, namespace, params["config_map"]["name"])
        if result["config_maps"] and params["permissions"]:
            result |= permissions.run(client, [{**_DELETE, **params["config_map"]}])
    if params["rollout"]:
        result |= rollout.wait(client, params["rollout"], Timer(params["rollout"]["wait_timeout"]))
    return result


def _without_class(client: Client, missing: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out who may write the PriorityClass of the proof, where an admin has created it."""
    resource = "priorityclasses"
    about = [one for one in missing if one["resource"] == resource]
    if not about or any("list" in one["verbs"] for one in about):
        return missing
    query = only("metadata.name", [PRIORITY_CLASS])
    found = [section(one, "metadata", "labels") for one in _list(client, resource, query=query)]
    is_theirs = any(labels.get(MANAGED_BY) != MANAGER for labels in found)
    return [one for one in missing if one not in about] if is_theirs else missing


def _list_config_maps(client: Client, namespace: str, name: str) -> list[dict[str, Any]]:
    """Return the ConfigMap if it is ours. Who may not list any has to find it with the teardown."""
    query = {**only("metadata.name", [name]), "labelSelector": f"{MANAGED_BY}={MANAGER}"}
    try:
        return _list(client, "configmaps", namespace=namespace, query=query)
    except ApiForbidden:
        return []


def _list_policies(client: Client) -> dict[str, Any]:
    found: dict[str, list[dict[str, Any]] | None] = {}
    forbidden = []
    for kind, resource in _POLICIES.items():
        try:
            found[kind] = _list(client, resource)
        except ApiMissing:
            found[kind] = None
        except ApiForbidden as error:
            found[kind] = []
            forbidden.append(str(error))
    return {"policies": found, "policies_forbidden": forbidden}


def _list(client: Client, resource: str, **options: Any) -> list[dict[str, Any]]:
    return [*client.snapshot(resource, _without_managers, **options).values()]


def _without_managers(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object without the record of who manages its fields, often half of its size."""
    item["metadata"].pop("managedFields", None)
    return item


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    kube_module.run_module(module, lambda client: run(client, module.params), **NOTHING)


if __name__ == "__main__":
    main()
