# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which permissions does the user of the kubeconfig need? No function does I/O.

docs/permissions.yml has the same permissions as a ClusterRole; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import missing_permission

CLUSTER, SMOKE, PLUGIN = "", "smoke", "plugin"  # scopes; the last two are keys of a namespace


_ADMISSION = "admissionregistration.k8s.io"
_POLICIES = ("mutatingadmissionpolicies", "validatingadmissionpolicies")
_POLICY_BINDINGS = ("mutatingadmissionpolicybindings", "validatingadmissionpolicybindings")


class Permission(NamedTuple):
    """Verbs on a resource. With `is_any`, one of them is enough."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    where: str = CLUSTER
    is_any: bool = False


_NODES = Permission("", "nodes", ("list", "watch"))
_PROOF_CLASS = Permission(
    "scheduling.k8s.io", "priorityclasses", ("get", "list", "create", "patch")
)
_HOLDERS = Permission("", "pods", ("list",))  # which pods claim GPUs, in all namespaces

NEEDED: Mapping[str, tuple[Permission, ...]] = {
    "nodes": (_NODES,),
    "smoke": (
        _HOLDERS,
        Permission("", "pods", ("create", "list", "watch"), SMOKE),
        Permission("", "pods", ("deletecollection", "delete"), SMOKE, is_any=True),
    ),
    "device_plugin": (
        Permission("apps", "daemonsets", ("list",)),
        Permission("apps", "daemonsets", ("get", "create", "patch"), PLUGIN),
        Permission("apps", "controllerrevisions", ("list",), PLUGIN),
        Permission("", "pods", ("list",), PLUGIN),
        Permission("node.k8s.io", "runtimeclasses", ("get", "list", "create", "patch")),
        _PROOF_CLASS,
        Permission("", "nodes", ("get", "patch")),
    ),
    # Its configuration file.
    "device_plugin_config": (Permission("", "configmaps", ("get", "create", "patch"), PLUGIN),),
    # An adopted device plugin stays as it is.
    "device_plugin_adopted": (
        Permission("apps", "daemonsets", ("get", "list")),
        Permission("node.k8s.io", "runtimeclasses", ("list",)),
        _PROOF_CLASS,
        Permission("", "pods", ("list",)),
    ),
    "device_plugin_absent": (
        Permission("apps", "daemonsets", ("get", "list", "delete")),
        Permission("", "pods", ("list",), PLUGIN),
        Permission("node.k8s.io", "runtimeclasses", ("get", "list", "delete")),
        Permission("scheduling.k8s.io", "priorityclasses", ("get", "list", "delete")),
        Permission("", "nodes", ("get", "patch")),
        Permission("", "configmaps", ("list",), PLUGIN),
    ),
    "device_plugin_config_absent": (Permission("", "configmaps", ("get", "delete"), PLUGIN),),
    # The guard: policies of admission, and their bindings.
    "guard": (
        *(Permission(_ADMISSION, one, ("list", "get", "create", "patch")) for one in _POLICIES),
        *(Permission(_ADMISSION, one, ("get", "create", "patch")) for one in _POLICY_BINDINGS),
    ),
    # Of a GPU Operator. Asked only where a DaemonSet names one as its owner, so no part of a run.
    "operator": (Permission("nvidia.com", "clusterpolicies", ("list",)),),
    "guard_absent": (
        *(Permission(_ADMISSION, one, ("list", "get", "delete")) for one in _POLICIES),
        *(Permission(_ADMISSION, one, ("get", "delete")) for one in _POLICY_BINDINGS),
    ),
    "holders": (_HOLDERS,),
    "drain": (
        _HOLDERS,
        Permission("", "nodes", ("get", "patch")),
        Permission("", "pods", ("get",)),
        Permission("", "pods/eviction", ("create",)),
    ),
}

# These permissions only improve messages. Without them, the messages have fewer details.
HELPFUL = (
    Permission("", "pods/log", ("get",)),
    Permission("", "events", ("list", "watch")),
    Permission("apps", "daemonsets", ("list",)),
    Permission("", "configmaps", ("list",)),
    Permission("coordination.k8s.io", "leases", ("list",)),
)


def needed(parts: Iterable[str], namespaces: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the permissions for parts of the work, as options of gpu_permissions_info."""
    permissions = dict.fromkeys(permission for part in parts for permission in NEEDED[part])
    return [
        {
            "group": permission.group,
            "resource": permission.resource,
            "verbs": list(permission.verbs),
            "namespace": namespaces.get(permission.where, ""),
            "any": permission.is_any,
        }
        for permission in permissions
    ]


def refuse_missing(user: str, missing: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a refusal for each resource with missing permissions."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission in missing:
        group = permission["group"]
        resource = f"{permission['resource']}.{group}" if group else permission["resource"]
        texts = [" or ".join(permission["verbs"])] if permission["any"] else permission["verbs"]
        listed = verbs.setdefault((resource, permission["namespace"]), [])
        listed += [text for text in texts if text not in listed]
    return [
        missing_permission(user or "the user of the kubeconfig", ", ".join(texts), resource, where)
        for (resource, where), texts in verbs.items()
    ]
