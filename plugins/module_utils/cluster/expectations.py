# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Find out what each node must have, given how the device plugin shares its GPUs.

`Expectations` talks to the API server, once, and only if a node differs from one nvidia.com/gpu for
each GPU. What it cannot read leaves the labels of GPU feature discovery. Without these, nobody
knows how GPUs are shared, and the node is told so.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from ansible_collections.metal.gpu.plugins.module_utils.cluster import (
    plugin_causes,
    pod_status,
    scheduling,
    sharing,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import (
    ApiForbidden,
    ApiRefused,
    KubeError,
)
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_settings import parse_yaml
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_transport import Timer
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section, text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.node_status import NodeStatus
    from ansible_collections.metal.gpu.plugins.module_utils.cluster.sharing import (
        Expected,
        Setup,
        Sharing,
    )

_READ_S = 10.0
# How long a failure counts. Each try can last as long as `_READ_S`, and each change of a node asks.
_AGAIN_S = 10.0


class _Unread(Exception):
    """Nobody knows how the device plugin is configured; the message says why."""


class _Known:
    """What was read once, or why it could not be read and until when that counts."""

    def __init__(self, read: Callable[[], Any], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._value: Any = None
        self._why: str | None = ""  # None: it was read
        self._until = 0.0

    def get(self) -> Any:
        """Return what was read; raise _Unread."""
        if self._why and self._clock() < self._until:
            raise _Unread(self._why)
        if self._why is not None:
            try:
                self._value, self._why = self._read(), None
            except KubeError as error:
                is_final = isinstance(error, ApiForbidden)
                self._until = float("inf") if is_final else self._clock() + _AGAIN_S
                reply = error.reply if isinstance(error, ApiRefused) else ""
                self._why = reply or str(error)
                raise _Unread(self._why) from error
        return self._value


class Expectations:
    """What nodes must have. `by_hand` are amounts by node and resource.

    `split` are the numbers of GPUs in MIG mode by node, as far as somebody knows them.
    """

    def __init__(
        self,
        client: Client,
        by_hand: Mapping[str, Mapping[str, int]],
        split: Mapping[str, int | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._by_hand = by_hand
        self._split = split or {}
        self._clock = clock
        self._daemonsets = _Known(self._read_daemonsets, clock)
        self._configs: dict[str, _Known] = {}  # of ConfigMaps, by namespace/name

    def named(self, name: str) -> Collection[str]:
        """Return the resources that the admin expects of a node, by name."""
        return (self._by_hand.get(name) or {}).keys()

    def sharing(self, name: str, node: NodeStatus) -> Sharing | None:
        """Return what the device plugin of a node is configured to do; None if nobody knows."""
        try:
            return self._of_plugin(name, node)
        except _Unread:
            return None

    def of_node(self, name: str, node: NodeStatus, gpus: int) -> Expected:
        """Return what a node with so many GPUs must have."""
        if self._by_hand.get(name):
            stated = sharing.by_hand(self._by_hand[name], gpus)
            return stated._replace(mps=stated.shared and self._is_mps(name, node))
        found = {key: int(allocatable) for key, (_one, allocatable) in node.resources.items()}
        plain = sharing.expect(gpus, sharing.Sharing(), {}, {})
        if {key: int(amounts[0]) for key, amounts in node.resources.items()} == plain.resources:
            return plain
        why = ""
        try:
            configured = self._of_plugin(name, node)
        except _Unread as error:
            configured, why = None, str(error)
        configured = configured or sharing.of_labels(node.labels)
        expected = sharing.expect(
            gpus, configured or sharing.Sharing(), node.labels, found, self._split.get(name)
        )
        is_more = any(amount > (gpus if key == sharing.GPU else 0) for key, amount in found.items())
        if configured is None and why and is_more and not expected.source:
            return sharing.unread(expected, found, why)
        return expected._replace(mps=configured is not None and configured.strategy == sharing.MPS)

    def _is_mps(self, name: str, node: NodeStatus) -> bool:
        """Tell whether the GPUs of a node are known to be shared by MPS."""
        configured = self.sharing(name, node) or sharing.of_labels(node.labels)
        return configured is not None and configured.strategy == sharing.MPS

    def _of_plugin(self, name: str, node: NodeStatus) -> Sharing | None:
        """Return what the device plugin of a node is configured to do; None if there is none.

        Raises _Unread.
        """
        for daemonset in self._daemonsets.get():
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

    def _of_config(self, setup: Setup) -> Sharing:
        if setup.name not in self._configs:
            read = functools.partial(self._read_config, setup.name)
            self._configs[setup.name] = _Known(read, self._clock)
        data = self._configs[setup.name].get()
        if data is None:
            raise _Unread(f"there is no ConfigMap {setup.name}")
        key = sharing.choose_key(setup, data)
        if key is None:
            name = setup.key or f"for this node among {', '.join(sorted(data)) or 'none'}"
            raise _Unread(f"the ConfigMap {setup.name} has no configuration {name}")
        content = text(data, key) or ""
        document = parse_yaml(content)
        if document is None and content.strip():
            raise _Unread(f"{key} in the ConfigMap {setup.name} is not valid YAML")
        return sharing.of_config(document, setup)

    def _read_daemonsets(self) -> list[Mapping[str, Any]]:
        def keep(daemonset: dict[str, Any]) -> dict[str, Any] | None:
            template = section(daemonset, "spec", "template")
            return daemonset if pod_status.is_device_plugin(template) else None

        found = self._client.snapshot("daemonsets", keep, timer=Timer(_READ_S))
        return plugin_causes.choose_plugins(found.values(), sharing.GPU)

    def _read_config(self, name: str) -> Mapping[str, str] | None:
        namespace, _slash, plain_name = name.partition("/")

        def keep(config: dict[str, Any]) -> Mapping[str, str] | None:
            is_same = config["metadata"]["name"] == plain_name
            return section(config, "data") if is_same else None

        timer = Timer(_READ_S)
        found = self._client.snapshot("configmaps", keep, namespace=namespace, timer=timer)
        return next(iter(found.values()), None)
