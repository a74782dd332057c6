# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The findings about hosts whose nodes have no GPUs yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Member,
    Row,
)


class Rollout(TypedDict):
    """What metal.gpu.gpu_cluster_info returns of a rollout, by node."""

    not_running: Mapping[str, str]
    without_image: Mapping[str, Mapping[str, str]]
    seconds: int


def missing(members: Iterable[Member], rows: Mapping[str, Row]) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host whose node has not joined the cluster."""
    return {
        one["host"]: [finding("NODE_NOT_IN_CLUSTER", one["host"], node=one["node"])]
        for one in members
        if one["node"] in rows and rows[one["node"]]["state"] == "missing"
    }


def not_running(members: Iterable[Member], waited: Rollout) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host on whose node the plugin does not run, and why."""
    found: dict[str, list[dict[str, str]]] = {}
    counted = "the device plugin does not run"
    for one in members:
        host, node = one["host"], one["node"]
        if node in waited["without_image"]:
            image = waited["without_image"][node]
            found[host] = [
                finding("DEVICE_PLUGIN_IMAGE_UNAVAILABLE", host, counted=counted, **image)
            ]
        elif node in waited["not_running"]:
            words, seconds = waited["not_running"][node], waited["seconds"]
            found[host] = [finding("ROLLOUT_STUCK", host, found=words, seconds=seconds)]
    return found
