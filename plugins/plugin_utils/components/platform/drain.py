# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods block the removal of a node's GPUs from the cluster, and what else uses them?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe.device_users import DeviceUser


class Holder(TypedDict):
    """A pod that holds GPUs."""

    name: str
    gpus: int
    stays: str  # why it cannot be evicted


def users(node: Node) -> list[str]:
    """Return the processes that have the driver open. The node is observed with device_users."""
    return [_describe(user) for user in node["device_users"] or ()]


def work(node: Node) -> list[str]:
    """Return what a reboot would end, whatever the cluster knows of it.

    These are processes that compute, and containers of Docker that have GPUs and may idle.
    """
    containers = node["engines"]["docker"]["containers"]
    return [
        *(f"container {one['name']}" for one in containers if one["gpus"] and not one["of_pod"]),
        *(_describe(user) for user in node["device_users"] or () if user["computes"]),
    ]


def _describe(user: DeviceUser) -> str:
    pod = f", pod {user['pod']}" if user["pod"] else ""
    return f"{user['command']} (process {user['pid']}{pod})"


def refuse_holders(
    host: str, pods: Sequence[Holder], *, drain: bool, plugin: str = ""
) -> list[dict[str, str]]:
    """Return the refusals for the pods that hold GPUs of a host, which keeps a plugin."""
    if pods and not drain:
        holders = [f"{pod['name']} ({pod['gpus']})" for pod in pods]
        return [finding("GPUS_IN_USE", host, pods=", ".join(holders))]
    again = plugin and f"the device plugin {plugin} stays, so the pod would come back"
    staying = [f"{pod['name']} ({pod['stays'] or again})" for pod in pods if pod["stays"] or again]
    return [finding("GPU_PODS_STAY", host, pods=", ".join(staying))] if staying else []
