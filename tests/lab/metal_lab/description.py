# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The description of a laboratory: a YAML file in tests/lab/labs or of a Molecule scenario.

nodes:
  - {name: gpu-1, os: debian12, machine: p100x4}
  - {name: gpu-2, os: debian13, machine: p100x4, containerd: imports, faults: [secure-boot]}
  - {name: gpu-3, os: debian12, machine: p100x4, engine: docker, docker: admin, vars: {a: b}}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from metal_lab.cache import LAB_SOURCES
from metal_lab.node_image import OURS, SUITES

MACHINES = LAB_SOURCES / "machines"


class Node(NamedTuple):
    """A machine of the laboratory."""

    name: str
    os: str  # a key of node_image.SUITES
    machine: str  # a file of tests/lab/machines, without suffix
    engine: str = "containerd"  # the engine of its kubelet: a key of node_image.OURS
    containerd: str = "plain"  # or "imports": the admin's config.toml imports a folder
    docker: str = "plain"  # or "admin": Docker has the admin's settings and container
    faults: tuple[str, ...] = ()  # injected once the node is Ready, in this order
    vars: Mapping[str, Any] = MappingProxyType({})  # additional variables of the inventory


def read(path: Path) -> tuple[Node, ...]:
    """Read a description. If it is invalid, exit with the file and the reason."""
    try:
        content = yaml.safe_load(path.read_text())
        nodes = tuple(_node(item, path) for item in content["nodes"])
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is not a description of a laboratory: {error}") from error
    names = [node.name for node in nodes]
    if len(set(names)) != len(names):
        raise SystemExit(f"{path}: two nodes have the same name: {', '.join(names)}")
    return nodes


def _node(item: dict[str, Any], path: Path) -> Node:
    node = Node(**{**item, "faults": tuple(item.get("faults", ()))})
    machines = sorted(file.stem for file in MACHINES.glob("*.yml"))
    for value, known, what in (
        (node.os, sorted(SUITES), "os"),
        (node.machine, machines, "machine"),
        (node.engine, sorted(OURS), "engine"),
        (node.containerd, ("plain", "imports"), "containerd"),
        (node.docker, ("plain", "admin"), "docker"),
    ):
        if value not in known:
            raise SystemExit(
                f"{path}: {node.name}: {what} {value!r} is not one of {', '.join(known)}"
            )
    return node


def machine(node: Node) -> dict[str, Any]:
    """Return the machine description of `node`."""
    description: dict[str, Any] = yaml.safe_load((MACHINES / f"{node.machine}.yml").read_text())
    return description


def gpu_count(node: Node) -> int:
    """Return the number of GPUs that `node` should have."""
    return sum(group["count"] for group in machine(node)["gpus"])
