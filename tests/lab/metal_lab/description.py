# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The description of a laboratory: a YAML file. README.md explains its keys.

parts: [container-toolkit, device-plugin]
drivers: [580.178.04]
kernels: {6.1.0-51-amd64: true, 6.1.0-52-amd64: false}
inventory: inventory.yml.j2
scenes: scenes
nodes:
  - {name: gpu-1, os: debian12, machine: p100x4, kernel: 6.1.0-51-amd64}
  - {name: gpu-2, os: debian13, machine: p100x4, engine: docker, scenes: [old-docker]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from metal_lab.cache import FILES
from metal_lab.parts import IMAGES, LOADED, OF_ENGINE, PARTS, REGISTRY

MIRROR = "mirror"  # no node has this name: see `lab fault`
DEFAULT = FILES / "default.yml"
DEFAULT_INVENTORY = FILES / "inventory.yml.j2"
MACHINES = FILES / "machines"
SUITES = {"debian12": "bookworm", "debian13": "trixie"}
# The nodes have a real Ubuntu. Their kernel is that of the records in ubuntu.RECORDS.
UBUNTU = {"ubuntu2204": "jammy", "ubuntu2404": "noble"}
# Systems with rpm and dnf, as recorded/redhat.yml describes them.
REDHAT = ("rocky9", "rocky10")
SYSTEMS = (*SUITES, *UBUNTU, *REDHAT)


class Node(NamedTuple):
    """A machine of the laboratory."""

    name: str
    os: str  # one of SYSTEMS
    machine: str  # a file of MACHINES, without suffix
    engine: str = "containerd"  # of its kubelet: a key of parts.OF_ENGINE
    images: str = REGISTRY  # one of parts.IMAGES
    kernel: str = ""  # the simulated kernel that it runs: a key of `kernels`; empty: this machine's
    scenes: tuple[str, ...] = ()  # set up once the node is Ready, in this order
    faults: tuple[str, ...] = ()  # injected after that, in this order
    vars: Mapping[str, Any] = MappingProxyType({})  # for the template of the inventory


class Description(NamedTuple):
    """What a laboratory has."""

    nodes: tuple[Node, ...]
    parts: tuple[str, ...] = ()  # keys of parts.PARTS in its order, with those of the engines
    drivers: tuple[str, ...] = ()  # versions of NVIDIA's driver in its repository
    # Releases of simulated kernels, and whether the mirror has their headers.
    kernels: Mapping[str, bool] = MappingProxyType({})
    inventory: Path = DEFAULT_INVENTORY
    scenes: Path | None = None  # the folder of the scenes

    @property
    def suites(self) -> tuple[str, ...]:
        """The releases of Debian and Ubuntu that the nodes have."""
        known = {**SUITES, **UBUNTU}
        return tuple(sorted({known[node.os] for node in self.nodes if node.os in known}))

    @property
    def ubuntu(self) -> tuple[str, ...]:
        """The systems of Ubuntu that the nodes have."""
        return tuple(system for system in UBUNTU if system in {node.os for node in self.nodes})

    @property
    def has_management_ports(self) -> bool:
        """Whether NVSwitches of a node are behind adapters."""
        return any(
            "vpd" in function
            for node in self.nodes
            for function in machine(node).get("functions", [])
        )

    @property
    def redhat(self) -> tuple[str, ...]:
        """The systems of Red Hat's family that the nodes have."""
        return tuple(system for system in REDHAT if system in {node.os for node in self.nodes})


def read(path: Path) -> Description:
    """Read a description. If it is invalid, exit with the file and the reason."""
    try:
        content = yaml.safe_load(path.read_text())
        return _description(path, **content)
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise SystemExit(f"{path} is not a description of a laboratory: {error}") from error


def _description(
    path: Path,
    *,
    nodes: Iterable[Mapping[str, Any]],
    parts: Iterable[str] = (),
    drivers: Iterable[str] = (),
    kernels: Mapping[str, bool] = MappingProxyType({}),
    inventory: str = "",
    scenes: str = "",
) -> Description:
    """Return what a file says. Paths in it are relative to its folder."""
    folder = path.resolve().parent
    description = Description(
        tuple(_node(path, **item) for item in nodes),
        tuple(_known(path, "part", part, PARTS) for part in parts),
        tuple(drivers),
        {**kernels},
        folder / inventory if inventory else DEFAULT_INVENTORY,
        folder / scenes if scenes else None,
    )
    names = [node.name for node in description.nodes]
    if len(set(names)) != len(names):
        raise SystemExit(f"{path}: two nodes have the same name: {', '.join(names)}")
    for version in description.drivers:
        if not isinstance(version, str):
            raise SystemExit(f"{path}: a driver's version is a text: '{version}', with quotes")
    if not description.inventory.is_file():
        raise SystemExit(f"{path}: no file {description.inventory}, the inventory's template")
    known = [file.stem for file in description.scenes.glob("*.sh")] if description.scenes else []
    for node in description.nodes:
        for scene in node.scenes:
            _known(path, f"{node.name}: scene", scene, known)
        if node.kernel:
            _known(path, f"{node.name}: kernel", node.kernel, kernels)
            if node.os != "debian12":
                raise SystemExit(f"{path}: {node.name}: only nodes with debian12 have a kernel")
    wanted = {*description.parts, *(OF_ENGINE[node.engine] for node in description.nodes)}
    wanted |= {REGISTRY for node in description.nodes if node.images != LOADED}
    return description._replace(parts=tuple(part for part in PARTS if part in wanted))


def _node(path: Path, **item: Any) -> Node:
    node = Node(**item)
    for value, known, what in (
        (node.os, SYSTEMS, "os"),
        (node.machine, [file.stem for file in MACHINES.glob("*.yml")], "machine"),
        (node.engine, OF_ENGINE, "engine"),
        (node.images, IMAGES, "images"),
    ):
        _known(path, f"{node.name}: {what}", value, known)
    if node.name in (REGISTRY, MIRROR):
        raise SystemExit(f"{path}: {node.name}: `lab fault` has another use for this name")
    if node.os not in SUITES and node.engine != "containerd":
        raise SystemExit(f"{path}: {node.name}: a node with {node.os} has the engine containerd")
    if node.engine == "crio" and node.os != "debian13":
        # Debian 12's crun is older than what CRI-O needs.
        raise SystemExit(f"{path}: {node.name}: a node with CRI-O has the os debian13")
    return node._replace(scenes=tuple(node.scenes), faults=tuple(node.faults))


def _known(path: Path, what: str, value: str, known: Iterable[str]) -> str:
    """Return `value`. If it is not a known one, exit with all that are."""
    if value not in known:
        raise SystemExit(
            f"{path}: {what} {value!r} is not one of {', '.join(sorted(known)) or 'none'}"
        )
    return value


def machine(node: Node) -> dict[str, Any]:
    """Return the machine description of `node`."""
    description: dict[str, Any] = yaml.safe_load((MACHINES / f"{node.machine}.yml").read_text())
    return description


def gpus(node: Node) -> int:
    """Return the number of GPUs that `node` should have."""
    return sum(group["count"] for group in machine(node)["gpus"])
