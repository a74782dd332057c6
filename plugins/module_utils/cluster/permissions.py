# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Which permissions do these credentials lack? Every function does I/O and raises KubeErrors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ANONYMOUS,
    ApiForbidden,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client

OPTION: dict[str, Any] = {
    "type": "list",
    "elements": "dict",
    "required": True,
    "options": {
        "group": {"type": "str", "default": ""},
        "resource": {"type": "str", "required": True},
        "verbs": {"type": "list", "elements": "str", "required": True},
        "namespace": {"type": "str", "default": ""},
        "name": {"type": "str", "default": ""},
        "any": {"type": "bool", "default": False},
    },
}

_PARALLEL = 8  # concurrent access reviews


def run(client: Client, permissions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the missing permissions, and the user if there are any."""

    def review_of(permission: Mapping[str, Any], verb: str) -> tuple[str, ...]:
        scope = (permission["namespace"], permission.get("name") or "")
        return (permission["group"], permission["resource"], verb, *scope)

    reviews = list(
        dict.fromkeys(
            review_of(permission, verb)
            for permission in permissions
            for verb in permission["verbs"]
        )
    )

    def is_allowed(review: tuple[str, ...]) -> bool:
        group, resource, verb, namespace, object_name = review
        name, _slash, subresource = resource.partition("/")
        attributes = {"group": group, "resource": name, "verb": verb}
        if subresource:
            attributes["subresource"] = subresource
        if namespace:
            attributes["namespace"] = namespace
        if object_name:
            attributes["name"] = object_name
        return client.is_allowed(attributes)

    try:
        with ThreadPoolExecutor(_PARALLEL) as pool:
            allowed = dict(zip(reviews, pool.map(is_allowed, reviews)))
    except ApiForbidden as error:
        if ANONYMOUS in error.reply:
            raise
        allowed = {}
    missing = []
    for permission in permissions:
        verbs = [
            verb
            for verb in permission["verbs"]
            if not allowed.get(review_of(permission, verb), True)
        ]
        enough = permission["any"] and len(verbs) < len(permission["verbs"])
        if verbs and not enough:
            missing.append({**permission, "verbs": verbs})
    return {"missing": missing, "user": client.user() if missing else ""}
