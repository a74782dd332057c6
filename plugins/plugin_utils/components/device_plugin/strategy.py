# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How do GPUs get into the containers of a node: which strategies does its engine support?

One table says it for all engines. An engine that is not in it gets CDI.

Source: tests/recorded/engine_strategies.yml
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read.version import is_newer
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Member,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines

AUTO = "auto"
CDI = ("cdi-cri", "cdi-annotations")  # the engine creates the devices
BY_RUNTIME = ("envvar", "volume-mounts")  # NVIDIA's runtime creates them


class Row(NamedTuple):
    """What an engine supports, from a version on of the program that decides it."""

    engine: str
    program: str
    since: str
    works: tuple[str, ...]  # the one that `auto` selects is the first
    reason: str = ""  # why the others do not work
    ignores: bool = False  # the others have no effect, beside one that works


_FORMER_CDI = "containerd before 1.7.16 cannot read the CDI specifications of the device plugin"

# For a program of an unknown version, and one that is not installed yet, the first row of its
# engine counts.
ROWS = (
    Row(engines.CONTAINERD, "containerd", "1.7.16", (*CDI, *BY_RUNTIME)),
    Row(engines.CONTAINERD, "containerd", "1.7.0", BY_RUNTIME, _FORMER_CDI),
    Row(engines.CONTAINERD, "containerd", "0", BY_RUNTIME, _FORMER_CDI, ignores=True),
    Row(
        engines.DOCKER,
        "cri-dockerd",
        "0",
        BY_RUNTIME,
        # Its main branch does. A row for a release needs a record of that release.
        "no known release of cri-dockerd passes CDI devices to Docker",
        ignores=True,
    ),
    Row(engines.CRIO, "crio", "0", (*CDI, *BY_RUNTIME)),  # every supported one has CDI, always
)
_OTHERS = Row("", "", "0", (*CDI, *BY_RUNTIME))


class Problem(NamedTuple):
    """Why a strategy does not work on a node, and what to set instead."""

    reason: str
    remedy: str


class Decision(NamedTuple):
    """The strategy for a node, or all reasons why there is none."""

    strategy: str
    label: str  # the engine, with its version where that decides
    problems: tuple[Problem, ...] = ()


class Facts(TypedDict):
    """What decides about the strategy of a node."""

    versions: dict[str, str | None]
    cdi: bool | None
    default: str | None


def facts(engine: str | None, node: Node, *, is_pending: bool) -> Facts:
    """Return what decides about the strategy of a node, of its observation.

    `is_pending`: the run is about to change the engine's configuration, so what it has now does
    not count.
    """
    containerd, docker = node["engines"]["containerd"], node["engines"]["docker"]
    if engine == engines.DOCKER:
        versions = {engine: docker["version"], "cri-dockerd": docker["cri_dockerd"]["version"]}
        counts, cdi = docker["installed"], docker["cdi_enabled"]
    elif engine == engines.CONTAINERD:
        versions = {engine: containerd["version"]}
        counts, cdi = containerd["installed"], containerd["cdi_enabled"]
    elif engine == engines.CRIO:
        crio = node["engines"]["crio"]
        versions = {engine: crio["version"]}
        counts, cdi = crio["installed"], True
    else:
        return {"versions": {}, "cdi": None, "default": None}
    if is_pending or not counts:
        return {"versions": versions, "cdi": None, "default": None}
    return {"versions": versions, "cdi": cdi, "default": runtime.default(engine, node)}


def decide(member: Member, desired: str) -> Decision:
    """Choose the strategy for the engine of a node, or judge the desired one."""
    row = row_of(member)
    words = desired.split(",")
    if desired != AUTO:
        found = {word: tuple(_problems(row, member, word)) for word in words}
        works = any(not several for several in found.values())
        counting = (
            problem
            for word, several in found.items()
            for problem in several
            if not (works and _is_ignored(row, member, word))
        )
        return Decision(desired, _label(row, member), tuple(dict.fromkeys(counting)))
    tried = {word: tuple(_problems(row, member, word)) for word in row.works}
    for word, problems in tried.items():
        if not problems:
            return Decision(word, _label(row, member))
    every = (problem for problems in tried.values() for problem in problems)
    return Decision(row.works[0], _label(row, member), tuple(dict.fromkeys(every)))


def row_of(member: Member) -> Row:
    """Return the row for the engine of a node and its version."""
    rows = [row for row in ROWS if row.engine == member["engine"]]
    if not rows:
        return _OTHERS
    version = member["versions"].get(rows[0].program)
    if version is None:
        return rows[0]
    fitting = [row for row in rows if not is_newer(row.since, version)]
    return max(fitting, key=lambda row: tuple(map(int, row.since.split("."))))


def _is_ignored(row: Row, member: Member, word: str) -> bool:
    """Does the engine take no notice of a strategy? Then another one of the list can serve it."""
    return word in CDI and (row.ignores or member["cdi"] is False)


def _problems(row: Row, member: Member, word: str) -> Iterator[Problem]:
    engine = member["engine"]
    if word in (*CDI, *BY_RUNTIME) and word not in row.works:
        yield Problem(row.reason, "set device_plugin_device_list_strategy to auto or to envvar")
    elif word in CDI and member["cdi"] is False:
        yield Problem(
            f"CDI is off in {engine}",
            "set `nvidia_container_runtime_cdi: true` for these nodes, or "
            "`device_plugin_device_list_strategy: envvar` for all",
        )
    elif (
        word in BY_RUNTIME
        and engine == engines.DOCKER
        and member["default"] not in (None, runtime.NAME)
    ):
        yield Problem(
            f"Docker's default runtime is {member['default']}, and cri-dockerd supports no "
            "RuntimeClass, so no pod gets a GPU",
            "leave nvidia_container_runtime_default unset or set it to true for these nodes",
        )


def _label(row: Row, member: Member) -> str:
    """Name the engine in a message, with a version that makes it differ from others of its kind."""
    engine = member["engine"] or "an unknown engine"
    first = next((one for one in ROWS if one.engine == row.engine), row)
    version = member["versions"].get(row.program)
    if row is first or not version:
        return engine
    with_program = "" if row.program == engine else f" with {row.program}"
    return f"{engine}{with_program} {version}"
