# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""A thin client of the Kubernetes API: list, follow, create, patch, evict, delete.

`kube_settings` has the connection settings, `kube_transport` sends the requests, `kube_collections`
reads collections, `kube_errors` has the errors.

Every method of `Client` does I/O and raises `KubeError`s. A request may be sent more than once, so
every request is safe to repeat. In particular, objects are created by name, never by generateName.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_collections import (
    Reader,
    is_named,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import ApiRefused
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import MANAGER
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer


class Client(Reader):
    """The API requests that this collection uses."""

    def create(
        self,
        resource: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        timer: Timer | None = None,
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Create an object by its name and return it as the server stored it, or would.

        Raises ApiExists if the name exists. After a lost answer, that may be our own object.
        """
        query = {"dryRun": "All"} if dry_run else None
        return self.ask("create", resource, namespace, query=query, body=body, timer=timer)

    def patch(
        self, resource: str, name: str, body: Mapping[str, Any], timer: Timer | None = None
    ) -> dict[str, Any]:
        """Merge fields into a cluster-scoped object; null removes a field.

        If the body has metadata.resourceVersion, a newer object raises ApiConflict.
        """
        query = {"fieldManager": MANAGER}
        patched = self.ask(
            "patch", resource, None, path=f"/{name}", query=query, body=body, timer=timer
        )
        if not is_named(patched):
            raise self.odd(f"one of {resource}", json.dumps(patched))
        return patched

    def evict(self, pod: str, namespace: str, uid: str) -> None:
        """Request the eviction of a pod, once. Raises ApiBudget if a budget forbids it.

        Raises ApiConflict if the pod of this name has another uid.

        Source: kubernetes, pkg/registry/core/pod/storage/eviction.go: the delete options of an
        eviction apply to the deletion, which checks their preconditions.
        """
        body = {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        self.attempt("create", "pods", namespace, path=f"/{pod}/eviction", body=body)

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str | None,
        *,
        grace_s: int | None = None,
        timer: Timer | None = None,
    ) -> None:
        """Delete one object; `grace_s` None means its own grace period."""
        body = _delete_options(grace_s)
        self.ask("delete", resource, namespace, path=f"/{name}", body=body, timer=timer)

    def delete_collection(
        self,
        resource: str,
        namespace: str,
        *,
        selector: str,
        grace_s: int | None = None,
        timer: Timer | None = None,
    ) -> None:
        """Delete all objects with the labels; `grace_s` None means their own grace periods."""
        query, body = {"labelSelector": selector}, _delete_options(grace_s)
        self.ask("deletecollection", resource, namespace, query=query, body=body, timer=timer)

    def log_tail(self, pod: str, namespace: str, container: str, lines: int) -> str:
        """Request the last lines of a container's log, once."""
        query = {"container": container, "tailLines": str(lines)}
        answer = self.attempt("get", "pods", namespace, path=f"/{pod}/log", query=query)
        return answer.decode(errors="replace")

    def is_allowed(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the server allows these credentials an action.

        Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
        """
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        }
        answer = self.create("selfsubjectaccessreviews", review)
        return bool(section(answer, "status").get("allowed"))

    def user(self) -> str:
        """Return the user name of these credentials; empty if the server does not report it.

        Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#self-subject-review
        """
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            answer = self.create("selfsubjectreviews", review)
        except ApiRefused:
            return ""  # before Kubernetes 1.28, or forbidden
        return str(section(answer, "status", "userInfo").get("username") or "")


def _delete_options(grace_s: int | None) -> dict[str, Any]:
    return {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_s}
