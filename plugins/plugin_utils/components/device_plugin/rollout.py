# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The findings about hosts whose nodes have no GPUs yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Member,
    Row,
)


def missing(members: Iterable[Member], rows: Mapping[str, Row]) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host whose node has not joined the cluster."""
    return {
        one["host"]: [finding("NODE_NOT_IN_CLUSTER", one["host"], node=one["node"])]
        for one in members
        if one["node"] in rows and rows[one["node"]]["state"] == "missing"
    }


def not_running(
    members: Iterable[Member], waiting: Mapping[str, str], seconds: int
) -> dict[str, list[dict[str, str]]]:
    """Return a finding for each host on whose node the plugin does not run, and why."""
    return {
        one["host"]: [
            finding("ROLLOUT_STUCK", one["host"], found=waiting[one["node"]], seconds=seconds)
        ]
        for one in members
        if one["node"] in waiting
    }
