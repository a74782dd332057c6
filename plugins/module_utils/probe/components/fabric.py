# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about NVSwitches and Fabric Manager: nothing where there are none.

Only a node with NVSwitches is asked for its units. The GPUs report their fabric with their health.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe import kernel_modules, own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.components import health, platform
from ansible_collections.metal.gpu.plugins.module_utils.probe.pci import read_management_ports
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import fabric, systemd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading

_SHOWN = "--property=Id,Names,LoadState,ActiveState,SubState,Result,UnitFileState"
# Its own words, and not those of systemd about it.
_JOURNAL = (
    *("journalctl", f"_SYSTEMD_UNIT={fabric.MANAGER}", "--boot", "--lines=20"),
    *("--output=cat", "--no-pager"),
)


class _Early(TypedDict):
    ports: list[str]  # addresses of the InfiniBand adapters to the NVSwitches of B200 and B300
    process: bool  # whether Fabric Manager runs, as a service or in a container
    subnet_manager: bool  # whether `nvlsm` runs, which B200 and B300 need
    modules: list[str]  # loaded modules that `nvlsm` needs, of `mlx5_ib` and `ib_umad`
    # those of `modules` that are not loaded, and that the running kernel lacks
    missing_modules: list[str]


class Values(_Early):
    """What only this component reads."""

    log: list[str]  # last lines, if Fabric Manager or `nvlsm` does not run, or a state is not good


def _values(reading: Reading) -> _Early:
    found = platform.values_of(reading)
    root = reading.node.root
    is_possible = any(map(fabric.may_be_behind_adapters, found["pci"]))
    ports = read_management_ports(root, found["infiniband"]) if is_possible else []
    has_switches = bool(found["nvswitches"] or ports)
    names = (fabric.ADAPTER_MODULE, fabric.MAD_MODULE) if ports else ()
    modules = [name for name in names if (root / "sys/module" / name).is_dir()]
    return {
        "ports": ports,
        "process": has_switches and _has_process(root, "comm", _is_manager),
        "subnet_manager": bool(ports) and _has_process(root, "cmdline", fabric.is_subnet_manager),
        "modules": modules,
        "missing_modules": _missing(reading, [name for name in names if name not in modules]),
    }


def _missing(reading: Reading, unloaded: list[str]) -> list[str]:
    if not unloaded:
        return []
    modules_dep = kernel_modules.read_modules_dep(reading, reading.release)
    return [name for name in unloaded if not fabric.has_module(modules_dep, name)]


def _has_process(root: Path, name: str, is_it: Callable[[bytes], bool]) -> bool:
    """Whether a process has a file of this name in /proc with such a content."""
    for path in (root / "proc").glob(f"[0-9]*/{name}"):
        try:
            if is_it(path.read_bytes()):
                return True
        except OSError:  # the process ended
            continue
    return False


def _is_manager(comm: bytes) -> bool:
    return comm.strip() == fabric.PROCESS.encode()


def _own(reading: Reading) -> _Early:
    return cast("_Early", reading.values["fabric"])


def _has_switches(reading: Reading) -> bool:
    return bool(_own(reading)["ports"] or platform.values_of(reading)["nvswitches"])


def _commands(reading: Reading) -> dict[str, Command]:
    if not _has_switches(reading):
        return {}
    argv = ("systemctl", "show", _SHOWN, "--", fabric.MANAGER, fabric.IMEX)
    return {"fabric_units": Command(argv)}


def _late_values(reading: Reading) -> dict[str, object]:
    """Read what Fabric Manager logged, if there is something to explain."""
    log: list[str] = []
    if _has_switches(reading) and not _is_fine(reading):
        outputs = reading.run(
            {"journal": Command(_JOURNAL), "log": Command(("tail", "--lines=20", fabric.LOG))}
        )
        texts = (outputs[name].stdout for name in ("journal", "log") if name in outputs)
        log = fabric.parse_log(*texts)
    return {"log": log}


def _is_fine(reading: Reading) -> bool:
    output = reading.outputs.get("fabric_units")
    units = systemd.parse_show(output.stdout) if output else {}
    is_active = units.get(fabric.MANAGER, {}).get("ActiveState") == "active"
    is_whole = _own(reading)["subnet_manager"] or not _own(reading)["ports"]
    states = fabric.states(health.values_of(reading)["report"])
    return is_active and is_whole and all(gpu["good"] for gpu in states)


PROBE = Probe(
    files=(fabric.CONFIG,),
    own_files={own_files.FABRIC_DROP_IN: "nvidia_driver"},
    values=_values,
    commands=_commands,
    late_values=_late_values,
)
