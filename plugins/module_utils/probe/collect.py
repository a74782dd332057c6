# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Read everything on a node that the controller interprets, for all components.

`collect` does I/O, in one pass: units first, because they name configuration files, then files,
then programs.
"""

from __future__ import annotations

import os
import time
from posixpath import basename
from typing import TYPE_CHECKING, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe import program_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.probe.own_files import read_own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import (
    LAYERS,
    Node,
    Reading,
    Request,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES
from ansible_collections.metal.gpu.plugins.module_utils.probe.services import (
    Kind,
    Service,
    read_service,
)
from ansible_collections.metal.gpu.plugins.module_utils.read import systemd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
    from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import (
        Asked,
        RawData,
        ServiceData,
    )
    from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output

    Value = TypeVar("Value")

# Properties of units: those that are sent to the controller, and those that may contain secrets.
STATE = (
    *("Id", "LoadState", "ActiveState", "SubState", "Result", "UnitFileState"),
    *("ActiveEnterTimestampMonotonic", "StateChangeTimestampMonotonic"),
    *("NeedDaemonReload", "Listen"),
)
COMMAND = ("Names", "MainPID", "ControlGroup", "ExecStart", "Environment", "EnvironmentFiles")


def _all(part: Callable[[Probe], Mapping[str, Value]]) -> dict[str, Value]:
    """Return what all probes have in a part. No two of them have the same name."""
    return {name: value for probe in PROBES.values() for name, value in part(probe).items()}


def units() -> list[str]:
    """Return the units whose state is read."""
    return [unit for probe in PROBES.values() for unit in (*probe.services, *probe.units)]


def collect(node: Node, request: Request) -> RawData:
    """Return everything that the controller interprets."""
    start = Reading(node, request, {}, {}, NodeFiles(node.root), NodeFiles(node.root))
    kinds = _kinds(start.unit_files)
    asked_units = [*dict.fromkeys((*units(), *kinds))]
    answers = start.run(_query_units(units(), [unit for unit in kinds if unit not in units()]))
    properties: dict[str, dict[str, str]] = {}
    for answer in answers.values():
        properties.update(systemd.parse_show(answer.stdout))
    reading = start._replace(
        units=properties, services=_read_services(node, start.unit_files, kinds, properties)
    )
    _read_files(reading)
    values: dict[str, Mapping[str, object]] = {}
    for name, probe in PROBES.items():
        values[name] = probe.values(reading._replace(values=values))
    reading = reading._replace(values=values)
    outputs = _query_programs(reading)
    reading = reading._replace(outputs=outputs)
    for name, probe in PROBES.items():
        values[name] = {**values[name], **probe.late_values(reading)}
    # Its output can contain secrets. The selected properties are in "units".
    shown = {name: answer._replace(stdout="") for name, answer in answers.items()}
    asked: Asked = {
        "packages": list(request.packages),
        "repositories": list(request.repositories),
        "units": asked_units,
    }
    return {
        "asked": asked,
        "architecture": os.uname().machine,
        "units": {unit: _select(one, STATE) for unit, one in properties.items()},
        "services": {unit: _as_data(service) for unit, service in reading.services.items()},
        "exists": {
            name: reading.files.exists(path.format(release=reading.release))
            for name, path in _all(lambda probe: probe.exists).items()
        },
        "found": {
            name: [path for pattern in patterns for path in reading.files.find(pattern)]
            for name, patterns in _all(lambda probe: probe.found).items()
        },
        "programs": {
            name: reading.find_program(name) for probe in PROBES.values() for name in probe.programs
        },
        "program_files": {
            name: program_files.read_program(node.root, name, directories)
            for name, directories in _all(lambda probe: probe.program_files).items()
        },
        "own_files": read_own_files(node.root, _all(lambda probe: probe.own_files)),
        "values": values,
        "modified": _read_times(reading),
        "clock": {"now": time.time(), "uptime": time.monotonic()},
        "outputs": {
            name: {"rc": one.rc, "stdout": one.stdout, "stderr": one.stderr}
            for name, one in {**shown, **outputs}.items()
        },
        "texts": reading.files.texts,
        "errors": {**reading.unit_files.errors, **reading.files.errors},
    }


def _kinds(files: NodeFiles) -> dict[str, Kind]:
    """Return the services to read, also those whose names only the node has."""
    named = {
        basename(path): kind
        for pattern, kind in _all(lambda probe: probe.named_services).items()
        for path in files.find(pattern)
        if systemd.can_run(basename(path))
    }
    return {**named, **_all(lambda probe: probe.services)}


def _query_units(known: Sequence[str], named: Sequence[str]) -> dict[str, Command]:
    """Return what asks for units. `systemctl show` ends at the first name that it rejects.

    So names that only the node has do not get between systemd and the known ones.
    """
    shown = f"--property={','.join((*STATE, *COMMAND))}"
    batches = {"systemctl": known, "systemctl_named": named}
    return {
        name: Command(("systemctl", "show", shown, "--", *batch))
        for name, batch in batches.items()
        if batch
    }


def _read_services(
    node: Node,
    files: NodeFiles,
    kinds: Mapping[str, Kind],
    properties: Mapping[str, Mapping[str, str]],
) -> dict[str, Service]:
    return {
        unit: read_service(node.root, files, unit, kind, properties.get(unit, {}))
        for unit, kind in kinds.items()
    }


def _read_files(reading: Reading) -> None:
    for probe in PROBES.values():
        reading.files.read_all(probe.files)
        for one in probe.layered:
            directories = [f"{layer}/{one.directory}" for layer in LAYERS]
            reading.files.read_layered(directories, one.pattern, one.containing)
    for probe in PROBES.values():
        probe.read(reading)


def _select(properties: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: properties[name] for name in names if name in properties}


def _as_data(service: Service) -> ServiceData:
    lists = {
        name: [flag._asdict() for flag in getattr(service, name)] for name in ("in_force", "flags")
    }
    return cast("ServiceData", {**service._asdict(), **lists})


def _read_times(reading: Reading) -> dict[str, float]:
    """Return when configuration and other files of interest were written, keyed by path."""
    files = reading.files
    read = (*files.texts, *reading.unit_files.texts)
    paths = [path for path in read if not path.startswith(("/proc/", "/sys/"))]
    times = {path: files.modified(path) for path in paths}
    times.update(_all(lambda probe: probe.times(reading)))
    return {path: modified for path, modified in times.items() if modified is not None}


def _query_programs(reading: Reading) -> dict[str, Output]:
    """Run every existing program; return the outputs."""
    outputs = reading.run(_all(lambda probe: probe.commands(reading)))
    outputs.update(reading.run(_all(lambda probe: probe.follow_up(reading, outputs))))
    return outputs
