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
    state: str  # words of systemd


class FabricState(TypedDict):
    """The fabric of a GPU, in nvidia-smi's words."""

    pci_address: str  # address, as in `pci`
    state: str  # word of `nvidia-smi`, such as `Completed`; `N/A` without a fabric
    status: str  # word of `nvidia-smi`, such as `Success`
    good: bool  # whether the GPU has no fabric, or is part of one that is ready
    clique: int | None  # number of the NVLink clique
    health: str | None  # summary, such as `Healthy`; None: not offered, as on H100
    misconfigured: str | None  # what is wrong with the configuration; `None` if nothing is
    degraded: list[str]  # parts that are not as they should be, on some GPUs always
    healthy: bool  # whether the driver reports nothing that is wrong with the links


class Fabric(TypedDict):
    """What connects the GPUs."""

    switches: list[GpuRow]  # NVSwitches on the PCI bus
    ports: list[str]  # addresses of the InfiniBand adapters to the NVSwitches of B200 and B300
    packages: dict[str, str]  # versions of Fabric Manager, IMEX and the subnet manager, by name
    manager: FabricUnit | None  # `nvidia-fabricmanager.service`; None without NVSwitches
    imex: FabricUnit | None  # `nvidia-imex.service`; None without NVSwitches
    process: bool  # whether Fabric Manager runs, as a service or in a container
    subnet_manager: bool  # whether `nvlsm` runs, which B200 and B300 need
    modules: list[str]  # loaded modules that `nvlsm` needs, of `mlx5_ib` and `ib_umad`
    missing_modules: list[str]  # those of them that the running kernel does not have
    mode: int | None  # `FABRIC_MODE` of Fabric Manager's configuration
    states: list[FabricState]  # GPUs that can have a fabric: Hopper and newer
    log: list[str]  # last lines, if Fabric Manager or `nvlsm` does not run, or a state is not good


class Observed(TypedDict):
    """The fabric."""

    fabric: Fabric  # NVSwitches, and Fabric Manager, without which CUDA does not start there


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
