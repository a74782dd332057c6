# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which permissions does the user of the kubeconfig need? No function does I/O.

docs/permissions.yml has the same permissions as roles; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import missing_permission
from ansible_collections.metal.gpu.plugins.module_utils.cluster.proof_pod import PRIORITY_CLASS
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import guard

# Scopes; the others than the first are keys of a namespace.
CLUSTER, SMOKE, PLUGIN, LEASES = "", "smoke", "plugin", "leases"


_ADMISSION = "admissionregistration.k8s.io"
_POLICIES = ("mutatingadmissionpolicies", "validatingadmissionpolicies")
_POLICY_BINDINGS = ("mutatingadmissionpolicybindings", "validatingadmissionpolicybindings")


# Objects of this collection, by the keys of their names. Nothing is changed about others.
_NAMES = {
    "daemonsets": "plugin_name",
    "configmaps": "config_name",
    "runtimeclasses": "class_name",
    "priorityclasses": "proof_class",
    **dict.fromkeys((*_POLICIES, *_POLICY_BINDINGS), "guard_name"),
}
_FIXED = {"guard_name": guard.NAME, "proof_class": PRIORITY_CLASS}
_BY_NAME = ("get", "patch", "delete")  # the API server knows the name


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
        Permission("apps", "daemonsets", ("get", "list")),
        Permission("apps", "daemonsets", ("delete",), PLUGIN),
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
        Permission("", "nodes", ("patch",)),
        Permission("", "pods/eviction", ("create",)),
    ),
}

# These permissions only improve messages. Without them, the messages have fewer details.
HELPFUL = (
    Permission("", "pods/log", ("get",), PLUGIN),
    Permission("", "events", ("list",), PLUGIN),
    Permission("", "events", ("list", "watch"), SMOKE),
    Permission("apps", "daemonsets", ("list",)),
    Permission("", "configmaps", ("list",), PLUGIN),
    Permission("coordination.k8s.io", "leases", ("list",), LEASES),
)


def needed(parts: Iterable[str], places: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the permissions for parts of the work, as options of gpu_permissions_info.

    `places` has the namespaces, and the names of the objects of this collection.
    """
    permissions = dict.fromkeys(permission for part in parts for permission in NEEDED[part])
    return [
        {
            "group": permission.group,
            "resource": permission.resource,
            "verbs": verbs,
            "namespace": places.get(permission.where, ""),
            "name": name,
            "any": permission.is_any,
        }
        for permission in permissions
        for name, verbs in by_name(permission, places).items()
    ]


def by_name(permission: Permission, places: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the verbs of a permission by the only name that they are for; empty for any name."""
    key = _NAMES.get(permission.resource, "")
    # Plugins of others are read in any namespace.
    is_ours = permission.where == PLUGIN or permission.resource not in ("daemonsets", "configmaps")
    name = {**_FIXED, **places}.get(key, "") if is_ours else ""
    found: dict[str, list[str]] = {}
    for verb in permission.verbs:
        found.setdefault(name if verb in _BY_NAME else "", []).append(verb)
    return found


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
