# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods of the cluster claim GPUs, by their UID. Every method of `GpuPods` does I/O.

Only the pods that claim GPUs are kept, so memory does not grow with the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Event, Thread
from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.cluster import gpu_claims, kube_settings
from ansible_collections.metal.gpu.plugins.module_utils.cluster.gpu_claims import Claim
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client

_FOREVER_S = 10 * 365 * 86_400.0
_FIRST_S = 10.0  # how long the first list may take before the view starts without it


class GpuPods:
    """The pods that claim GPUs, kept up to date with one LIST and a WATCH."""

    def __init__(self, kubeconfig: str | None, context: str | None = None) -> None:
        self._options: dict[str, object] = dict.fromkeys(kube_settings.AUTH_ARGUMENTS)
        self._options["kubeconfig"] = kubeconfig or os.environ.get("K8S_AUTH_KUBECONFIG")
        self._options["context"] = context or os.environ.get("K8S_AUTH_CONTEXT")
        self._claims: dict[str, Claim] = {}
        self._listed = Event()
        self._error: str | None = None

    @property
    def error(self) -> str | None:
        """Return why the cluster does not answer."""
        return self._error

    def names(self) -> Mapping[str, str] | None:
        """Return namespace/name by UID; None if the cluster was never heard."""
        if not self._listed.is_set() or self._error:
            return None
        return {claim.uid: claim.key for claim in list(self._claims.values())}

    def read(self) -> None:
        """List the pods once."""
        try:
            self._claims = self._client().snapshot(
                "pods", gpu_claims.parse_claim, timer=Timer(_FIRST_S)
            )
        except KubeError as error:
            self._error = str(error)
        self._listed.set()

    def follow(self) -> None:
        """Start to follow the pods, and wait for the first list."""
        Thread(target=self._follow, daemon=True).start()
        self._listed.wait(_FIRST_S)

    def _follow(self) -> None:
        try:
            changes = self._client().follow(
                "pods", self._claims, gpu_claims.parse_claim, Timer(_FOREVER_S)
            )
            for _change in changes:
                self._listed.set()
        except KubeError as error:
            self._error = str(error)
            self._listed.set()

    def _client(self) -> Client:
        return kube_settings.connect(self._options)
