# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generated parts of docs/support.md: the table of systems, and what is unproven on each.

To write them anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    plan as plan_nvidia_container_runtime,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    known,
    packages,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    plan as plan_nvidia_driver,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import (
    DISTRIBUTION,
    NVIDIA,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    EXERCISED,
    PACKAGE_MANAGER,
    REDHAT,
    SYSTEMS,
    System,
)
from ansible_collections.metal.gpu.tests.unit.golden import scenarios
from ansible_collections.metal.gpu.tests.unit.golden.documents import (
    REBUILDS,
    assert_documented,
    file_name,
    table,
)
from ansible_collections.metal.gpu.tests.unit.golden.judged import judged, name_of_driver
from ansible_collections.metal.gpu.tests.unit.golden.nodes import (
    CARDS,
    ENGINES,
    ROOT,
    Card,
    node,
    variables,
)
from ansible_collections.metal.gpu.tests.unit.golden.plans import ENGINE_PLANS
from ansible_collections.metal.gpu.tests.unit.golden.test_golden import TEXTS, versions
from ansible_collections.metal.gpu.tests.unit.support import records
from ansible_collections.metal.gpu.tests.unit.support.records import Item, Judgement

SUPPORT = ROOT / "docs" / "support.md"


class Section(NamedTuple):
    """A section of the document: RHEL and its clones share one, as they share repositories."""

    heading: str
    systems: tuple[System, ...]

    @property
    def anchor(self) -> str:
        return re.sub(r"[^\w -]", "", self.heading.lower()).replace(" ", "-")


def sections() -> list[Section]:
    found: dict[str, list[System]] = {}
    for system in SYSTEMS:
        alike = f"{REDHAT} {system.version}" if system.family == REDHAT else system.name
        found.setdefault(alike, []).append(system)
    return [Section(_heading(alike), tuple(alike)) for alike in found.values()]


def _heading(systems: list[System]) -> str:
    names = ", ".join(_distribution(system) for system in systems)
    return f"{names} {systems[0].version}"


def _distribution(system: System) -> str:
    return system.name.removesuffix(f" {system.version}")


SECTIONS = sections()


# --- systems -------------------------------------------------------------------------------------


def systems() -> Iterator[list[str]]:
    """Yield the rows of the table of systems."""
    yield ["system", "level", "engines", "default drivers, by source", "plans"]
    for section in SECTIONS:
        for system in section.systems:
            engines = ", ".join(filter(lambda one: has(system, one), ENGINES))
            text = (TEXTS / file_name(system)).relative_to(ROOT)
            yield [
                f"[{system.name}](#{section.anchor})",
                system.level,
                engines,
                "; ".join(_drivers(system)),
                f"[{'differences from RHEL' if system.id in REBUILDS else 'text'}](../{text})",
            ]


def _drivers(system: System) -> Iterator[str]:
    for source in (NVIDIA, DISTRIBUTION):
        if found := versions(system, source):
            yield f"`{source}`: {', '.join(found)}"


def has(system: System, engine: str) -> bool:
    """Tell whether the engine would be installed, and GPUs given to it."""
    role, planner, needed = ENGINE_PLANS[engine]
    bare = planner.plan(node(system, engine, CARDS[0], has_engine=False), variables(role, **needed))
    ready = plan_nvidia_container_runtime.plan(
        node(system, engine, CARDS[0], has_engine=True),
        variables("nvidia_container_runtime", engine=engine),
    )
    return not bare["refusals"] and not ready["refusals"]


def test_systems_are_documented(is_update: bool) -> None:
    assert_documented(SUPPORT, "systems", table(systems()), is_update=is_update)


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_systems_with_nodes_are_exercised(system: System) -> None:
    assert bool(scenarios.of_system(system)) == (system.level in (EXERCISED, PACKAGE_MANAGER))


# --- drivers -------------------------------------------------------------------------------------


def drivers(section: Section) -> Iterator[list[str]]:
    """Yield the rows of a section about the driver of each generation, and about the scenarios."""
    yield ["system", *(card.generations for card in CARDS), "scenarios of the laboratory"]
    for system in section.systems:
        of_system = ", ".join(f"`{one}`" for one in scenarios.of_system(system)) or "none"
        yield [system.name, *(driver(system, card) for card in CARDS), of_system]


def driver(system: System, card: Card) -> str:
    """Return branch and kernel module of the default driver, or why there is none."""
    wanted = variables("nvidia_driver")
    made = plan_nvidia_driver.plan(node(system, ENGINES[0], card, has_engine=False), wanted)
    if made["refusals"]:
        code = made["refusals"][0]["code"]
        return f"[{code}](troubleshooting.md#{code.lower()})"
    branch = made["data"]["version"].removeprefix("of branch ").partition(".")[0]
    is_nvidias = "Pin: version" in made["data"].get("pin", {}).get("block", "")
    where = "" if is_nvidias or system.family == REDHAT else ", distribution's"
    return f"{branch}, {made['data']['flavour']}{where}"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.anchor)
def test_drivers_are_documented(section: Section, is_update: bool) -> None:
    name = f"drivers of {section.anchor}"
    assert_documented(SUPPORT, name, table(drivers(section)), is_update=is_update)


# --- what is unproven ----------------------------------------------------------------------------


class Unproven(NamedTuple):
    """Something that no record shows."""

    name: str
    what: str  # words about the name
    said: str


def unproven(section: Section) -> Iterator[list[str]]:
    """Yield the rows of a section about everything in its plans that no record shows."""
    found: dict[Unproven, dict[str, None]] = {}
    for system in section.systems:
        branches = _branches(system)
        defaults = [
            (one.repository, one.item, one.judgement)
            for one in judged(system)
            if one.judgement.state == records.UNPROVEN
        ]
        others = [(name_of_driver(system), item, judge) for item, (judge, _) in branches.items()]
        for repository, item, judgement in (*defaults, *others):
            name, what = _words(repository, item)
            if item in branches:
                of = branches[item][1]
                what += f", branch{'es' * (len(of) > 1)} {', '.join(map(str, of))}"
            line = Unproven(name, what, _evidence(judgement))
            found.setdefault(line, {})[_distribution(system)] = None
    # Packages of which the same is said share a row.
    names: dict[tuple[str, str, str], list[str]] = {}
    every = [_distribution(system) for system in section.systems]
    for line, where in found.items():
        place = "all" if [*where] == every else ", ".join(where)
        names.setdefault((line.what, place, line.said), []).append(line.name)
    rows = [["what", "system", "record"]]
    rows += [
        [what.format(", ".join(one)), where, said] for (what, where, said), one in names.items()
    ]
    for row in rows:
        yield row if len(every) > 1 else [row[0], row[2]]


def _branches(system: System) -> dict[Item, tuple[Judgement, list[int]]]:
    """Return which names and streams are unproven, and of which branches that a user can ask for.

    The golden texts show the default branches only.
    """
    found: dict[Item, tuple[Judgement, list[int]]] = {}
    for branch, version in known.repository(system).seen.items():
        for flavour in known.flavours(branch):
            for item in _items(system, version, flavour):
                judgement = records.judge(name_of_driver(system), item)
                if judgement.state != records.RECORDED:
                    branches = found.setdefault(item, (judgement, []))[1]
                    branches += [] if branch in branches else [branch]
    return found


def _items(system: System, version: str, flavour: str) -> Iterator[Item]:
    chosen = packages.choose(system, version, flavour)
    assert chosen, f"{system.name}: known.py offers {version}, and nothing has its packages"
    yield from (Item("package", name) for name in chosen.packages)
    if chosen.stream:
        yield Item("stream", chosen.stream)


def _words(repository: str, item: Item) -> tuple[str, str]:
    """Return what is unproven, and the words about it."""
    if item.what == "package":
        return f"`{item.value}`", "name of the package {}"
    if item.what == "version":
        return f"`{item.package}`", f"version `{item.value}` of {{}}"
    addresses = [row.values[0] for row in records.about(repository, "address")]
    where = addresses[0] if addresses else repository
    if item.what == "used on":
        return f"`{where}`", "use of {} on this system"
    if item.what == "signs":
        return f"`{where}`", f"signatures of the {item.value} in {{}}"
    return f"`{where}`", f"{item.what} `{item.value}` of {{}}"


def _evidence(judgement: Judgement) -> str:
    if judgement.row is None:
        return "unproven"
    source = judgement.row.source
    return f"unproven, inferred from: {source.where}, {source.date}"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda one: one.anchor)
def test_what_is_unproven_is_documented(section: Section, is_update: bool) -> None:
    name = f"unproven on {section.anchor}"
    assert_documented(SUPPORT, name, table(unproven(section)), is_update=is_update)
