# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is observed about NVSwitches, Fabric Manager and the fabric of the GPUs. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.components import health, platform
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.fabric import Values
from ansible_collections.metal.gpu.plugins.module_utils.read import fabric, systemd
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw


class FabricUnit(TypedDict):
    """The state of a unit, in systemd's words."""

    installed: bool
    enabled: bool
    active: bool
    state: str


class FabricState(TypedDict):
    """The fabric of a GPU, in nvidia-smi's words."""

    pci_address: str
    state: str
    status: str
    good: bool
    clique: int | None
    health: str | None
    misconfigured: str | None
    degraded: list[str]
    healthy: bool


class Fabric(TypedDict):
    """What connects the GPUs."""

    switches: list[GpuRow]
    ports: list[str]
    packages: dict[str, str]
    manager: FabricUnit | None
    imex: FabricUnit | None
    process: bool
    subnet_manager: bool
    modules: list[str]
    missing_modules: list[str]
    mode: int | None
    states: list[FabricState]
    log: list[str]


class Observed(TypedDict):
    """The fabric."""

    fabric: Fabric


def observe(raw: Raw) -> Observed:
    values = cast(Values, raw.values("fabric"))
    bus = cast(platform.Values, raw.values("platform"))
    units = systemd.parse_show(raw.stdout("fabric_units"))
    has_states = any(map(fabric.has_state, bus["pci"]))
    report = cast(health.Values, raw.values("health"))["report"]
    states = fabric.states(report) if has_states else []
    return {
        "fabric": {
            "switches": bus["nvswitches"],
            "ports": values["ports"],
            "packages": raw.versions(fabric.is_fabric_package),
            "manager": _unit(units.get(fabric.MANAGER)),
            "imex": _unit(units.get(fabric.IMEX)),
            "process": values["process"],
            "subnet_manager": values["subnet_manager"],
            "modules": values["modules"],
            "missing_modules": values["missing_modules"],
            "mode": fabric.parse_mode(raw.texts.get(fabric.CONFIG, "")),
            "states": [_state(one) for one in states],
            "log": values["log"],
        }
    }


def _state(gpu: fabric.GpuState) -> FabricState:
    return {
        "pci_address": gpu.pci_address,
        "state": gpu.state,
        "status": gpu.status,
        "good": gpu.is_good,
        "clique": gpu.clique,
        "health": gpu.health,
        "misconfigured": gpu.misconfigured,
        "degraded": gpu.degraded,
        "healthy": gpu.is_healthy,
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
