# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the roles put on a virgin node, for each system, engine and generation of GPUs.

The plans that the roles carry out are written down as texts, to be read in a review. To write them
anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from ansible_collections.metal.gpu.plugins.plugin_utils.components import planning
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import known
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
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import bare_names
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    SYSTEMS,
    System,
)
from ansible_collections.metal.gpu.tests.unit.golden import judged, render, scenarios
from ansible_collections.metal.gpu.tests.unit.golden.documents import (
    assert_documented,
    assert_text,
    file_name,
    table,
)
from ansible_collections.metal.gpu.tests.unit.golden.nodes import (
    CARDS,
    ENGINES,
    ROOT,
    Card,
    node,
)
from ansible_collections.metal.gpu.tests.unit.golden.plans import CONFIRMED, driver, sections
from ansible_collections.metal.gpu.tests.unit.support import records

TEXTS = ROOT / "tests" / "unit" / "golden" / "texts"
DRIVER = ROOT / "docs" / "driver.md"
# What the laboratory installs; it simulates a GPU of each of these generations.
EXERCISED = (
    ("debian-12", NVIDIA, "Maxwell, Pascal, Volta"),
    ("debian-12", NVIDIA, "Turing, Ampere, Ada"),
    ("debian-12", NVIDIA, "Hopper"),
    ("debian-12", NVIDIA, "Blackwell"),
    ("debian-13", DISTRIBUTION, "Maxwell, Pascal, Volta"),
    ("ubuntu-22.04", NVIDIA, "Turing, Ampere, Ada"),
    ("ubuntu-24.04", NVIDIA, "Maxwell, Pascal, Volta"),
    ("ubuntu-24.04", DISTRIBUTION, "Maxwell, Pascal, Volta"),
    ("ubuntu-24.04", DISTRIBUTION, "Turing, Ampere, Ada"),
    ("rocky-9", NVIDIA, "Maxwell, Pascal, Volta"),
    ("rocky-10", NVIDIA, "Turing, Ampere, Ada"),
)
DRIVER_CARDS = (*CARDS[-1:], *CARDS[:-1])  # the oldest generation first


def golden(system: System) -> str:
    parts = [f"{system.name}, {system.level}. See docs/support.md for how to read this.\n"]
    parts += [
        f"{f'== {heading} '.ljust(96, '=')}\n{render.plan(made, system.family)}"
        for heading, made in sections(system)
    ]
    return "\n".join(parts)


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_what_is_put_on_a_node(system: System, is_update: bool) -> None:
    assert_text(TEXTS, system, golden, is_update=is_update)


@pytest.mark.parametrize("system", SYSTEMS, ids=file_name)
def test_packages_that_a_role_installs_or_holds_are_observed(system: System) -> None:
    """Otherwise, the next plan misses them for ever."""
    data = [made["data"] or {} for _heading, made in sections(system)]
    names = {
        *(name for one in data for name in bare_names(one.get("packages", []), system.family)),
        *(name for one in data for name in one.get("hold", [])),
    }
    assert names
    unseen = {
        name
        for name in names
        if not any(fnmatchcase(name, each) for each in planning.OBSERVED["packages"])
    }
    assert unseen == set()


def sources() -> str:
    """Return what docs/driver.md says about each source of a driver."""
    rows = [["system", "source", *(card.generations for card in DRIVER_CARDS)]]
    for system in SYSTEMS:
        for source in (NVIDIA, DISTRIBUTION):
            cells = [offer(system, source, card) for card in DRIVER_CARDS]
            if any(cells):
                rows.append([system.name, f"`{source}`", *(cell or "-" for cell in cells)])
    return table(rows)


def offer(system: System, source: Wished, card: Card) -> str:
    """Return the driver of a source and how well it is known.

    What `auto` takes is bold, or in italics if nobody saw it.
    """
    found = choice(system, source, card)
    if found is None:
        return ""
    version, known_as = version_of(system, found), level(system, source, card)
    mark = "*" if known_as == "unproven" else "**"
    chosen = choice(system, AUTO, card)
    is_taken = chosen is not None and found == chosen._replace(why=found.why)
    version = f"{mark}{version}{mark}" if is_taken else version
    return f"{version}, {found.flavour}, {known_as}"


def choice(system: System, source: Wished, card: Card) -> Choice | None:
    gpus = {
        gpu_models.generation(card.device): node(system, ENGINES[0], card, has_engine=False)["pci"]
    }
    machine = Machine(system, "6.8.0-60-generic", gpus, has_secure_boot=False)
    found = choose_source(machine, Wish(source))
    return found if isinstance(found, Choice) else None


def version_of(system: System, found: Choice) -> str:
    """Return the version of a choice, which can be a pattern, as it was seen."""
    archives = {one.branch: one.version for one in known.archives(system)}
    seen = known.repository(system).seen if found.source == NVIDIA else archives
    return seen[found.branch]


def versions(system: System, source: Wished) -> list[str]:
    """Return the drivers that the role takes from a source if nobody asks for another one."""
    found = [choice(system, source, card) for card in CARDS]
    return list(dict.fromkeys(version_of(system, one) for one in found if one))


def level(system: System, source: Wished, card: Card) -> str:
    """Return how sure the driver of a source is: the laboratory has it, or the records do.

    The laboratory shows nothing about a name that nobody has recorded: its packages are stand-ins.
    """
    made = driver(system, ENGINES[0], card, source=source, repository_fingerprint=CONFIRMED)
    ours = made["data"]["packages_record"]["packages"].keys()
    if not all(
        one.judgement.state == records.RECORDED
        for one in judged.of_plan(system, made["data"])
        if one.item.what == "used on" or {one.item.value, one.item.package} & ours
    ):
        return "unproven"
    is_exercised = (judged.key(system), source, card.generations) in EXERCISED
    return system.level if is_exercised else "recorded"


def test_sources_are_documented(is_update: bool) -> None:
    assert_documented(DRIVER, "table", sources(), is_update=is_update)


def test_what_is_exercised_has_nodes_in_a_scenario() -> None:
    found = {(one.system, one.generations) for one in scenarios.nodes()}
    assert {(system, generations) for system, _source, generations in EXERCISED} <= found


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
