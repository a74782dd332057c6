# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the roles put on a virgin node, for each system, engine and generation of GPUs.

The plans that the roles carry out are written down as texts, to be read in a review. To write them
anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

import re

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    plan as plan_nvidia_container_runtime,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    known,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    plan as plan_nvidia_driver,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import (
    AUTO,
    DISTRIBUTION,
    NVIDIA,
    Machine,
    Wish,
    Wished,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import (
    Choice,
    choose_source,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    REDHAT,
    SYSTEMS,
    System,
)
from ansible_collections.metal.gpu.tests.unit.golden import judged, render
from ansible_collections.metal.gpu.tests.unit.golden.documents import assert_documented
from ansible_collections.metal.gpu.tests.unit.golden.nodes import (
    CARDS,
    ENGINES,
    ROOT,
    Card,
    node,
    variables,
)
from ansible_collections.metal.gpu.tests.unit.golden.plans import (
    CONFIRMED,
    ENGINE_PLANS,
    driver,
    sections,
)
from ansible_collections.metal.gpu.tests.unit.support import records

TEXTS = ROOT / "tests" / "unit" / "golden" / "texts"
SUPPORT = ROOT / "docs" / "support.md"
DRIVER = ROOT / "docs" / "driver.md"
# What the laboratory installs; it simulates a GPU of each of these generations.
EXERCISED = (
    ("debian-12", NVIDIA, "Maxwell, Pascal, Volta"),
    ("debian-12", NVIDIA, "Turing, Ampere, Ada"),
)
DRIVER_CARDS = (*CARDS[-1:], *CARDS[:-1])  # the oldest generation first
TABLE = re.compile(r"(?<=<!-- begin of table -->\n).*(?=<!-- end of table -->)", re.DOTALL)


def file_name(system: System) -> str:
    return f"{system.id}-{system.version}.txt"


def table() -> str:
    """Return what docs/support.md says about each system."""
    heading = ["system", "level", *(card.generations for card in CARDS), "engines"]
    rows = [heading, ["---"] * len(heading)]
    for system in SYSTEMS:
        cells = [
            f"[{system.name}](../{(TEXTS / file_name(system)).relative_to(ROOT)})",
            system.level,
        ]
        cells += [branch(system, card) for card in CARDS]
        rows.append([*cells, ", ".join(filter(lambda one: has(system, one), ENGINES))])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def branch(system: System, card: Card) -> str:
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


def has(system: System, engine: str) -> bool:
    """Tell whether the engine would be installed, and GPUs given to it."""
    role, planner, needed = ENGINE_PLANS[engine]
    bare = planner.plan(node(system, engine, CARDS[0], has_engine=False), variables(role, **needed))
    ready = plan_nvidia_container_runtime.plan(
        node(system, engine, CARDS[0], has_engine=True),
        variables("nvidia_container_runtime", engine=engine),
    )
    return not bare["refusals"] and not ready["refusals"]


def golden(system: System) -> str:
    parts = [f"{system.name}, {system.level}. See docs/support.md for how to read this.\n"]
    parts += [
        f"{f'== {heading} '.ljust(96, '=')}\n{render.plan(made, system.family)}"
        for heading, made in sections(system)
    ]
    return "\n".join(parts)


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_what_is_put_on_a_node(system: System, is_update: bool) -> None:
    path = TEXTS / file_name(system)
    if is_update:
        path.write_text(golden(system))
    assert golden(system) == path.read_text()


def test_support_is_documented(is_update: bool) -> None:
    assert_documented(SUPPORT, TABLE, table(), is_update=is_update)


def sources() -> str:
    """Return what docs/driver.md says about each source of a driver."""
    heading = ["system", "source", *(card.generations for card in DRIVER_CARDS)]
    rows = [heading, ["---"] * len(heading)]
    for system in SYSTEMS:
        for source in (NVIDIA, DISTRIBUTION):
            cells = [offer(system, source, card) for card in DRIVER_CARDS]
            if any(cells):
                rows.append([system.name, f"`{source}`", *(cell or "-" for cell in cells)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def offer(system: System, source: Wished, card: Card) -> str:
    """Return the driver of a source and how well it is known.

    What `auto` takes is bold, or in italics if nobody saw it.
    """
    gpus = {
        gpu_models.generation(card.device): node(system, ENGINES[0], card, has_engine=False)["pci"]
    }
    machine = Machine(system, "6.8.0-60-generic", gpus, has_secure_boot=False)
    found, chosen = (choose_source(machine, Wish(one)) for one in (source, AUTO))
    if not isinstance(found, Choice):
        return ""
    archives = {one.branch: one.version for one in known.archives(system)}
    seen = (known.repository(system).seen if source == NVIDIA else archives)[found.branch]
    known_as = level(system, source, card)
    mark = "*" if known_as == "unproven" else "**"
    is_taken = found == chosen._replace(why=found.why)
    version = f"{mark}{seen}{mark}" if is_taken else seen
    return f"{version}, {found.flavour}, {known_as}"


def level(system: System, source: Wished, card: Card) -> str:
    """Return how sure the driver of a source is: the laboratory has it, or the records do."""
    made = driver(system, ENGINES[0], card, source=source, repository_fingerprint=CONFIRMED)
    ours = made["data"]["packages_record"]["packages"].keys()
    if not all(
        one.judgement.state == records.RECORDED
        for one in judged.of_plan(system, made["data"])
        if one.item.what == "used on" or {one.item.value, one.item.package} & ours
    ):
        return "unproven"
    is_exercised = (judged.key(system), source, card.generations) in EXERCISED
    return "exercised" if is_exercised else "recorded"


def test_sources_are_documented(is_update: bool) -> None:
    assert_documented(DRIVER, TABLE, sources(), is_update=is_update)


def test_every_text_has_its_system() -> None:
    assert {path.name for path in TEXTS.glob("*.txt")} == set(map(file_name, SYSTEMS))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_driver_does_not_depend_on_the_engine(system: System, card: Card) -> None:
    """So that the texts need not show every combination."""
    plans = [driver(system, engine, card) for engine in ENGINES]
    assert len({render.plan(made, system.family) for made in plans}) == 1


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_every_key_is_pinned(system: System) -> None:
    """Nothing is fetched that a fingerprint does not vouch for."""
    fingerprints = re.findall(r"^ +fingerprint *(.*)$", golden(system), re.MULTILINE)
    assert fingerprints
    assert all(re.fullmatch(rf"[0-9A-F]{{40}}|{CONFIRMED}", one) for one in fingerprints)
