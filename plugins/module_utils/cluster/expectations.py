# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out what each node must have, given how the device plugin shares its GPUs.

`Expectations` talks to the API server, once, and only if a node differs from one nvidia.com/gpu for
each GPU. What it cannot read leaves the labels of GPU feature discovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    plugin_causes,
    pod_status,
    scheduling,
    sharing,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import KubeError
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_settings import parse_yaml
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.sharing import (
        Expected,
        Setup,
        Sharing,
    )

_READ_S = 10.0


class Expectations:
    """What nodes must have. `by_hand` are amounts by node and resource."""

    def __init__(self, client: Client, by_hand: Mapping[str, Mapping[str, int]]) -> None:
        self._client = client
        self._by_hand = by_hand
        self._daemonsets: list[Mapping[str, Any]] | None = None  # None: not read yet
        self._configs: dict[str, Mapping[str, str]] = {}  # of ConfigMaps, by namespace/name

    def of_node(self, name: str, node: NodeStatus, gpus: int) -> Expected:
        """Return what a node with so many GPUs must have."""
        if self._by_hand.get(name):
            return sharing.by_hand(self._by_hand[name], gpus)
        plain = sharing.expect(gpus, sharing.Sharing(), {}, ())
        if {key: int(amounts[0]) for key, amounts in node.resources.items()} == plain.resources:
            return plain
        configured = self._of_plugin(name, node) or sharing.of_labels(node.labels)
        return sharing.expect(gpus, configured or sharing.Sharing(), node.labels, node.resources)

    def _of_plugin(self, name: str, node: NodeStatus) -> Sharing | None:
        """Return what the device plugin of a node is configured to do; None if that is unknown."""
        if self._daemonsets is None:
            self._daemonsets = self._read_daemonsets()
        for daemonset in self._daemonsets:
            spec = section(daemonset, "spec", "template", "spec")
            if scheduling.missing_labels(node.labels, spec):
                continue
            if scheduling.unmet_affinity(name, node.labels, spec):
                continue
            setup = sharing.of_setup(daemonset, node.labels)
            if not setup.name:
                return sharing.of_config(None, setup) if setup.mig else None
            return self._of_config(setup)
        return None

    def _of_config(self, setup: Setup) -> Sharing | None:
        if setup.name not in self._configs:
            self._configs[setup.name] = self._read_config(setup.name)
        data = self._configs[setup.name]
        key = setup.key or (next(iter(data)) if len(data) == 1 else "")
        document = parse_yaml(data[key]) if key in data else None
        return None if document is None else sharing.of_config(document, setup)

    def _read_daemonsets(self) -> list[Mapping[str, Any]]:
        def keep(daemonset: dict[str, Any]) -> dict[str, Any] | None:
            template = section(daemonset, "spec", "template")
            return daemonset if pod_status.is_device_plugin(template) else None

        try:
            found = self._client.snapshot("daemonsets", keep, timer=Timer(_READ_S))
        except KubeError:
            return []
        return plugin_causes.choose_plugins(found.values(), sharing.GPU)

    def _read_config(self, name: str) -> Mapping[str, str]:
        namespace, _slash, plain_name = name.partition("/")

        def keep(config: dict[str, Any]) -> Mapping[str, str] | None:
            return config.get("data", {}) if config["metadata"]["name"] == plain_name else None

        try:
            found = self._client.snapshot(
                "configmaps", keep, namespace=namespace, timer=Timer(_READ_S)
            )
        except KubeError:
            return {}
        return next(iter(found.values()), {})
