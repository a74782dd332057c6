# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has the user of the kubeconfig to be allowed to do? No function does I/O.

docs/permissions.yml says the same as a ClusterRole; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.forbidden import missing_permission

CLUSTER, SMOKE, PLUGIN = "", "smoke", "plugin"  # where; the last two stand for a namespace


class Permission(NamedTuple):
    """Verbs on a resource. With `is_any`, one of them is enough."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    where: str = CLUSTER
    is_any: bool = False


_NODES = Permission("", "nodes", ("list", "watch"))
_HOLDERS = Permission("", "pods", ("list",))  # which pods have claimed GPUs, in all namespaces

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
        Permission("", "nodes", ("get", "patch")),
    ),
    # One that is adopted is left as it is.
    "device_plugin_adopted": (
        Permission("apps", "daemonsets", ("get", "list")),
        Permission("node.k8s.io", "runtimeclasses", ("list",)),
        Permission("", "pods", ("list",)),
    ),
    "device_plugin_absent": (
        Permission("apps", "daemonsets", ("get", "list", "delete")),
        Permission("", "pods", ("list",), PLUGIN),
        Permission("node.k8s.io", "runtimeclasses", ("get", "list", "delete")),
        Permission("", "nodes", ("get", "patch")),
    ),
    "holders": (_HOLDERS,),
    "drain": (
        _HOLDERS,
        Permission("", "nodes", ("get", "patch")),
        Permission("", "pods", ("get",)),
        Permission("", "pods/eviction", ("create",)),
    ),
}

# What makes messages better, and is left out where it is withheld.
HELPFUL = (
    Permission("", "pods/log", ("get",)),
    Permission("", "events", ("list", "watch")),
    Permission("apps", "daemonsets", ("list",)),
    Permission("coordination.k8s.io", "leases", ("list",)),
)


def needed(parts: Iterable[str], namespaces: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the permissions for parts of the work, as the module that asks for them wants them."""
    wanted = dict.fromkeys(permission for part in parts for permission in NEEDED[part])
    return [
        {
            "group": permission.group,
            "resource": permission.resource,
            "verbs": list(permission.verbs),
            "namespace": namespaces.get(permission.where, ""),
            "any": permission.is_any,
        }
        for permission in wanted
    ]


def refuse_missing(user: str, missing: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a refusal for each resource that the user may not use as it is needed."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission in missing:
        group = permission["group"]
        resource = f"{permission['resource']}.{group}" if group else permission["resource"]
        texts = [" or ".join(permission["verbs"])] if permission["any"] else permission["verbs"]
        known = verbs.setdefault((resource, permission["namespace"]), [])
        known += [text for text in texts if text not in known]
    return [
        missing_permission(user or "the user of the kubeconfig", ", ".join(texts), resource, where)
        for (resource, where), texts in verbs.items()
    ]
