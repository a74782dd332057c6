# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of metal.gpu.node_info: run the module once, interpret its raw data."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import (
    ObservationFailed,
    interpret,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plain_types import plain
from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import execute_quietly


class ActionModule(ActionBase):
    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        super().run(tmp, task_vars)
        # The raw data contains passwords of registries and proxies.
        result = execute_quietly(self, "metal.gpu.node_info", task_vars=task_vars)
        raw = result.pop("raw", None)
        if raw is not None:
            try:
                result["gpu_node"] = interpret(plain(raw))
            except ObservationFailed as error:
                result |= {"failed": True, "msg": str(error), "failures": error.failures}
        return result
