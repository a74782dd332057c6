# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about NVSwitches, Fabric Manager and the fabric of the GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ansible_collections.metal.gpu.plugins.module_utils.observed.gpus import (
    FabricPart,
    FabricUnit,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.components import health, platform
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.fabric import Values
from ansible_collections.metal.gpu.plugins.module_utils.read import fabric, systemd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


def observe(raw: Raw) -> FabricPart:
    values = cast(Values, raw.values("fabric"))
    bus = cast(platform.Values, raw.values("platform"))
    units = systemd.parse_show(raw.stdout("fabric_units"))
    has_states = any(map(fabric.has_state, bus["pci"]))
    report = cast(health.Values, raw.values("health"))["report"]
    states = fabric.states(report) if has_states else []
    return {
        "fabric": {
            **values,
            "switches": bus["nvswitches"],
            "packages": raw.versions(fabric.is_fabric_package),
            "manager": _unit(units.get(fabric.MANAGER)),
            "imex": _unit(units.get(fabric.IMEX)),
            "mode": fabric.parse_mode(raw.texts.get(fabric.CONFIG, "")),
            "states": states,
        }
    }


def _unit(properties: Mapping[str, str] | None) -> FabricUnit | None:
    """Return the state of a unit; None if systemd was not asked, or did not answer."""
    if not properties or "ActiveState" not in properties:
        return None
    words = (properties.get(name, "") for name in ("ActiveState", "SubState", "Result"))
    return {
        "installed": properties.get("LoadState") == "loaded",
        "enabled": properties.get("UnitFileState") in systemd.ENABLED,
        "active": properties["ActiveState"] == "active",
        "state": ", ".join(dict.fromkeys(filter(None, words))),
    }
